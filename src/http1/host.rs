//! Whether the `Host` field of a request is one that a server may act on (RFC 9112 section 3.2).
//!
//! Its value is checked and then forgotten: the request target decides where a request goes.

use std::net::Ipv6Addr;

use super::request::{RequestHead, Version};
use super::syntax::decimal;

/// Why the `Host` field was refused; always a 400. The text is fixed and safe to show to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostFieldError {
    /// HTTP/1.1 without `Host`.
    #[error("HTTP/1.1 needs a Host field")]
    Missing,
    /// More than one line.
    #[error("Host must not occur more than once")]
    Several,
    /// Not `host` or `host:port`, or empty although every target of a proxy has an authority.
    #[error("Host is not a host name or address with an optional port")]
    Invalid,
}

/// Checks that there is exactly one valid `Host`; in HTTP/1.0 there may be none.
pub fn host_field(head: &RequestHead) -> Result<(), HostFieldError> {
    let mut values = head.values("Host");
    match (values.next(), values.next(), head.version()) {
        (Some(_), Some(_), _) => Err(HostFieldError::Several),
        (Some(value), None, _) if is_host_and_port(value) => Ok(()),
        (Some(_), None, _) => Err(HostFieldError::Invalid),
        (None, _, Version::Http10) => Ok(()),
        (None, _, Version::Http11) => Err(HostFieldError::Missing),
    }
}

/// `uri-host [ ":" port ]` of RFC 9110 7.2. An empty port is within the grammar of RFC 3986.
fn is_host_and_port(value: &[u8]) -> bool {
    let (host_is_valid, rest) = match value {
        [b'[', tail @ ..] => match split_at_byte(tail, b']') {
            Some((address, rest)) => (is_ipv6(address), rest),
            None => return false,
        },
        _ => {
            let end = value.iter().position(|byte| *byte == b':').unwrap_or(value.len());
            let (name, rest) = value.split_at_checked(end).unwrap_or_default();
            (is_name(name), rest)
        }
    };
    host_is_valid && is_port_suffix(rest)
}

/// What stands before and after the first `byte`.
fn split_at_byte(bytes: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|other| *other == byte)?;
    let (before, rest) = bytes.split_at_checked(at)?;
    Some((before, rest.get(1..)?))
}

fn is_ipv6(address: &[u8]) -> bool {
    std::str::from_utf8(address).is_ok_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

/// A registered name as it occurs in practice, or an IPv4 address. Percent-encoding and the
/// sub-delimiters, which RFC 3986 would allow, name no host in DNS; a comma among them is how two
/// `Host` lines look after somebody merged them.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
}

fn is_port_suffix(rest: &[u8]) -> bool {
    match rest {
        [] | [b':'] => true,
        [b':', port @ ..] => decimal(port).is_some_and(|port| port <= u64::from(u16::MAX)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::head;
    use super::*;

    fn check(version: &str, fields: &str) -> Result<(), HostFieldError> {
        host_field(&head(&format!("GET http://a/ HTTP/{version}"), fields))
    }

    #[test]
    fn valid_values() {
        for value in [
            "example.com",
            "EXAMPLE.COM",
            "example.com:8080",
            "example.com:",
            "a_b.example.",
            "x",
            "127.0.0.1:3128",
            "[::1]",
            "[2001:db8::1]:443",
            "[::ffff:1.2.3.4]",
            "xn--bcher-kva.test",
        ] {
            assert_eq!(check("1.1", &format!("hOST: {value}")), Ok(()), "{value}");
        }
    }

    #[test]
    fn invalid_values() {
        for value in [
            "",
            "a b",
            "a\tb",
            "example.com@evil.test",
            "http://example.com",
            "example.com/",
            "example.com:80:80",
            "example.com:+80",
            "example.com:65536",
            "example.com:0x50",
            "example.com:http",
            ":80",
            "::1",
            "[::1",
            "[::1]x",
            "[::1]]",
            "[]",
            "[example.com]",
            "[::1%25lo]",
            "[v1.x]",
            "a,b",
            "a, b",
            "exa%6dple.com",
            "b\u{fc}cher.test",
            "a?b",
            "a#b",
            "a\\b",
            "*",
            "\"a\"",
            "a;b",
        ] {
            for version in ["1.0", "1.1"] {
                let result = check(version, &format!("Host: {value}"));
                assert_eq!(result, Err(HostFieldError::Invalid), "{value:?}");
            }
        }
    }

    #[test]
    fn exactly_one_line() {
        assert_eq!(check("1.1", ""), Err(HostFieldError::Missing));
        assert_eq!(check("1.0", ""), Ok(()));
        for version in ["1.0", "1.1"] {
            let two = check(version, "Host: a\r\nhost: a");
            assert_eq!(two, Err(HostFieldError::Several));
        }
    }
}
