//! What a diverted connection carries, by its first bytes: TLS with or without a name, HTTP/1, or
//! something else. The bytes stay in the buffer.
//!
//! Being wrong here opens nothing: what is taken for something else is decided as the address that
//! it was meant for.

use std::time::Duration;

use egret_policy::{DnsName, Reason, Refusal};
use tokio::time::{Instant, timeout_at};

use super::super::Gate;
use super::super::wire::Wire;
use crate::client_hello::{ClientHello, ClientHelloError, ClientHelloReader};

/// Ports of protocols whose client speaks first: HTTP, and what is TLS from its first byte.
const CLIENT_FIRST: [u16; 17] =
    [80, 443, 465, 563, 636, 853, 989, 990, 992, 993, 994, 995, 8000, 8008, 8080, 8443, 8888];
/// How long the first bytes may take at any other port before the server is let speak.
const PATIENCE: Duration = Duration::from_secs(1);
/// The type of the record that a handshake begins with (RFC 8446 section 5.1).
const HANDSHAKE: u8 = 0x16;
/// Longest first line that may turn out to be a request line.
const MOST_LINE: usize = 8 * 1024;
/// What is HTTP as soon as a space follows. Other methods show by the end of their line.
const METHODS: [&[u8]; 9] =
    [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"CONNECT", b"TRACE"];

/// What a connection turned out to carry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// TLS, for this name if the ClientHello has one.
    Tls(Option<DnsName>),
    /// HTTP/1.
    Http,
    /// Anything else, or nothing yet.
    Other,
    /// A ClientHello that can't be acted upon.
    Bad(Refusal),
}

/// What the first bytes look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tls,
    Http,
    Other,
}

/// The first look at a connection.
pub(super) struct Look<'a> {
    gate: &'a Gate,
    client_first: bool,
}

/// What one more read brought.
enum More {
    Bytes,
    /// The client has finished sending.
    End,
    /// It failed, or the process stops.
    Gone,
    Late,
}

impl<'a> Look<'a> {
    /// For a connection that was made to this port.
    pub(super) fn new(gate: &'a Gate, port: u16) -> Self {
        Self { gate, client_first: CLIENT_FIRST.contains(&port) }
    }

    /// Reads as much as it takes to tell; `None` if the client left without a word.
    pub(super) async fn read(&self, wire: &mut Wire) -> Option<Said> {
        let timeouts = self.gate.egress.timeouts();
        let first = if self.client_first { timeouts.idle } else { PATIENCE };
        match self.more(wire, Instant::now() + first).await {
            More::Bytes => {}
            // As on the proxy's port: whoever asks for nothing is not answered.
            More::Gone => return None,
            More::End | More::Late if self.client_first => return None,
            More::End | More::Late => return Some(Said::Other),
        }
        let begun = Instant::now();
        loop {
            match kind(&wire.buffer) {
                Some(Kind::Tls) => return self.read_hello(wire, begun + timeouts.tls).await,
                Some(Kind::Http) => return Some(Said::Http),
                Some(Kind::Other) => return Some(Said::Other),
                None => {}
            }
            // Some protocols ask with an empty line and no more (RFC 1288, RFC 1436).
            let empty_line = matches!(&wire.buffer[..], b"\r" | b"\r\n") && !self.client_first;
            let patience = if empty_line { PATIENCE } else { timeouts.header };
            match self.more(wire, begun + patience).await {
                More::Bytes => {}
                More::End | More::Late => return Some(Said::Other),
                More::Gone => return None,
            }
        }
    }

    async fn read_hello(&self, wire: &mut Wire, deadline: Instant) -> Option<Said> {
        let mut reader = ClientHelloReader::new();
        loop {
            match reader.read(&wire.buffer) {
                Ok(Some(hello)) => return Some(named(&hello)),
                Ok(None) => {}
                Err(ClientHelloError::NotTls) => return Some(Said::Other),
                Err(error) => {
                    let refusal = Refusal::new(Reason::TlsMalformed).with_detail(error.to_string());
                    return Some(Said::Bad(refusal));
                }
            }
            match self.more(wire, deadline).await {
                More::Bytes => {}
                More::Late => return Some(Said::Bad(Refusal::new(Reason::TlsTimeout))),
                More::End | More::Gone => return None,
            }
        }
    }

