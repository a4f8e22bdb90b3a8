//! Which DNS servers are asked, and how: the `[dns] servers` setting, parsed once.
//!
//! Pure but for [`DnsServers::specs`], which reads `/etc/resolv.conf`. A server is always an
//! address: to look up a resolver's own name would need a resolver.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use rustls::pki_types::ServerName;

use crate::dial::ConfiguredAddr;

const DNS_PORT: u16 = 53;
/// RFC 7858 section 3.1.
const DOT_PORT: u16 = 853;
const DOH_PORT: u16 = 443;
/// The path that RFC 8484 uses in its examples and public resolvers in practice.
const DOH_PATH: &str = "/dns-query";
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// As many `nameserver` lines as the C library reads (resolv.conf(5), MAXNS).
const SYSTEM_SERVERS: usize = 3;

/// Where the list of servers comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DnsServers {
    /// The `nameserver` lines of `/etc/resolv.conf`; its other lines are ignored.
    System,
    /// Exactly these, asked in this order.
    List(Vec<ServerSpec>),
}

/// How a server is spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Transport {
    /// UDP, and TCP when an answer does not fit (RFC 7766).
    Udp,
    /// TCP alone.
    Tcp,
    /// DNS over TLS (RFC 7858); `name` is what the certificate must be valid for.
    Tls { name: Arc<str> },
    /// DNS over HTTPS (RFC 8484); `name` is the certificate's name and the URL's authority.
    Https { name: Arc<str>, path: Arc<str> },
}

/// One DNS server: `10.0.0.2`, `10.0.0.2:53`, `[2001:db8::1]:53`, `tcp://10.0.0.2`,
/// `tls://9.9.9.9#dns.quad9.net` or `https://9.9.9.9/dns-query`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSpec {
    addr: ConfiguredAddr,
    transport: Transport,
}

/// Why a server was refused; each message says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerSpecError {
    /// The host part is not an IP address.
    #[error("DNS server {0:?}: {1:?} is not an IP address; write one, as in {2:?}")]
    NotAnAddress(String, String, &'static str),
    /// The address can't be that of a server.
    #[error("DNS server {0:?}: {1} is no unicast address; write the server's own address")]
    NotUnicast(String, IpAddr),
    /// The port is not a number from 1 to 65535.
    #[error("DNS server {0:?}: port {1:?} is not a number from 1 to 65535")]
    Port(String, String),
    /// Another scheme than those of [`ServerSpec`].
    #[error(
        "DNS server {0:?}: unknown scheme {1:?}; write \"IP\", \"tcp://IP\", \"tls://IP#NAME\" or \"https://IP/PATH\""
    )]
    Scheme(String, String),
    /// DNS over TLS without the name to check the certificate against.
    #[error(
        "DNS server {0:?}: add the name in the server's certificate, as in \"tls://9.9.9.9#dns.quad9.net\""
    )]
    NameMissing(String),
    /// The part after `#` is unusable.
    #[error("DNS server {0:?}: {1:?} can't be a certificate name; write a DNS name after \"#\"")]
    Name(String, String),
    /// A path or a `#name` where the transport has none.
    #[error("DNS server {0:?}: remove {1:?}, which this kind of server does not have")]
    Superfluous(String, String),
    /// A DoH path that is not a plain path.
    #[error(
        "DNS server {0:?}: path {1:?} must be plain ASCII without \"?\" or \"{{?dns}}\", as in \"/dns-query\""
    )]
    Path(String, String),
}

impl FromStr for ServerSpec {
    type Err = ServerSpecError;

    fn from_str(text: &str) -> Result<Self, ServerSpecError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("udp", text));
        let (place, name) = match rest.split_once('#') {
            Some((place, name)) => (place, Some(name)),
            None => (rest, None),
        };
        let (host, path) = match place.find('/') {
            Some(at) => place.split_at(at),
            None => (place, ""),
        };
        let (default_port, transport) = match scheme {
            "udp" => (DNS_PORT, Transport::Udp),
            "tcp" => (DNS_PORT, Transport::Tcp),
            "tls" => {
                let name = name.ok_or_else(|| ServerSpecError::NameMissing(text.into()))?;
                let name = tls_name(text, name)?;
                (DOT_PORT, Transport::Tls { name })
            }
            "https" => {
                let name = https_name(text, host, name)?;
                let path = doh_path(text, path)?;
                (DOH_PORT, Transport::Https { name, path })
            }
            other => return Err(ServerSpecError::Scheme(text.into(), other.into())),
        };
        let plain = matches!(transport, Transport::Udp | Transport::Tcp);
        let superfluous = match name {
            Some(name) if plain => format!("#{name}"),
            _ if scheme != "https" => path.to_owned(),
            _ => String::new(),
        };
        if !superfluous.is_empty() {
            return Err(ServerSpecError::Superfluous(text.into(), superfluous));
        }
        let addr = socket_address(text, host, default_port)?;
        Ok(Self { addr: ConfiguredAddr::new(addr), transport })
    }
}

impl ServerSpec {
    /// A plain server (UDP, TCP when needed) on port 53, as `/etc/resolv.conf` names them.
    fn plain(ip: IpAddr) -> Self {
        let addr = ConfiguredAddr::new(SocketAddr::new(ip.to_canonical(), DNS_PORT));
        Self { addr, transport: Transport::Udp }
    }

    /// Where the server listens.
    pub fn addr(&self) -> ConfiguredAddr {
        self.addr
    }

