//! The one parser of a host, as a client or a rule writes it, into its canonical form.
//!
//! Never resolves, never decodes percent-encoding and never maps Unicode: what is not
//! already a plain ASCII name, a strict dotted quad or a bracketed IPv6 literal is an error.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Longest name in octets without the root dot (RFC 1035 section 2.3.4).
const MAX_NAME: usize = 253;
/// Longest label in octets (RFC 1035 section 2.3.4).
const MAX_LABEL: usize = 63;

/// A domain name in canonical form: ASCII lower case, no root dot, 1 to 253 octets.
///
/// Labels are `[a-z0-9_-]`, 1 to 63 octets each, and the last one is not a number
/// in the sense of the WHATWG URL standard ("ends in a number").
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DnsName(Arc<str>);

impl DnsName {
    /// Parses a name; one root dot is removed and upper case is folded.
    ///
    /// # Errors
    /// Anything that is not a name, dotted quads included.
    pub fn parse(text: &[u8]) -> Result<Self, HostError> {
        match Host::parse(text)? {
            Host::Name(name) => Ok(name),
            Host::Address(_) => Err(HostError::Address),
        }
    }

    /// Reads a name from the labels of a DNS message (RFC 1035 section 3.1), whose octets may be any.
    ///
    /// # Errors
    /// As [`DnsName::parse`]; a dot inside a label is a character that no host name has.
    pub fn from_labels<'a>(labels: impl Iterator<Item = &'a [u8]>) -> Result<Self, HostError> {
        let labels: Vec<&[u8]> = labels.collect();
        if labels.iter().any(|label| label.contains(&b'.')) {
            return Err(HostError::Character);
        }
        Self::parse(&labels.join(&b'.'))
    }

    /// The part that somebody registered, by the Public Suffix List: `a.example` of `x.y.a.example`;
    /// the name itself where it has no such part.
    #[must_use]
    pub fn registrable(&self) -> &str {
        psl::domain_str(&self.0).unwrap_or(&self.0)
    }

    /// The name without a root dot.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As [`DnsName::as_str`], to be kept.
    #[must_use]
    pub fn shared(&self) -> &Arc<str> {
        &self.0
    }

    /// Is it `localhost` or below it (RFC 6761 section 6.3)?
    #[must_use]
    pub fn is_localhost(&self) -> bool {
        &*self.0 == "localhost" || self.0.ends_with(".localhost")
    }
}

impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A canonical host: what rules match, DNS resolves, SNI must equal and the audit shows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A domain name.
    Name(DnsName),
    /// An IP literal.
    Address(IpAddr),
}

/// Why some bytes are not a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum HostError {
    #[error("the host is empty")]
    Empty,
    #[error("the host holds a byte outside ASCII; send the A-label form (xn--…)")]
    NotAscii,
    #[error("the host holds a character that no host name has")]
    Character,
    #[error("the host has an empty label")]
    EmptyLabel,
    #[error("a label of the host is longer than {MAX_LABEL} octets")]
    LabelTooLong,
    #[error("the host is longer than {MAX_NAME} octets")]
    NameTooLong,
    #[error("the host ends in a number but is not an IPv4 address of four decimal parts")]
    Numeric {
        /// The address that `inet_aton` would read, if it reads one.
        inet_aton: Option<Ipv4Addr>,
    },
    #[error("the host has brackets around something that is not an IPv6 address")]
    Brackets,
    #[error("an IPv6 address as host stands in brackets, as in [2001:db8::1]")]
    Unbracketed,
    #[error("an IPv6 zone identifier is not permitted in a host")]
    Zone,
    #[error("an IP address stands where a domain name is expected")]
    Address,
}

impl Host {
    /// Parses what stands before the port in an authority (RFC 3986 section 3.2.2), strictly.
    ///
    /// # Errors
    /// See [`HostError`]; the numeric forms that `inet_aton` accepts are errors, never names.
    pub fn parse(text: &[u8]) -> Result<Self, HostError> {
        if let Some(inner) = text.strip_prefix(b"[") {
            return parse_bracketed(inner);
        }
        if text.is_empty() {
            return Err(HostError::Empty);
        }
        check_characters(text)?;
        let relative = text.strip_suffix(b".").unwrap_or(text);
        if ends_in_number(relative) {
            return parse_numeric(text);
        }
        if relative.len() > MAX_NAME {
            return Err(HostError::NameTooLong);
        }
        for label in relative.split(|&b| b == b'.') {
            match label.len() {
                0 => return Err(HostError::EmptyLabel),
                1..=MAX_LABEL => {}
                _ => return Err(HostError::LabelTooLong),
            }
        }
        let name: String = relative.iter().map(|b| char::from(b.to_ascii_lowercase())).collect();
        Ok(Self::Name(DnsName(name.into())))
    }

