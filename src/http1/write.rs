//! Writes the heads of responses to the client.
//!
//! Everything is checked before it is written, and a head is written whole or not at all: no value
//! from an origin can end a line, and no field can contradict the framing of [`BodyEncoder`].

use bytes::{BufMut, BytesMut};

use super::encode::BodyEncoder;
use super::request::Version;
use super::syntax::{is_token, is_value_byte};

/// Why a response head or trailer could not be written. Nothing of it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Not a final status code (200-999), or not an interim one (100-199), as asked for.
    #[error("the status code {0} cannot be used here")]
    Status(u16),
    /// A control octet in the reason phrase.
    #[error("the reason phrase contains a control character")]
    Reason,
    /// A field name that is not a token.
    #[error("a field name is not a token")]
    Name,
    /// A control octet other than tab in a field value.
    #[error("a field value contains a control character")]
    Value,
}

/// Fields that follow from the framing and the connection, and that callers cannot set.
const WRITTEN_HERE: [&str; 5] =
    ["Connection", "Content-Length", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding"];

/// Writes the head of a final response: status line, `fields` in their order, then the framing and
/// connection fields that `encoder` decides on, whatever `fields` says about these.
///
/// `reason` may be empty. The version is always HTTP/1.1, our own (RFC 9110 6.2).
pub fn write_final_head<'a>(
    out: &mut BytesMut,
    status: u16,
    reason: &[u8],
    fields: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    encoder: &BodyEncoder,
) -> Result<(), WriteError> {
    if !(200..=999).contains(&status) {
        return Err(WriteError::Status(status));
    }
    whole_or_nothing(out, |out| {
        write_status_line(out, status, reason)?;
        for (name, value) in fields {
            if !WRITTEN_HERE.iter().any(|ours| ours.eq_ignore_ascii_case(name)) {
                write_field(out, name, value)?;
            }
        }
        encoder.write_fields(out);
        out.put_slice(b"\r\n");
        Ok(())
    })
}

/// Writes the head of an interim response (1xx, with 101), `fields` and nothing else.
///
/// HTTP/1.0 has no such responses: for such a client nothing is written (RFC 9110 15.2).
pub fn write_interim_head<'a>(
    out: &mut BytesMut,
    status: u16,
    reason: &[u8],
    fields: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    version: Version,
) -> Result<(), WriteError> {
    if !(100..=199).contains(&status) {
        return Err(WriteError::Status(status));
    }
    if version < Version::Http11 {
        return Ok(());
    }
    whole_or_nothing(out, |out| {
        write_status_line(out, status, reason)?;
        for (name, value) in fields {
            write_field(out, name, value)?;
        }
        out.put_slice(b"\r\n");
        Ok(())
    })
}

/// Runs `write`; when it fails, `out` is as before.
pub(super) fn whole_or_nothing(
    out: &mut BytesMut,
    write: impl FnOnce(&mut BytesMut) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    let before = out.len();
    write(out).inspect_err(|_| out.truncate(before))
}

fn write_status_line(out: &mut BytesMut, status: u16, reason: &[u8]) -> Result<(), WriteError> {
    if !reason.iter().copied().all(is_value_byte) {
        return Err(WriteError::Reason);
    }
    out.put_slice(b"HTTP/1.1 ");
    write_decimal(out, u64::from(status));
    // The space stays when the phrase is empty (RFC 9112 4).
    out.put_u8(b' ');
    out.put_slice(reason);
    out.put_slice(b"\r\n");
    Ok(())
}

/// Writes one field line.
pub(super) fn write_field(out: &mut BytesMut, name: &str, value: &[u8]) -> Result<(), WriteError> {
    if !is_token(name.as_bytes()) {
        return Err(WriteError::Name);
    }
    if !value.iter().copied().all(is_value_byte) {
        return Err(WriteError::Value);
    }
    write_name(out, name);
    out.put_slice(b": ");
    out.put_slice(value);
    out.put_slice(b"\r\n");
    Ok(())
}

