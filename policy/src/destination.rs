//! What a client asked for: a canonical host, a port and a scheme, parsed once at the edge.
//!
//! The request target decides; the `Host` field, SNI and DNS are compared with it or derived
//! from it and never change it.

use std::fmt;

use crate::host::{Host, HostError};

/// How the bytes behind the decision are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// A request in the clear that the proxy reads and writes anew.
    Http,
    /// A tunnel whose inside the proxy does not read beyond a TLS ClientHello.
    Tunnel,
}

impl Scheme {
    /// The word for audit and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Tunnel => "tunnel",
        }
    }
}

/// A place on the network, as asked for; nothing is said about whether it may be reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Destination {
    scheme: Scheme,
    host: Host,
    port: u16,
}

/// Why a request target is not a destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TargetError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("the target has no port; write host:port")]
    NoPort,
    #[error("the port is not a decimal number from 1 to 65535 without leading zeros")]
    Port,
    #[error("the target holds user information before an @, which is not permitted")]
    UserInfo,
    #[error("the target holds a fragment (#), which a request never has")]
    Fragment,
    #[error("the target holds a byte outside ASCII, a space or a control byte")]
    Octet,
    #[error(
        "the path or the query holds a quotation mark, an angle bracket or a grave accent; percent-encode it"
    )]
    Unencoded,
    #[error("an https:// URL can't be fetched by the proxy itself; use CONNECT host:443 instead")]
    Https,
    #[error("the target is a path; a proxy needs the whole URL, as in http://host/path")]
    OriginForm,
    #[error("the target's scheme is not http")]
    Scheme,
    #[error("the target is neither a path nor an http:// URL")]
    NoForm,
    #[error("the port in Host is not the one that the connection was made to")]
    OtherPort,
}

/// An absolute-form target (RFC 9112 section 3.2.2), split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbsoluteForm<'a> {
    /// Where the request goes.
    pub destination: Destination,
    /// The path as sent; empty when the URL has none.
    pub path: &'a [u8],
    /// The query with its `?`, as sent; empty when the URL has none.
    pub query: &'a [u8],
}

impl Destination {
    /// Parses the authority-form target of a CONNECT (RFC 9112 section 3.2.3).
    ///
    /// # Errors
    /// See [`TargetError`]. A missing or odd port is an error, never a default.
    pub fn parse_authority(target: &[u8]) -> Result<Self, TargetError> {
        check_octets(target)?;
        let (host, port) = split_authority(target)?;
        let port = parse_port(port.ok_or(TargetError::NoPort)?)?;
        Ok(Self { scheme: Scheme::Tunnel, host: Host::parse(host)?, port })
    }

    /// Parses an absolute-form target; the scheme must be `http`.
    ///
    /// # Errors
    /// See [`TargetError`]; `https` and origin-form have variants that say what to do instead.
    pub fn parse_absolute(target: &[u8]) -> Result<AbsoluteForm<'_>, TargetError> {
        check_octets(target)?;
        if target.starts_with(b"/") {
            return Err(TargetError::OriginForm);
        }
        let rest = strip_scheme(target)?;
        if rest.contains(&b'#') {
            return Err(TargetError::Fragment);
        }
        let end = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at_checked(end).unwrap_or((rest, b""));
        let query_at = tail.iter().position(|&b| b == b'?').unwrap_or(tail.len());
        let (path, query) = tail.split_at_checked(query_at).unwrap_or((tail, b""));
        check_resource(path, query)?;
        let (host, port) = split_authority(authority)?;
        let port = match port {
            None | Some(b"") => 80, // RFC 3986 section 6.2.3: an empty port is the default one
            Some(digits) => parse_port(digits)?,
        };
        let destination = Self { scheme: Scheme::Http, host: Host::parse(host)?, port };
        Ok(AbsoluteForm { destination, path, query })
    }

    /// Splits an origin-form target (RFC 9112 section 3.2.1) into the path and the query with its `?`.
    ///
    /// # Errors
    /// It is not a path, or holds what no target holds.
    pub fn split_origin(target: &[u8]) -> Result<(&[u8], &[u8]), TargetError> {
        check_octets(target)?;
        if !target.starts_with(b"/") {
            return Err(TargetError::NoForm);
        }
        if target.contains(&b'#') {
            return Err(TargetError::Fragment);
        }
        let query_at = target.iter().position(|&b| b == b'?').unwrap_or(target.len());
        let (path, query) = target.split_at_checked(query_at).unwrap_or((target, b""));
        check_resource(path, query)?;
        Ok((path, query))
    }

    /// Parses the `Host` field (RFC 9110 section 7.2) of a request whose target is a path, on a
    /// connection that was made to `port`; the field may leave the port out.
    ///
    /// # Errors
    /// See [`TargetError`]; `OtherPort` where the field names another one.
    pub fn parse_host_field(value: &[u8], port: u16) -> Result<Self, TargetError> {
        check_octets(value)?;
        let (host, written) = split_authority(value)?;
        match written {
            None | Some(b"") => {}
            Some(digits) if parse_port(digits)? == port => {}
            Some(_) => return Err(TargetError::OtherPort),
        }
        Ok(Self { scheme: Scheme::Http, host: Host::parse(host)?, port })
    }

    /// The same host and port, asked for another way.
    #[must_use]
    pub fn new(scheme: Scheme, host: Host, port: u16) -> Self {
        Self { scheme, host, port }
    }

    /// How it is spoken to.
    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The canonical host.
    #[must_use]
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// The port, 1 to 65535.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The value of the `Host` field for it (RFC 9110 section 7.2): without the port if that is 80.
    #[must_use]
    pub fn host_field(&self) -> String {
        match self.port {
            80 => self.host.to_string(),
            port => format!("{}:{port}", self.host),
        }
    }
}

