//! Frames the body of a response for the client (RFC 9112 sections 6 and 7).
//!
//! [`BodyEncoder`] decides from the request, the status and the known length how the client will
//! find the end of the body. A body that ends too early is never made to look complete.

use std::io::{Cursor, Write};

use bytes::buf::{Chain, Take};
use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::connection::Connection;
use super::request::{RequestHead, Version};
use super::write::{WriteError, whole_or_nothing, write_decimal, write_field};

/// What matters about a request for the framing of its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipient<'a> {
    /// The protocol version of the request.
    pub version: Version,
    /// The method of the request.
    pub method: &'a str,
    /// Whether the connection may be used for another request.
    pub persistent: bool,
}

impl<'a> Recipient<'a> {
    /// The recipient of the answer to `head`, whose connection options are `connection`.
    pub fn of(head: &'a RequestHead, connection: &Connection) -> Self {
        Self {
            version: head.version(),
            method: head.method(),
            persistent: connection.persistent(head.version()),
        }
    }

    /// Somebody whose request could not be read: they get an answer and the connection ends.
    pub fn unknown() -> Self {
        Self { version: Version::Http11, method: "", persistent: false }
    }
}

/// One piece of an encoded body, to be written as it is; the data in it is not copied.
pub type Frame = Chain<Chain<Take<Cursor<SizeLine>>, Bytes>, &'static [u8]>;

/// The longest chunk size and its CRLF, in octets.
const SIZE_LINE: usize = 18;
type SizeLine = [u8; SIZE_LINE];

/// Why a piece of a response body could not be encoded. The connection must be ended as
/// [`BodyEncoder::on_abort`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// More data than `Content-Length` announced.
    #[error("the response body is longer than its Content-Length")]
    TooLong,
    /// Less data than `Content-Length` announced.
    #[error("the response body is shorter than its Content-Length")]
    TooShort,
    /// Data after the end.
    #[error("the response body went on after its end")]
    Ended,
    /// A trailer that cannot be written.
    #[error("in the trailers: {0}")]
    Trailer(#[from] WriteError),
}

/// How to end the connection to the client when a response cannot be completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abort {
    /// Close it: the client sees that data or the last chunk is missing.
    Close,
    /// Reset it: the end of the connection is the end of the body, so closing would look like success.
    Reset,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// 2xx to CONNECT: what follows is a tunnel.
    Tunnel,
    /// No body; the length that a body would have had, if that may be said.
    Bodiless(Option<u64>),
    /// Octets still to come, and those that were announced.
    Length {
        left: u64,
        announced: u64,
    },
    Chunked,
    UntilClose,
}

/// Encodes one response body.
#[derive(Debug)]
pub struct BodyEncoder {
    framing: Framing,
    version: Version,
    persistent: bool,
    ended: bool,
}

impl BodyEncoder {
    /// An encoder for the final response `status`.
    ///
    /// `length` is the length of the body in octets, if known. For a response to `HEAD` and for a
    /// 304, which have none, it is the `Content-Length` to pass on.
    pub fn new(client: &Recipient<'_>, status: u16, length: Option<u64>) -> Self {
        let framing = match (client.method, status, length) {
            ("CONNECT", 200..=299, _) => Framing::Tunnel,
            (_, 100..=199 | 204, _) => Framing::Bodiless(None),
            ("HEAD", ..) | (_, 304, _) => Framing::Bodiless(length),
            (_, _, Some(length)) => Framing::Length { left: length, announced: length },
            (_, _, None) if client.version == Version::Http10 => Framing::UntilClose,
            (_, _, None) => Framing::Chunked,
        };
        Self {
            framing,
            version: client.version,
            persistent: client.persistent && framing != Framing::UntilClose,
            ended: false,
        }
    }

    /// Whether the client may send another request on this connection after the response.
    pub fn persistent(&self) -> bool {
        self.persistent
    }

    /// Makes this response the last one on its connection. Only useful before the head is written.
    pub fn close_afterwards(&mut self) {
        self.persistent = false;
    }

    /// How to end the connection when the response cannot be completed.
    pub fn on_abort(&self) -> Abort {
        match self.framing {
            Framing::UntilClose => Abort::Reset,
            _ => Abort::Close,
        }
    }