    /// The name, if it is one.
    #[must_use]
    pub const fn name(&self) -> Option<&DnsName> {
        match self {
            Self::Name(name) => Some(name),
            Self::Address(_) => None,
        }
    }
}

/// The host as an authority writes it: an IPv6 address stands in brackets.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(IpAddr::V4(v4)) => v4.fmt(f),
            Self::Address(IpAddr::V6(v6)) => write!(f, "[{v6}]"),
        }
    }
}

fn check_characters(text: &[u8]) -> Result<(), HostError> {
    for byte in text {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {}
            b':' => return Err(HostError::Unbracketed),
            b'[' | b']' => return Err(HostError::Brackets),
            0x80.. => return Err(HostError::NotAscii),
            _ => return Err(HostError::Character),
        }
    }
    Ok(())
}

fn parse_bracketed(inner: &[u8]) -> Result<Host, HostError> {
    let inner = inner.strip_suffix(b"]").ok_or(HostError::Brackets)?;
    if inner.contains(&b'%') {
        return Err(HostError::Zone);
    }
    let text = std::str::from_utf8(inner).map_err(|_| HostError::NotAscii)?;
    let address: Ipv6Addr = text.parse().map_err(|_| HostError::Brackets)?;
    Ok(Host::Address(IpAddr::V6(address)))
}

fn parse_numeric(text: &[u8]) -> Result<Host, HostError> {
    let text = std::str::from_utf8(text).map_err(|_| HostError::NotAscii)?;
    // The parser of the standard library takes four decimal parts without leading zeros only.
    match text.parse::<Ipv4Addr>() {
        Ok(address) => Ok(Host::Address(IpAddr::V4(address))),
        Err(_) => Err(HostError::Numeric { inet_aton: inet_aton(text) }),
    }
}

