//! What is asked for, and how it has to end, whatever the way in.

use crate::support::hello;

/// The policy that the rows are judged by.
pub const POLICY: &str = r#"
[[sandbox]]
id = "box"
source = ["0.0.0.0/0", "::/0"]
policy = "main"

[policy.main]

[[policy.main.allow]]
domains = ["example.com", "**.allowed.test"]

[[policy.main.allow]]
domains = ["inside.test"]
addresses = ["10.0.0.0/8", "fd00::/8"]
ports = [80, 8080]

[[policy.main.allow]]
addresses = ["93.184.215.14", "2606:4700::1111", "172.16.0.5"]

[[policy.main.deny]]
domains = ["**.denied.allowed.test"]
"#;

/// Whether anything may reach the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It does: the counter-check of the rest.
    Arrives,
    /// No connection to anywhere, and no query either.
    RefusedUnasked,
    /// No connection to anywhere.
    Refused,
    /// The tunnel is ended before an octet has gone through.
    Closed,
}

/// One thing to ask for.
#[derive(Debug)]
pub struct Row {
    pub host: &'static [u8],
    pub port: u16,
    /// What DNS says of the name.
    pub answers: &'static [&'static str],
    /// What the client sends through its tunnel; rows with it are for tunnels alone.
    pub inside: Option<fn() -> Vec<u8>>,
    pub end: End,
    /// The reason in the decision, or of [`End::Closed`] in the closing record.
    pub reason: &'static str,
}

const fn row(host: &'static [u8], port: u16, end: End, reason: &'static str) -> Row {
    Row { host, port, answers: &[], inside: None, end, reason }
}

const fn bad(host: &'static [u8]) -> Row {
    row(host, 80, End::RefusedUnasked, "bad_request")
}

const fn forbidden(host: &'static [u8]) -> Row {
    row(host, 80, End::RefusedUnasked, "address_forbidden")
}

const fn refused(host: &'static [u8], port: u16, reason: &'static str) -> Row {
    row(host, port, End::RefusedUnasked, reason)
}