/// Writes a field name. One that has no capital letter lost its spelling in an HTTP library and is
/// written in `Title-Case`, which old clients that compare case-sensitively expect.
fn write_name(out: &mut BytesMut, name: &str) {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        out.put_slice(name.as_bytes());
        return;
    }
    let mut at_start = true;
    for byte in name.bytes() {
        out.put_u8(if at_start { byte.to_ascii_uppercase() } else { byte });
        at_start = byte == b'-';
    }
}

/// Writes `number` in decimal digits.
pub(super) fn write_decimal(out: &mut BytesMut, number: u64) {
    out.put_slice(number.to_string().as_bytes());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::encode::Recipient;
    use super::*;

    fn encoder(length: Option<u64>) -> BodyEncoder {
        let client = Recipient { version: Version::Http11, method: "GET", persistent: true };
        BodyEncoder::new(&client, 200, length)
    }

    fn final_head(reason: &[u8], fields: &[(&str, &[u8])]) -> Result<Vec<u8>, WriteError> {
        let mut out = BytesMut::from(&b"before|"[..]);
        let result = write_final_head(&mut out, 200, reason, fields.iter().copied(), &encoder(Some(2)));
        if result.is_err() {
            assert_eq!(out, &b"before|"[..], "a failed head must leave nothing");
        }
        result.map(|()| out.to_vec())
    }

    #[test]
    fn a_final_head() {
        let head = final_head(
            b"Fine",
            &[
                ("set-cookie", b"a=1"),
                ("X-MiXeD", b"\xe2\x9d\xa4"),
                ("set-cookie", b"b=2"),
                ("content-length", b"99"),
                ("Transfer-Encoding", b"chunked"),
                ("connection", b"close"),
                ("x-1a-b", b""),
            ],
        );
        let expected = b"before|HTTP/1.1 200 Fine\r\nSet-Cookie: a=1\r\nX-MiXeD: \xe2\x9d\xa4\r\n\
            Set-Cookie: b=2\r\nX-1a-B: \r\nContent-Length: 2\r\n\r\n";
        assert_eq!(head.unwrap(), expected);
    }

    #[test]
    fn an_empty_reason_keeps_its_space() {
        assert!(final_head(b"", &[]).unwrap().starts_with(b"before|HTTP/1.1 200 \r\n"));
    }

    #[test]
    fn nothing_ends_a_line_early() {
        for bad in [&b"a\r\nb"[..], b"a\rb", b"a\nb", b"a\x00b", b"\x1b[2J", b"\x7f"] {
            assert_eq!(final_head(bad, &[]), Err(WriteError::Reason), "{bad:?}");
            let fields = [("X-A", &b"fine"[..]), ("X-B", bad)];
            assert_eq!(final_head(b"OK", &fields), Err(WriteError::Value), "{bad:?}");
        }
        for name in ["", "a b", "a:", "a\r\nb", "\u{e9}", "a\n"] {
            assert_eq!(final_head(b"OK", &[(name, b"x")]), Err(WriteError::Name), "{name:?}");
        }
    }

    #[test]
    fn interim_heads_are_for_http11() {
        let fields = [("link", &b"</a>"[..])];
        let mut out = BytesMut::new();
        write_interim_head(&mut out, 103, b"Early Hints", fields, Version::Http10).unwrap();
        assert_eq!(out, &b""[..]);
        write_interim_head(&mut out, 103, b"Early Hints", fields, Version::Http11).unwrap();
        assert_eq!(out, &b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"[..]);
    }

    #[test]
    fn interim_and_final_are_not_confused() {
        let mut out = BytesMut::new();
        for status in [0, 99, 200, 1000] {
            let result = write_interim_head(&mut out, status, b"", [], Version::Http11);
            assert_eq!(result, Err(WriteError::Status(status)));
        }
        for status in [0, 100, 101, 199, 1000, u16::MAX] {
            let result = write_final_head(&mut out, status, b"", [], &encoder(None));
            assert_eq!(result, Err(WriteError::Status(status)));
        }
        assert!(out.is_empty());
    }
}
