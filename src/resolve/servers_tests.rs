#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use proptest::prelude::*;

use super::*;

fn shown(text: &str) -> String {
    text.parse::<ServerSpec>().unwrap_or_else(|e| panic!("{text}: {e}")).to_string()
}

fn refused(text: &str) -> String {
    match text.parse::<ServerSpec>() {
        Ok(spec) => panic!("{text} became {spec}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn plain_servers() {
    assert_eq!(shown("10.0.0.2"), "10.0.0.2:53");
    assert_eq!(shown("10.0.0.2:5353"), "10.0.0.2:5353");
    assert_eq!(shown("2001:db8::1"), "[2001:db8::1]:53");
    assert_eq!(shown("[2001:db8::1]"), "[2001:db8::1]:53");
    assert_eq!(shown("[2001:db8::1]:54"), "[2001:db8::1]:54");
    assert_eq!(shown("::ffff:10.0.0.2"), "10.0.0.2:53");
    assert_eq!(shown("tcp://10.0.0.2"), "tcp://10.0.0.2:53");
    assert_eq!(shown("udp://10.0.0.2"), "10.0.0.2:53");
}

#[test]
fn encrypted_servers() {
    assert_eq!(shown("tls://9.9.9.9#dns.quad9.net"), "tls://9.9.9.9:853#dns.quad9.net");
    assert_eq!(shown("tls://[2620:fe::9]:8853#dns.quad9.net"), "tls://[2620:fe::9]:8853#dns.quad9.net");
    assert_eq!(shown("https://9.9.9.9/dns-query"), "https://9.9.9.9:443/dns-query#9.9.9.9");
    assert_eq!(shown("https://9.9.9.9"), "https://9.9.9.9:443/dns-query#9.9.9.9");
    assert_eq!(shown("https://9.9.9.9:8443/q#dns.quad9.net"), "https://9.9.9.9:8443/q#dns.quad9.net");
    assert_eq!(
        shown("https://[2620:fe::9]#dns.quad9.net"),
        "https://[2620:fe::9]:443/dns-query#dns.quad9.net"
    );
}

#[test]
fn refusals_say_what_to_write() {
    for (text, part) in [
        ("dns.quad9.net", "write one"),
        ("tls://dns.quad9.net#dns.quad9.net", "write one"),
        ("https://dns.quad9.net/dns-query", "https://9.9.9.9/dns-query"),
        ("tls://9.9.9.9", "#dns.quad9.net"),
        ("tls://9.9.9.9#", "can't be a certificate name"),
        ("tls://9.9.9.9#a b", "can't be a certificate name"),
        ("https://[2620:fe::9]/dns-query", "can't be a certificate name"),
        ("quic://9.9.9.9", "unknown scheme"),
        ("10.0.0.2:0", "1 to 65535"),
        ("10.0.0.2:+53", "1 to 65535"),
        ("10.0.0.2:65536", "1 to 65535"),
        ("10.0.0.2:", "1 to 65535"),
        ("10.0.0.2#name", "remove \"#name\""),
        ("10.0.0.2/x", "remove \"/x\""),
        ("tls://9.9.9.9/x#dns.quad9.net", "remove \"/x\""),
        ("https://9.9.9.9/dns-query{?dns}", "must be plain ASCII"),
        ("https://9.9.9.9/é", "must be plain ASCII"),
        ("0.0.0.0", "no unicast address"),
        ("[::]:53", "no unicast address"),
        ("224.0.0.251:5353", "no unicast address"),
        ("255.255.255.255", "no unicast address"),
        ("fe80::1%eth0", "is not an IP address"),
        ("[10.0.0.2]:53", "is not an IP address"),
        ("user@10.0.0.2", "is not an IP address"),
        ("", "is not an IP address"),
    ] {
        let error = refused(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn resolv_conf_gives_servers_and_nothing_else() {
    let text = "# nameserver 1.1.1.1\nsearch corp.test\noptions ndots:5\nnameserver 10.0.0.2\n\
                nameserver\tfe80::1%eth0\nnameserver 2001:db8::1 # second\nnameservers 10.9.9.9\n\
                nameserver 10.0.0.3\nnameserver 10.0.0.4\n";
    let shown: Vec<String> = nameservers(text).iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["10.0.0.2:53", "[2001:db8::1]:53", "10.0.0.3:53"]);
    assert!(nameservers("search a\n").is_empty());
}

#[test]
fn missing_and_empty_lists_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(system_servers(&dir.path().join("none")), Err(ServersError::Unreadable(_))));
    assert!(matches!(DnsServers::List(Vec::new()).specs(), Err(ServersError::Empty(_))));
}

proptest! {
    #[test]
    fn any_text_parses_or_is_refused(text in ".{0,60}") {
        let _ = text.parse::<ServerSpec>();
    }

    #[test]
    fn what_is_shown_parses_back(ip: IpAddr, port in 1u16.., kind in 0..4) {
        let addr = SocketAddr::new(ip, port);
        let text = match kind {
            0 => addr.to_string(),
            1 => format!("tcp://{addr}"),
            2 => format!("tls://{addr}#dns.example"),
            _ => format!("https://{addr}/q#dns.example"),
        };
        if let Ok(spec) = text.parse::<ServerSpec>() {
            prop_assert_eq!(spec.to_string().parse::<ServerSpec>().unwrap(), spec);
        }
    }
}