    /// The fields by which the client finds the end of the body and of the connection.
    pub(super) fn write_fields(&self, out: &mut BytesMut) {
        match self.framing {
            Framing::Tunnel => return,
            Framing::Bodiless(None) | Framing::UntilClose => {}
            Framing::Bodiless(Some(length)) | Framing::Length { announced: length, .. } => {
                out.put_slice(b"Content-Length: ");
                write_decimal(out, length);
                out.put_slice(b"\r\n");
            }
            Framing::Chunked => out.put_slice(b"Transfer-Encoding: chunked\r\n"),
        }
        match (self.persistent, self.version) {
            (false, _) => out.put_slice(b"Connection: close\r\n"),
            (true, Version::Http10) => out.put_slice(b"Connection: keep-alive\r\n"),
            (true, Version::Http11) => {}
        }
    }

    /// Encodes data. The frame is empty when the data is, and for a response without a body, so
    /// that an answer to `HEAD` can be made like one to `GET`.
    pub fn encode(&mut self, data: Bytes) -> Result<Frame, EncodeError> {
        if self.ended {
            return Err(EncodeError::Ended);
        }
        // Data is in memory, so its length fits 64 bits.
        let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
        match &mut self.framing {
            Framing::Tunnel | Framing::Bodiless(_) => Ok(frame(None, Bytes::new())),
            Framing::Length { left, .. } => {
                *left = left.checked_sub(length).ok_or(EncodeError::TooLong)?;
                Ok(frame(None, data))
            }
            // A chunk of no data would end the body.
            Framing::Chunked if length > 0 => Ok(frame(Some(length), data)),
            Framing::Chunked | Framing::UntilClose => Ok(frame(None, data)),
        }
    }

    /// Writes what follows the last data of a body that its origin completed: the last chunk, with
    /// `trailers` (which other framings cannot carry).
    ///
    /// Never call it for a body that was cut off.
    pub fn finish<'a>(
        &mut self,
        out: &mut BytesMut,
        trailers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<(), EncodeError> {
        if self.ended {
            return Err(EncodeError::Ended);
        }
        match self.framing {
            Framing::Length { left: 1.., .. } => return Err(EncodeError::TooShort),
            Framing::Chunked => whole_or_nothing(out, |out| {
                out.put_slice(b"0\r\n");
                for (name, value) in trailers {
                    write_field(out, name, value)?;
                }
                out.put_slice(b"\r\n");
                Ok(())
            })?,
            _ => {}
        }
        self.ended = true;
        Ok(())
    }
}