const fn resolving(host: &'static [u8], answers: &'static [&'static str], reason: &'static str) -> Row {
    Row { answers, ..row(host, 80, End::Refused, reason) }
}

const fn closed(inside: fn() -> Vec<u8>, reason: &'static str) -> Row {
    Row { inside: Some(inside), answers: PUBLIC, ..row(b"tls.allowed.test", 443, End::Closed, reason) }
}

const PUBLIC: &[&str] = &["93.184.215.14"];

pub const ROWS: &[Row] = &[
    // What has to work, so that "refused" is not just "broken".
    Row { answers: PUBLIC, ..row(b"example.com", 80, End::Arrives, "allowed") },
    Row { answers: PUBLIC, ..row(b"EXAMPLE.com.", 80, End::Arrives, "allowed") },
    Row { answers: PUBLIC, ..row(b"a.allowed.test", 80, End::Arrives, "allowed") },
    Row { answers: &["10.1.2.3"], ..row(b"inside.test", 8080, End::Arrives, "allowed") },
    row(b"93.184.215.14", 80, End::Arrives, "allowed"),
    row(b"172.16.0.5", 80, End::Arrives, "allowed"),
    row(b"[2606:4700::1111]", 80, End::Arrives, "allowed"),
    row(b"[2606:4700:0:0::1111]", 80, End::Arrives, "allowed"),
    // Metadata endpoints, in octets and in text.
    forbidden(b"169.254.169.254"),
    forbidden(b"169.254.170.2"),
    forbidden(b"100.100.100.200"),
    forbidden(b"168.63.129.16"),
    forbidden(b"[fd00:ec2::254]"),
    forbidden(b"[::ffff:169.254.169.254]"),
    forbidden(b"[::ffff:a9fe:a9fe]"),
    forbidden(b"[0:0:0:0:0:ffff:a9fe:a9fe]"),
    forbidden(b"[::169.254.169.254]"),
    forbidden(b"[64:ff9b::a9fe:a9fe]"),
    forbidden(b"[2002:a9fe:a9fe::1]"),
    forbidden(b"[fe80::1]"),
    forbidden(b"0.0.0.0"),
    forbidden(b"[::]"),
    forbidden(b"224.0.0.1"),
    forbidden(b"255.255.255.255"),
    bad(b"2852039166"),
    bad(b"0xa9fea9fe"),
    bad(b"0251.0376.0251.0376"),
    bad(b"0xa9.0xfe.0xa9.0xfe"),
    bad(b"169.254.43518"),
    bad(b"169.254.169.254."),
    bad(b"0169.254.169.254"),
    bad(b"[fe80::1%25eth0]"),
    bad(b"[fe80::1%eth0]"),
    bad(b"::ffff:169.254.169.254"),
    bad(b"[169.254.169.254]"),
    refused(b"metadata.google.internal", 80, "domain_denied"),
    // Private and embedded addresses that no rule unlocks.
    refused(b"10.0.0.1", 80, "address_not_allowed"),
    refused(b"192.168.1.1", 80, "address_not_allowed"),
    refused(b"172.16.0.6", 80, "address_not_allowed"),
    refused(b"127.0.0.1", 80, "address_not_allowed"),
    refused(b"[::1]", 80, "address_not_allowed"),
    refused(b"[fd12:3456::1]", 80, "address_not_allowed"),
    forbidden(b"[::ffff:10.0.0.1]"),
    forbidden(b"[::ffff:93.184.215.14]"),
    forbidden(b"[2002:a00:1::1]"),
    forbidden(b"[2001:0:4136:e378:8000:63bf:3fff:fdd2]"),
    bad(b"127.1"),
    bad(b"0x7f.1"),
    bad(b"2130706433"),
    bad(b"0177.0.0.1"),
    bad(b"1.2.3.4.5"),
    // Public addresses and names that no rule allows.
    refused(b"1.1.1.1", 80, "address_not_allowed"),
    refused(b"elsewhere.test", 80, "domain_not_allowed"),
    refused(b"example.com.elsewhere.test", 80, "domain_not_allowed"),
    refused(b"notexample.com", 80, "domain_not_allowed"),
    refused(b"denied.allowed.test", 80, "domain_denied"),
    refused(b"A.DENIED.allowed.test.", 80, "domain_denied"),
    refused(b"example.com", 22, "port_not_allowed"),
    refused(b"example.com", 8080, "port_not_allowed"),
    refused(b"93.184.215.14", 25, "port_not_allowed"),
    bad(b""),
    bad(b"."),
    bad(b"example.com.."),
    bad(b"a..allowed.test"),
    bad(b"user@example.com"),
    bad(b"user:secret@example.com"),
    bad(b"example.com\0.elsewhere.test"),
    bad(b"exa%6dple.com"),
    bad(b"example.com%00"),
    bad(b"example.com elsewhere.test"),
    bad(b" example.com"),
    bad(b"example.com\t"),
    bad(b"example.com\\elsewhere.test"),
    bad(b"ex\xc3\xa4mple.com"),
    bad(b"\xff"),
    bad(b"[example.com]"),
    bad(b"example.com:443"),
    bad(b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.allowed.test"),
    // Names that are allowed and lead where they may not.
    resolving(b"metadata.allowed.test", &["169.254.169.254"], "address_forbidden"),
    resolving(b"mapped.allowed.test", &["::ffff:93.184.215.14"], "address_forbidden"),
    resolving(b"nat64.allowed.test", &["64:ff9b::a9fe:a9fe"], "address_forbidden"),
    resolving(b"private.allowed.test", &["10.0.0.1"], "address_not_allowed"),
    resolving(b"ula.allowed.test", &["fd00::1"], "address_not_allowed"),
    resolving(b"loopback.allowed.test", &["127.0.0.1"], "address_not_allowed"),
    resolving(b"mixed.allowed.test", &["93.184.215.14", "10.0.0.1"], "mixed_answer"),
    resolving(b"mixed6.allowed.test", &["93.184.215.14", "fd00::1"], "mixed_answer"),
    resolving(b"inside.test", &["192.168.1.1"], "address_not_allowed"),
    resolving(b"none.allowed.test", &[], "dns_not_found"),
    refused(b"localhost.allowed.test.localhost", 80, "domain_not_allowed"),
    // Tunnels to a port that asks for TLS to the name.
    closed(|| hello::naming("elsewhere.test"), "sni_mismatch"),
    closed(|| hello::naming("tls.allowed.test.elsewhere.test"), "sni_mismatch"),
    closed(|| hello::with(&[]), "sni_missing"),
    closed(|| b"SSH-2.0-OpenSSH\r\n".to_vec(), "not_tls"),
    closed(|| b"GET / HTTP/1.1\r\n\r\n".to_vec(), "not_tls"),
    Row {
        inside: Some(|| hello::naming("tls.allowed.test")),
        answers: PUBLIC,
        ..row(b"tls.allowed.test", 443, End::Arrives, "allowed")
    },
];
