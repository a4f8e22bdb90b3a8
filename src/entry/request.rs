//! From a request head to what it asks for, or to the fault that makes it a bad request.
//!
//! Looks at the request alone: who sent it and whether it may are decided elsewhere.

use std::net::SocketAddr;
use std::sync::Arc;

use egret_policy::{Destination, Host, HostError, Scheme, TargetError};

use crate::http1::{
    BodyLength, Connection, FramingError, HostFieldError, RequestHead, body_length, host_field, max_forwards,
};

/// What a well-formed request asks the proxy for.
#[derive(Debug)]
pub(super) enum Asked {
    /// A tunnel.
    Tunnel(Destination),
    /// One request to be forwarded.
    Forward(Forward),
    /// An `OPTIONS` for this path whose last recipient is the proxy itself (RFC 9110 section 7.6.2).
    Options(Destination, Arc<[u8]>),
}

impl Asked {
    /// The place that it names.
    pub(super) const fn destination(&self) -> &Destination {
        match self {
            Self::Tunnel(destination) | Self::Options(destination, _) => destination,
            Self::Forward(forward) => &forward.destination,
        }
    }

    /// The path at that place; a tunnel shows none.
    pub(super) fn path(&self) -> Option<&[u8]> {
        match self {
            Self::Tunnel(_) => None,
            Self::Options(_, path) => Some(path),
            Self::Forward(forward) => Some(&forward.path),
        }
    }
}

/// A request to be forwarded.
#[derive(Debug)]
pub(super) struct Forward {
    pub(super) destination: Destination,
    /// The path as sent, without the query.
    pub(super) path: Arc<[u8]>,
    /// The request target for the origin.
    pub(super) target: Vec<u8>,
    pub(super) length: BodyLength,
    pub(super) connection: Connection,
}