    pub(super) fn transport(&self) -> &Transport {
        &self.transport
    }
}

impl fmt::Display for ServerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addr = self.addr.get();
        match &self.transport {
            Transport::Udp => write!(f, "{addr}"),
            Transport::Tcp => write!(f, "tcp://{addr}"),
            Transport::Tls { name } => write!(f, "tls://{addr}#{name}"),
            Transport::Https { name, path } => write!(f, "https://{addr}{path}#{name}"),
        }
    }
}

/// `IP`, `IPv4:PORT` or `[IPv6]:PORT`.
fn socket_address(text: &str, host: &str, default: u16) -> Result<SocketAddr, ServerSpecError> {
    let (ip, port) = split_port(host);
    let ip = parse_ip(ip).ok_or_else(|| {
        let example = if text.starts_with("https") { "https://9.9.9.9/dns-query" } else { "9.9.9.9" };
        ServerSpecError::NotAnAddress(text.into(), ip.into(), example)
    })?;
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    if ip.is_unspecified() || ip.is_multicast() || broadcast {
        return Err(ServerSpecError::NotUnicast(text.into(), ip));
    }
    let port = match port {
        None => default,
        Some(digits) => {
            parse_port(digits).ok_or_else(|| ServerSpecError::Port(text.into(), digits.into()))?
        }
    };
    Ok(SocketAddr::new(ip, port))
}

/// Splits `HOST:PORT`; the colons of a bare IPv6 address are no separators.
fn split_port(host: &str) -> (&str, Option<&str>) {
    if host.starts_with('[') {
        return match host.rsplit_once("]:") {
            Some((ip, port)) => (ip, Some(port)),
            None => (host, None),
        };
    }
    match host.split_once(':') {
        Some((ip, port)) if !port.contains(':') => (ip, Some(port)),
        _ => (host, None),
    }
}

/// An address with or without brackets; IPv4-mapped IPv6 becomes IPv4, since that is what the
/// system would send.
fn parse_ip(text: &str) -> Option<IpAddr> {
    match text.strip_prefix('[') {
        Some(inner) => {
            let inner = inner.strip_suffix(']').unwrap_or(inner);
            inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
        }
        None => text.parse::<IpAddr>().ok(),
    }
    .map(|ip| ip.to_canonical())
}

fn parse_port(digits: &str) -> Option<u16> {
    let plain = digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse::<u16>().ok().filter(|port| plain && *port != 0)
}

fn tls_name(text: &str, name: &str) -> Result<Arc<str>, ServerSpecError> {
    match ServerName::try_from(name) {
        Ok(_) => Ok(name.into()),
        Err(_) => Err(ServerSpecError::Name(text.into(), name.into())),
    }
}

/// The name after `#`, else the address. An IPv6 address can't stand in for the name, because
/// the same text serves as certificate name (no brackets) and as URL authority (brackets).
fn https_name(text: &str, host: &str, name: Option<&str>) -> Result<Arc<str>, ServerSpecError> {
    let name = name.unwrap_or_else(|| split_port(host).0);
    if name.contains(':') {
        return Err(ServerSpecError::Name(text.into(), name.into()));
    }
    tls_name(text, name)
}

fn doh_path(text: &str, path: &str) -> Result<Arc<str>, ServerSpecError> {
    let usable = |b: u8| b.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@%".contains(&b);
    match path {
        "" => Ok(DOH_PATH.into()),
        _ if path.bytes().all(usable) => Ok(path.into()),
        _ => Err(ServerSpecError::Path(text.into(), path.into())),
    }
}

/// Why no list of servers could be made.
#[derive(Debug, thiserror::Error)]
pub enum ServersError {
    /// The system's list can't be read.
    #[error("can't read the DNS servers from {RESOLV_CONF}: {0}; name them in [dns] servers")]
    Unreadable(#[source] std::io::Error),
    /// There is no server at all.
    #[error("no DNS server in {0}; name at least one in [dns] servers")]
    Empty(&'static str),
}

impl DnsServers {
    /// The servers to ask, in order. `System` is read now: a later change of the file is seen by
    /// the next reload.
    pub fn specs(&self) -> Result<Vec<ServerSpec>, ServersError> {
        let (specs, place) = match self {
            Self::System => (system_servers(Path::new(RESOLV_CONF))?, RESOLV_CONF),
            Self::List(specs) => (specs.clone(), "[dns] servers"),
        };
        if specs.is_empty() {
            return Err(ServersError::Empty(place));
        }
        Ok(specs)
    }
}

fn system_servers(path: &Path) -> Result<Vec<ServerSpec>, ServersError> {
    let text = std::fs::read_to_string(path).map_err(ServersError::Unreadable)?;
    Ok(nameservers(&text))
}

/// The addresses of the `nameserver` lines. One that is no plain address (a zone ID, say) is
/// skipped with a warning, as the C library does.
fn nameservers(text: &str) -> Vec<ServerSpec> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some("nameserver"), Some(address)) = (words.next(), words.next()) else {
            continue;
        };
        match address.parse::<IpAddr>() {
            Ok(ip) if found.len() < SYSTEM_SERVERS => found.push(ServerSpec::plain(ip)),
            Ok(_) => tracing::debug!(address, "more name servers than the C library reads; not used"),
            Err(_) => {
                tracing::warn!(address, file = RESOLV_CONF, "skipping a name server that is no address")
            }
        }
    }
    found
}

#[cfg(test)]
#[path = "servers_tests.rs"]
mod tests;