/// `host:port`, with brackets around an IPv6 address.
impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

fn check_octets(target: &[u8]) -> Result<(), TargetError> {
    let visible = target.iter().all(u8::is_ascii_graphic);
    if visible { Ok(()) } else { Err(TargetError::Octet) }
}

/// Refuses what no URL has in these places (RFC 3986 section 3) and every URL parser encodes. Other
/// octets that RFC 3986 leaves out are sent as they are by clients in use, and go on as they came.
fn check_resource(path: &[u8], query: &[u8]) -> Result<(), TargetError> {
    let in_path = path.iter().any(|b| matches!(b, b'<' | b'>' | b'`'));
    let in_query = query.iter().any(|b| matches!(b, b'<' | b'>' | b'"'));
    if in_path || in_query { Err(TargetError::Unencoded) } else { Ok(()) }
}

fn strip_scheme(target: &[u8]) -> Result<&[u8], TargetError> {
    let colon = target.iter().position(|&b| b == b':').ok_or(TargetError::Scheme)?;
    let (scheme, rest) = target.split_at_checked(colon).unwrap_or((target, b""));
    if scheme.eq_ignore_ascii_case(b"https") {
        return Err(TargetError::Https);
    }
    if !scheme.eq_ignore_ascii_case(b"http") {
        return Err(TargetError::Scheme);
    }
    rest.strip_prefix(b"://").ok_or(TargetError::Scheme)
}

/// Splits `host[:port]`; the host keeps its brackets.
fn split_authority(authority: &[u8]) -> Result<(&[u8], Option<&[u8]>), TargetError> {
    if authority.contains(&b'@') {
        return Err(TargetError::UserInfo);
    }
    let after_host = match authority.iter().rposition(|&b| b == b']') {
        Some(bracket) => bracket + 1,
        None => authority.iter().position(|&b| b == b':').unwrap_or(authority.len()),
    };
    let (host, rest) = authority.split_at_checked(after_host).unwrap_or((authority, b""));
    match rest {
        [] => Ok((host, None)),
        // A second colon means an IPv6 address without brackets, or two ports.
        [b':', port @ ..] if !port.contains(&b':') => Ok((host, Some(port))),
        [b':', ..] if host.starts_with(b"[") => Err(TargetError::Port),
        [b':', ..] => Err(TargetError::Host(HostError::Unbracketed)),
        _ => Err(TargetError::Host(HostError::Brackets)),
    }
}