/// Why a request that has a head is a bad one.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub(super) enum Fault {
    #[error("TRACE is not forwarded, since its answer would show what the proxy adds")]
    Trace,
    #[error(transparent)]
    Host(#[from] HostFieldError),
    #[error(transparent)]
    Framing(#[from] FramingError),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("OPTIONS * asks the proxy itself; name a URL instead")]
    OptionsAsterisk,
    #[error("this connection leads to its own destination; CONNECT is for the proxy's port")]
    NoProxy,
    #[error("the target and the Host field name different places")]
    TwoPlaces,
}

impl Fault {
    /// The status of the answer.
    pub(super) fn status(&self) -> u16 {
        match self {
            Self::Trace | Self::NoProxy => 405,
            Self::Framing(error) => error.status(),
            Self::Host(_) | Self::Target(_) | Self::OptionsAsterisk | Self::TwoPlaces => 400,
        }
    }

    /// What the audit record should add: the address that a numeric host would have meant.
    pub(super) fn detail(&self) -> String {
        match self {
            Self::Target(error) => target_detail(error),
            _ => self.to_string(),
        }
    }
}

/// What the audit record says of a target that is no destination.
pub(super) fn target_detail(error: &TargetError) -> String {
    match error {
        TargetError::Host(HostError::Numeric { inet_aton: Some(address) }) => {
            format!("{error}; inet_aton reads {address}")
        }
        _ => error.to_string(),
    }
}

/// Reads what a head asks for; `original` is where its connection was meant to go, if it was diverted.
pub(super) fn read(head: &RequestHead, original: Option<SocketAddr>) -> Result<Asked, Fault> {
    if head.method() == "TRACE" {
        return Err(Fault::Trace);
    }
    host_field(head)?;
    let length = body_length(head)?;
    if let Some(original) = original {
        return read_diverted(head, length, original);
    }
    if head.method() == "CONNECT" {
        return Ok(Asked::Tunnel(Destination::parse_authority(head.target())?));
    }
    if head.method() == "OPTIONS" && head.target() == b"*" {
        return Err(Fault::OptionsAsterisk);
    }
    let form = Destination::parse_absolute(head.target())?;
    Ok(request_for(head, form.destination, (form.path, form.query), length))
}

/// Reads a request whose client believes to speak with the origin at `original`: `Host` names the
/// place, the connection its port. Without `Host`, as in HTTP/1.0, the place has no name.
fn read_diverted(head: &RequestHead, length: BodyLength, original: SocketAddr) -> Result<Asked, Fault> {
    if head.method() == "CONNECT" {
        return Err(Fault::NoProxy);
    }
    let place = match head.single("Host") {
        Some(value) => Destination::parse_host_field(value, original.port())?,
        None => Destination::new(Scheme::Http, Host::Address(original.ip()), original.port()),
    };
    let parts = match head.target() {
        b"*" if head.method() == "OPTIONS" => (b"".as_slice(), b"".as_slice()),
        target if target.starts_with(b"/") => Destination::split_origin(target)?,
        // Servers take the whole URL too (RFC 9112 section 3.2.2); it must not say something else.
        target => {
            let form = Destination::parse_absolute(target)?;
            if form.destination != place {
                return Err(Fault::TwoPlaces);
            }
            (form.path, form.query)
        }
    };
    Ok(request_for(head, place, parts, length))
}

/// A request for a path, perhaps empty, and a query of this place.
fn request_for(
    head: &RequestHead,
    destination: Destination,
    (path, query): (&[u8], &[u8]),
    length: BodyLength,
) -> Asked {
    let shown: Arc<[u8]> = if path.is_empty() { b"/".as_slice() } else { path }.into();
    if max_forwards(head) == Some(0) {
        return Asked::Options(destination, shown);
    }
    let target = match (head.method(), path, query) {
        ("OPTIONS", b"", b"") => b"*".to_vec(),
        (_, b"", query) => [b"/", query].concat(),
        (_, path, query) => [path, query].concat(),
    };
    Asked::Forward(Forward { path: shown, target, length, connection: Connection::of(head), destination })
}

/// The part of a target that a record may show where it is no destination: what stands in place of
/// the authority, without user information, path and query.
pub(super) fn shown_target(target: &[u8]) -> &[u8] {
    let rest = match target.windows(3).position(|window| window == b"://") {
        Some(at) => target.get(at + 3..).unwrap_or_default(),
        None => target,
    };
    let authority = rest.split(|b| matches!(b, b'/' | b'?' | b'#' | b'\\')).next().unwrap_or_default();
    authority.rsplit(|&b| b == b'@').next().unwrap_or_default()
}

/// Has the request been through this proxy already, by its `Via` (RFC 9110 section 7.6.3)?
pub(super) fn is_loop(head: &RequestHead, name: &str) -> bool {
    let received_by = |member: &[u8]| {
        let mut words = member.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        words.nth(1).is_some_and(|by| by.eq_ignore_ascii_case(name.as_bytes()))
    };
    head.values("Via").any(|value| value.split(|&b| b == b',').any(received_by))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_accepted_can_be_sent() {
        for octet in (b'!'..=b'~').map(char::from) {
            for (before, after) in [("/a", "b"), ("/a?b", "c"), ("?a", "b")] {
                let target = format!("http://a.example{before}{octet}{after}");
                let accepted = Destination::parse_absolute(target.as_bytes());
                let sent = format!("{}{before}{octet}{after}", if before == "?a" { "/" } else { "" });
                let sendable = http::Uri::try_from(sent).is_ok() && octet != '#';
                assert_eq!(accepted.is_ok(), sendable, "{target}");
            }
        }
    }

    #[test]
    fn records_show_no_secret_of_a_target() {
        for (target, shown) in [
            ("https://user:secret@a.example/path?q=secret", "a.example"),
            ("http://a.example?q=secret@b", "a.example"),
            ("/path?q=secret", ""),
            ("a.example:443?secret", "a.example:443"),
            ("user:secret@a.example:443", "a.example:443"),
            ("x\\secret@a.example", "x"),
        ] {
            assert_eq!(shown_target(target.as_bytes()), shown.as_bytes(), "{target}");
        }
    }
}
