//! Places that a sandbox must not reach by itself, as the command line and files write them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// What is sent there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// A connection is opened.
    Tcp,
    /// A datagram that asks for an answer: DNS on port 53, QUIC on 443.
    Udp,
    /// A DNS query in a datagram, on any port.
    Dns,
    /// An echo request.
    Icmp,
}

/// An address, and how it is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) way: Way,
    /// The port is 0 for ICMP.
    pub(super) address: SocketAddr,
}

const EXAMPLE: &str = "write tcp:ADDRESS:PORT, udp:ADDRESS:PORT, dns:ADDRESS or icmp:ADDRESS";

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{}` is not a target; {EXAMPLE}", text.escape_debug());
        let (way, rest) = text.split_once(':').ok_or_else(wrong)?;
        let (way, default_port) = match way {
            "tcp" => (Way::Tcp, None),
            "udp" => (Way::Udp, None),
            "dns" => (Way::Dns, Some(53)),
            "icmp" => (Way::Icmp, Some(0)),
            _ => return Err(wrong()),
        };
        let bare = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(rest);
        let address = match (default_port, bare.parse::<IpAddr>()) {
            (Some(port), Ok(ip)) => SocketAddr::new(ip, port),
            _ if way == Way::Icmp => return Err(wrong()),
            _ => rest.parse().map_err(|_| wrong())?,
        };
        if way != Way::Icmp && address.port() == 0 {
            return Err(wrong());
        }
        Ok(Self { way, address })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { way, address } = self;
        match way {
            Way::Tcp => write!(f, "tcp:{address}"),
            Way::Udp => write!(f, "udp:{address}"),
            Way::Dns => write!(f, "dns:{address}"),
            Way::Icmp => write!(f, "icmp:{}", address.ip()),
        }
    }
}

/// Well-known public services: web, DNS, DNS over TLS and QUIC, in both families.
const PUBLIC: [&str; 18] = [
    "tcp:1.1.1.1:80",
    "tcp:1.1.1.1:443",
    "tcp:8.8.8.8:443",
    "tcp:8.8.8.8:53",
    "tcp:9.9.9.9:853",
    "udp:1.1.1.1:443",
    "dns:1.1.1.1",
    "dns:8.8.8.8",
    "dns:9.9.9.9",
    "icmp:1.1.1.1",
    "icmp:8.8.8.8",
    "tcp:[2606:4700:4700::1111]:80",
    "tcp:[2606:4700:4700::1111]:443",
    "tcp:[2620:fe::fe]:853",
    "udp:[2606:4700:4700::1111]:443",
    "dns:2606:4700:4700::1111",
    "dns:2001:4860:4860::8888",
    "icmp:2606:4700:4700::1111",
];

/// Where clouds answer with credentials.
const METADATA: [&str; 7] = [
    "tcp:169.254.169.254:80",
    "tcp:169.254.170.2:80",
    "tcp:169.254.170.23:80",
    "tcp:100.100.100.200:80",
    "tcp:168.63.129.16:80",
    "tcp:[fd00:ec2::254]:80",
    "tcp:[fd20:ce::254]:80",
];

/// The public services that are tried unless others are named alone.
pub(super) fn public() -> Vec<Target> {
    PUBLIC.iter().filter_map(|text| text.parse().ok()).collect()
}

/// The metadata endpoints.
pub(super) fn metadata() -> Vec<Target> {
    METADATA.iter().filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_and_written() {
        for (text, shown) in [
            ("tcp:192.0.2.1:80", "tcp:192.0.2.1:80"),
            ("udp:[2001:db8::1]:443", "udp:[2001:db8::1]:443"),
            ("dns:2001:db8::1", "dns:[2001:db8::1]:53"),
            ("dns:192.0.2.1:5353", "dns:192.0.2.1:5353"),
            ("icmp:[2001:db8::1]", "icmp:2001:db8::1"),
            ("icmp:192.0.2.1", "icmp:192.0.2.1"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.to_string(), shown);
            assert_eq!(shown.parse::<Target>().unwrap(), target);
        }
        for wrong in [
            "",
            "tcp",
            "tcp:192.0.2.1",
            "tcp:name.example:80",
            "tcp:192.0.2.1:0",
            "icmp:192.0.2.1:80",
            "sctp:192.0.2.1:80",
            "tcp:192.0.2.1:99999",
            "tcp:2001:db8::1:80",
        ] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_default_can_be_read() {
        assert_eq!((public().len(), metadata().len()), (PUBLIC.len(), METADATA.len()));
    }
}