fn frame(chunk_size: Option<u64>, data: Bytes) -> Frame {
    let mut line = SizeLine::default();
    let mut free = line.as_mut_slice();
    let suffix: &[u8] = match chunk_size {
        Some(size) => {
            // Cannot fail: sixteen digits and CRLF fit. A shorter line would be a broken chunk,
            // which the client notices.
            let _ = write!(free, "{size:x}\r\n");
            b"\r\n"
        }
        None => b"",
    };
    let used = SIZE_LINE - free.len();
    Cursor::new(line).take(used).chain(data).chain(suffix)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn encoder(version: Version, method: &str, status: u16, length: Option<u64>) -> BodyEncoder {
        let client = Recipient { version, method, persistent: true };
        BodyEncoder::new(&client, status, length)
    }

    fn fields(encoder: &BodyEncoder) -> String {
        let mut out = BytesMut::new();
        encoder.write_fields(&mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    fn encode(encoder: &mut BodyEncoder, data: &'static [u8]) -> Result<Vec<u8>, EncodeError> {
        let mut frame = encoder.encode(Bytes::from_static(data))?;
        Ok(frame.copy_to_bytes(frame.remaining()).to_vec())
    }

    fn finish(encoder: &mut BodyEncoder, trailers: &[(&str, &[u8])]) -> Result<Vec<u8>, EncodeError> {
        let mut out = BytesMut::new();
        let result = encoder.finish(&mut out, trailers.iter().copied());
        assert!(result.is_ok() || out.is_empty());
        result.map(|()| out.to_vec())
    }

    #[test]
    fn framing_follows_request_and_status() {
        use Version::{Http10, Http11};
        for (version, method, status, length, expected) in [
            (Http11, "GET", 200, Some(2), "Content-Length: 2\r\n"),
            (Http11, "GET", 200, Some(0), "Content-Length: 0\r\n"),
            (Http11, "GET", 200, None, "Transfer-Encoding: chunked\r\n"),
            (Http10, "GET", 200, Some(2), "Content-Length: 2\r\nConnection: keep-alive\r\n"),
            (Http10, "GET", 200, None, "Connection: close\r\n"),
            (Http11, "HEAD", 200, Some(1192), "Content-Length: 1192\r\n"),
            (Http11, "HEAD", 200, None, ""),
            (Http10, "HEAD", 200, None, "Connection: keep-alive\r\n"),
            (Http11, "GET", 304, Some(5), "Content-Length: 5\r\n"),
            (Http11, "GET", 304, None, ""),
            (Http11, "GET", 204, Some(5), ""),
            (Http11, "GET", 204, None, ""),
            (Http11, "CONNECT", 200, Some(5), ""),
            (Http10, "CONNECT", 200, None, ""),
            (Http11, "CONNECT", 403, Some(5), "Content-Length: 5\r\n"),
        ] {
            let encoder = encoder(version, method, status, length);
            assert_eq!(fields(&encoder), expected, "{version:?} {method} {status} {length:?}");
        }
    }

    #[test]
    fn the_last_response_says_so() {
        let last = BodyEncoder::new(&Recipient::unknown(), 400, Some(1));
        assert_eq!(fields(&last), "Content-Length: 1\r\nConnection: close\r\n");
        assert!(!last.persistent());
        let mut other = encoder(Version::Http11, "GET", 200, None);
        other.close_afterwards();
        assert_eq!(fields(&other), "Transfer-Encoding: chunked\r\nConnection: close\r\n");
    }

    #[test]
    fn chunks_and_trailers() {
        let mut encoder = encoder(Version::Http11, "GET", 200, None);
        assert_eq!(encode(&mut encoder, b"hello, seventeen!").unwrap(), b"11\r\nhello, seventeen!\r\n");
        assert_eq!(encode(&mut encoder, b"").unwrap(), b"");
        assert_eq!(encode(&mut encoder, b"x").unwrap(), b"1\r\nx\r\n");
        let end = finish(&mut encoder, &[("x-sum", b"abc"), ("X-b", b"")]).unwrap();
        assert_eq!(end, b"0\r\nX-Sum: abc\r\nX-b: \r\n\r\n");
        assert_eq!(encode(&mut encoder, b"x"), Err(EncodeError::Ended));
        assert_eq!(finish(&mut encoder, &[]), Err(EncodeError::Ended));
    }

    #[test]
    fn a_bad_trailer_leaves_the_body_unfinished() {
        let mut encoder = encoder(Version::Http11, "GET", 200, None);
        let error = finish(&mut encoder, &[("X-A", b"fine"), ("X-B", b"a\r\n\r\nHTTP/1.1")]);
        assert_eq!(error, Err(EncodeError::Trailer(WriteError::Value)));
    }

    #[test]
    fn lengths_are_kept() {
        let mut short = encoder(Version::Http11, "GET", 200, Some(5));
        assert_eq!(encode(&mut short, b"four").unwrap(), b"four");
        assert_eq!(finish(&mut short, &[]), Err(EncodeError::TooShort));
        assert_eq!(encode(&mut short, b"xx"), Err(EncodeError::TooLong));
        assert_eq!(encode(&mut short, b"x").unwrap(), b"x");
        assert_eq!(finish(&mut short, &[("X-A", b"dropped")]).unwrap(), b"");
    }

    #[test]
    fn responses_without_a_body_drop_it() {
        for (method, status) in [("HEAD", 200), ("GET", 204), ("GET", 304), ("CONNECT", 200)] {
            let mut encoder = encoder(Version::Http11, method, status, Some(3));
            assert_eq!(encode(&mut encoder, b"abc").unwrap(), b"", "{method} {status}");
            assert_eq!(finish(&mut encoder, &[]).unwrap(), b"", "{method} {status}");
        }
    }

    #[test]
    fn a_cut_off_body_shows() {
        for (version, length, abort) in [
            (Version::Http11, None, Abort::Close),
            (Version::Http11, Some(5), Abort::Close),
            (Version::Http10, Some(5), Abort::Close),
            (Version::Http10, None, Abort::Reset),
        ] {
            assert_eq!(encoder(version, "GET", 200, length).on_abort(), abort);
        }
    }

    #[test]
    fn size_lines_fit() {
        for size in [1, 15, 16, 255, 256, 4095, 4096, u64::MAX] {
            let mut prefix = frame(Some(size), Bytes::new());
            let octets = prefix.copy_to_bytes(prefix.remaining());
            assert_eq!(octets, format!("{size:x}\r\n\r\n"));
        }
    }
}