    async fn more(&self, wire: &mut Wire, deadline: Instant) -> More {
        let read = tokio::select! {
            read = timeout_at(deadline, wire.read()) => read,
            // Only what has been asked is still served.
            () = self.gate.egress.draining() => return More::Gone,
        };
        match read {
            Ok(Ok(0)) => More::End,
            Ok(Ok(_)) => More::Bytes,
            Ok(Err(_)) => More::Gone,
            Err(_) => More::Late,
        }
    }
}

/// The name in a ClientHello, which must be one as it stands (RFC 6066 section 3).
fn named(hello: &ClientHello) -> Said {
    let Some(sent) = hello.server_name() else {
        return Said::Tls(None);
    };
    match DnsName::parse(sent) {
        Ok(name) if hello.names_host(name.as_str()) => Said::Tls(Some(name)),
        _ => {
            let detail = format!("server name {} is not a host name", String::from_utf8_lossy(sent));
            Said::Bad(Refusal::new(Reason::TlsMalformed).with_detail(detail))
        }
    }
}

/// What begins with these bytes; `None` if that takes more of them.
fn kind(bytes: &[u8]) -> Option<Kind> {
    if bytes.first() == Some(&HANDSHAKE) {
        return Some(Kind::Tls);
    }
    // One empty line before a request is no part of it (RFC 9112 section 2.2), and none begins with less.
    let bytes = match bytes {
        [b'\r', b'\n', rest @ ..] => rest,
        b"\r" => return None,
        bytes => bytes,
    };
    let first = *bytes.first()?;
    let is_method = |method: &&[u8]| bytes.strip_prefix(*method).is_some_and(|rest| rest.starts_with(b" "));
    if METHODS.iter().any(is_method) {
        return Some(Kind::Http);
    }
    let end = bytes.iter().position(|&byte| byte == b'\n');
    let line = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
    let text = line.iter().all(|&byte| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t' | b'\r'));
    if !first.is_ascii_alphabetic() || !text || line.len() > MOST_LINE {
        return Some(Kind::Other);
    }
    end?;
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let last = line.rsplit(|&byte| byte == b' ').next().unwrap_or_default();
    Some(if last.starts_with(b"HTTP/1.") { Kind::Http } else { Kind::Other })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes() {
        for (bytes, expected) in [
            (&b""[..], None),
            (b"\x16", Some(Kind::Tls)),
            (b"GET /", Some(Kind::Http)),
            (b"GE", None),
            (b"CONNECT a:1 ", Some(Kind::Http)),
            (b"PROPFIND / HTTP/1.1", None),
            (b"PROPFIND / HTTP/1.1\r\n", Some(Kind::Http)),
            (b"PRI * HTTP/2.0\r\n", Some(Kind::Other)),
            (b"get key\r\n", Some(Kind::Other)),
            (b"SSH-2.0-OpenSSH_9.9\r\n", Some(Kind::Other)),
            (b"\x80\x2e\x01", Some(Kind::Other)),
            (b"\0\0\0\x08\x04\xd2\x16\x2f", Some(Kind::Other)),
            (b"*1\r\n$4\r\nPING\r\n", Some(Kind::Other)),
            (b"ab\x00", Some(Kind::Other)),
            (b"\r", None),
            (b"\r\n", None),
            (b"\r\nGET /", Some(Kind::Http)),
            (b"\r\nPROPFIND / HTTP/1.1\r\n", Some(Kind::Http)),
            (b"\r\n\r\nGET /", Some(Kind::Other)),
            (b"\nGET /", Some(Kind::Other)),
            (b"\r\n\x16\x03", Some(Kind::Other)),
            (b"\r\nSSH-2.0-x\r\n", Some(Kind::Other)),
            (&[b'a'; MOST_LINE + 1], Some(Kind::Other)),
        ] {
            assert_eq!(kind(bytes), expected, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn any_beginning_of_a_request_line_waits_for_the_rest() {
        let line = b"MKCALENDAR /x HTTP/1.1\r\n";
        for end in 1..line.len() {
            assert_eq!(kind(&line[..end]), None);
        }
        assert_eq!(kind(line), Some(Kind::Http));
    }
}