fn parse_port(digits: &[u8]) -> Result<u16, TargetError> {
    match digits {
        [b'1'..=b'9', rest @ ..] if rest.len() < 5 && rest.iter().all(u8::is_ascii_digit) => {
            let text = std::str::from_utf8(digits).map_err(|_| TargetError::Port)?;
            text.parse().map_err(|_| TargetError::Port)
        }
        _ => Err(TargetError::Port),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn authority(text: &str) -> Result<String, TargetError> {
        Destination::parse_authority(text.as_bytes()).map(|d| d.to_string())
    }

    fn absolute(text: &str) -> Result<(String, String, String), TargetError> {
        Destination::parse_absolute(text.as_bytes()).map(|a| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            (a.destination.to_string(), text(a.path), text(a.query))
        })
    }

    #[test]
    fn authorities() {
        assert_eq!(authority("eXample.com.:443").unwrap(), "example.com:443");
        assert_eq!(authority("[2001:DB8::1]:8443").unwrap(), "[2001:db8::1]:8443");
        for (text, error) in [
            ("example.com", TargetError::NoPort),
            ("example.com:", TargetError::Port),
            ("example.com:0", TargetError::Port),
            ("example.com:0443", TargetError::Port),
            ("example.com:65536", TargetError::Port),
            ("example.com:4294967739", TargetError::Port),
            ("example.com:+443", TargetError::Port),
            ("example.com:443/", TargetError::Port),
            ("a@example.com:443", TargetError::UserInfo),
            ("2001:db8::1:443", TargetError::Host(HostError::Unbracketed)),
            ("example.com:443:443", TargetError::Host(HostError::Unbracketed)),
            ("[::1]:443:443", TargetError::Port),
            ("[::1]443", TargetError::Host(HostError::Brackets)),
            (":443", TargetError::Host(HostError::Empty)),
            ("example.com :443", TargetError::Octet),
        ] {
            assert_eq!(authority(text), Err(error), "{text}");
        }
    }

    #[test]
    fn absolute_forms() {
        let parts = |a: &str, b: &str, c: &str| Ok((a.to_owned(), b.to_owned(), c.to_owned()));
        assert_eq!(absolute("HTTP://Example.com"), parts("example.com:80", "", ""));
        assert_eq!(absolute("http://example.com?a@b"), parts("example.com:80", "", "?a@b"));
        assert_eq!(absolute("http://example.com:/p?q?r"), parts("example.com:80", "/p", "?q?r"));
        for (text, error) in [
            ("https://example.com/", TargetError::Https),
            ("/path", TargetError::OriginForm),
            ("*", TargetError::Scheme),
            ("http:/example.com/", TargetError::Scheme),
            ("http:///path", TargetError::Host(HostError::Empty)),
            ("http://example.com/#f", TargetError::Fragment),
            ("http://example.com/<", TargetError::Unencoded),
            ("http://example.com?\"", TargetError::Unencoded),
            ("http://u:p@example.com/", TargetError::UserInfo),
            ("http://example.com:80:80/", TargetError::Host(HostError::Unbracketed)),
            ("http://example.com\\@evil.test/", TargetError::UserInfo),
            ("http://evil.test\\.example.com/", TargetError::Host(HostError::Character)),
        ] {
            assert_eq!(absolute(text), Err(error), "{text}");
        }
    }

    #[test]
    fn origin_forms_and_their_host() {
        let split = |text: &'static str| Destination::split_origin(text.as_bytes());
        assert_eq!(split("/p//q?a?b"), Ok((&b"/p//q"[..], &b"?a?b"[..])));
        assert_eq!(split("/"), Ok((&b"/"[..], &b""[..])));
        assert_eq!(split("/a#b"), Err(TargetError::Fragment));
        assert_eq!(split("/a b"), Err(TargetError::Octet));
        assert_eq!(split("/a`b"), Err(TargetError::Unencoded));
        for text in ["", "a", "*", "?a", "a.example:80", "http://a.example/"] {
            assert_eq!(split(text), Err(TargetError::NoForm), "{text}");
        }
        let host = |text: &str| Destination::parse_host_field(text.as_bytes(), 8080).map(|d| d.to_string());
        for text in ["A.example", "a.example.", "a.example:8080", "a.example:"] {
            assert_eq!(host(text).unwrap(), "a.example:8080", "{text}");
        }
        assert_eq!(host("[2001:DB8::1]:8080").unwrap(), "[2001:db8::1]:8080");
        assert_eq!(host("a.example:80"), Err(TargetError::OtherPort));
        assert_eq!(host("a.example:08080"), Err(TargetError::Port));
        assert_eq!(host("u@a.example"), Err(TargetError::UserInfo));
        assert_eq!(host("::1"), Err(TargetError::Host(HostError::Unbracketed)));
        assert!(host("0x7f.1").is_err() && host("").is_err());
    }

    #[test]
    fn host_field_omits_the_default_port() {
        let of = |t: &str| Destination::parse_absolute(t.as_bytes()).unwrap().destination.host_field();
        assert_eq!(of("http://example.com:80/"), "example.com");
        assert_eq!(of("http://[::1]:8080/"), "[::1]:8080");
    }

    proptest! {
        #[test]
        fn parse_of_display_is_identity(text in "[A-Za-z0-9_.:@\\[\\]/-]{0,40}") {
            if let Ok(destination) = Destination::parse_authority(text.as_bytes()) {
                let again = Destination::parse_authority(destination.to_string().as_bytes());
                prop_assert_eq!(again, Ok(destination));
            }
        }

        #[test]
        fn no_bytes_panic(text in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Destination::parse_authority(&text);
            let _ = Destination::parse_absolute(&text);
        }
    }
}