/// The WHATWG URL standard's "ends in a number" on a host without its root dot.
fn ends_in_number(text: &[u8]) -> bool {
    let last = text.rsplit(|&b| b == b'.').next().unwrap_or_default();
    if last.is_empty() {
        return false;
    }
    let hexadecimal = last.strip_prefix(b"0x").or_else(|| last.strip_prefix(b"0X"));
    last.iter().all(u8::is_ascii_digit)
        || hexadecimal.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

/// The address that `inet_aton` makes of a numeric host, for the audit record alone.
fn inet_aton(text: &str) -> Option<Ipv4Addr> {
    let parts: Vec<&str> = text.strip_suffix('.').unwrap_or(text).split('.').collect();
    let (last, leading) = parts.split_last()?;
    if leading.len() > 3 {
        return None;
    }
    let mut value: u64 = 0;
    for part in leading {
        let octet = number(part).filter(|&n| n <= 255)?;
        value = value << 8 | octet;
    }
    let free = 8 * (4 - leading.len());
    let low = number(last).filter(|&n| n < 1 << free)?;
    u32::try_from(value << free | low).ok().map(Ipv4Addr::from_bits)
}

fn number(part: &str) -> Option<u64> {
    let (digits, radix) = match part.as_bytes() {
        [] => return None,
        [b'0', b'x' | b'X', ..] => (part.get(2..)?, 16),
        [b'0', _, ..] => (part.get(1..)?, 8),
        _ => (part, 10),
    };
    if digits.is_empty() {
        return Some(0); // "0x" reads as zero in the WHATWG parser
    }
    if !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None; // from_str_radix would take a sign
    }
    u64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> String {
        match Host::parse(text.as_bytes()).unwrap() {
            Host::Name(name) => name.as_str().to_owned(),
            Host::Address(a) => panic!("{a}"),
        }
    }

    #[test]
    fn names_are_folded_and_lose_one_root_dot() {
        assert_eq!(name("EXAMPLE.Com."), "example.com");
        assert_eq!(name("foo_bar.-x-.example"), "foo_bar.-x-.example");
        assert_eq!(name("1e3"), "1e3");
        assert_eq!(name("127.0.0.1.example"), "127.0.0.1.example");
        assert_eq!(Host::parse(b"a..").unwrap_err(), HostError::EmptyLabel);
        assert_eq!(Host::parse(b".").unwrap_err(), HostError::EmptyLabel);
    }

    #[test]
    fn lengths_are_inclusive() {
        let label = "a".repeat(63);
        let longest = format!("{label}.{label}.{label}.{}", "b".repeat(61));
        assert_eq!(name(&longest), longest);
        assert_eq!(name(&format!("{longest}.")), longest);
        assert_eq!(Host::parse(format!("{longest}b").as_bytes()), Err(HostError::NameTooLong));
        assert_eq!(Host::parse("a".repeat(64).as_bytes()), Err(HostError::LabelTooLong));
    }

    #[test]
    fn numbers_are_never_names() {
        let reads = |text: &str, address: Option<&str>| {
            let inet_aton = address.map(|a| a.parse().unwrap());
            assert_eq!(Host::parse(text.as_bytes()), Err(HostError::Numeric { inet_aton }), "{text}");
        };
        reads("2130706433", Some("127.0.0.1"));
        reads("0x7f.1", Some("127.0.0.1"));
        reads("0177.0.0.1", Some("127.0.0.1"));
        reads("127.1", Some("127.0.0.1"));
        reads("127.0.0.1.", Some("127.0.0.1"));
        reads("0xA9.0xFE.0xA9.0xFE", Some("169.254.169.254"));
        reads("169.16689662", Some("169.254.169.254"));
        reads("0x.0x.0", Some("0.0.0.0"));
        reads("4294967296", None);
        reads("0x100000000", None);
        reads("256.0.0.1", None);
        reads("1.2.3.08", None);
        reads("1.2.3.4.5", None);
        reads("foo.0x4", None);
        reads("-127.0.0.1", None);
        reads("127..1", None);
    }

    #[test]
    fn literals() {
        for (text, address) in [("10.0.0.1", "10.0.0.1"), ("[::FFFF:7f00:1]", "::ffff:127.0.0.1")] {
            assert_eq!(Host::parse(text.as_bytes()), Ok(Host::Address(address.parse().unwrap())));
        }
        for (text, error) in [
            ("[::1", HostError::Brackets),
            ("[]", HostError::Brackets),
            ("[127.0.0.1]", HostError::Brackets),
            ("[example.com]", HostError::Brackets),
            ("[::ffff:127.0.0.01]", HostError::Brackets),
            ("[::1]x", HostError::Brackets),
            ("x[::1]", HostError::Brackets),
            ("[fe80::1%25eth0]", HostError::Zone),
            ("::1", HostError::Unbracketed),
            ("a b", HostError::Character),
            ("a%2eb", HostError::Character),
            ("a\0b", HostError::Character),
            ("b\u{fc}cher", HostError::NotAscii),
        ] {
            assert_eq!(Host::parse(text.as_bytes()), Err(error), "{text}");
        }
    }

    #[test]
    fn labels_of_a_message_are_a_name_or_none() {
        let read = |labels: &[&[u8]]| DnsName::from_labels(labels.iter().copied()).map(|n| n.to_string());
        assert_eq!(read(&[b"WWW", b"eXample", b"com"]), Ok("www.example.com".to_owned()));
        for (labels, error) in [
            (&[][..], HostError::Empty),
            (&[&b"www.example"[..], b"com"], HostError::Character),
            (&[b"", b"com"], HostError::EmptyLabel),
            (&[b"a\0b", b"com"], HostError::Character),
            (&[b"*", b"com"], HostError::Character),
            (&[b"\xff", b"com"], HostError::NotAscii),
            (&[b"127", b"0", b"0", b"1"], HostError::Address),
            (&[b"0x7f", b"1"], HostError::Numeric { inet_aton: Some(Ipv4Addr::LOCALHOST) }),
        ] {
            assert_eq!(read(labels), Err(error), "{labels:?}");
        }
    }

    #[test]
    fn what_somebody_registered() {
        let of = |text: &str| DnsName::parse(text.as_bytes()).unwrap().registrable().to_owned();
        assert_eq!(of("x.y.a.example"), "a.example");
        assert_eq!(of("a.b.example.co.uk"), "example.co.uk");
        assert_eq!(of("co.uk"), "co.uk");
        assert_eq!(of("localhost"), "localhost");
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_fail(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(host) = Host::parse(&text) {
                prop_assert_eq!(Host::parse(host.to_string().as_bytes()), Ok(host));
            }
        }

        #[test]
        fn likely_hosts_survive_display(text in "[A-Za-z0-9_.:\\[\\]-]{0,40}") {
            if let Ok(host) = Host::parse(text.as_bytes()) {
                prop_assert_eq!(Host::parse(host.to_string().as_bytes()), Ok(host));
            }
        }
    }
}
