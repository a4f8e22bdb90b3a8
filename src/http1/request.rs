//! The head of one request, split but not interpreted.
//!
//! [`RequestHead`] keeps the octets as they came, once, and hands out parts of them. What they mean
//! is for [`framing`](super::framing), [`host`](super::host), [`connection`](super::connection) and
//! the target's parser to say; nothing here changes or drops anything.

use std::fmt;
use std::mem::MaybeUninit;

use bytes::Bytes;

use super::fields::Span;
use super::head::{HeadError, MAX_FIELDS};
use super::syntax::trim_ows;

/// The protocol version of a request; the head reader refuses every other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

/// A request head that the [`HeadReader`](super::HeadReader) accepted.
///
/// `Debug` shows neither the target nor any field value: both can carry secrets.
#[derive(Clone)]
pub struct RequestHead {
    bytes: Bytes,
    method: Span,
    target: Span,
    version: Version,
    fields: Vec<FieldSpan>,
}

#[derive(Clone, Copy)]
struct FieldSpan {
    name: Span,
    value: Span,
}

impl RequestHead {
    /// Splits the octets of one whole head.
    ///
    /// `bytes` has passed the scan. That a second parser must read the same head and the same
    /// length in it costs little, and catches a mistake in either.
    pub(super) fn split(bytes: Bytes) -> Result<Self, HeadError> {
        let mut storage = [const { MaybeUninit::uninit() }; MAX_FIELDS];
        let mut parsed = httparse::Request::new(&mut []);
        match parsed.parse_with_uninit_headers(&bytes, &mut storage) {
            Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
            _ => return Err(HeadError::Malformed),
        }
        let span = |part: Option<&str>| {
            part.and_then(|part| Span::of(part.as_bytes(), &bytes)).ok_or(HeadError::Malformed)
        };
        let method = span(parsed.method)?;
        let target = span(parsed.path)?;
        let version = match parsed.version {
            Some(0) => Version::Http10,
            Some(1) => Version::Http11,
            _ => return Err(HeadError::Malformed),
        };
        let fields = parsed
            .headers
            .iter()
            .map(|field| {
                Some(FieldSpan {
                    name: Span::of(field.name.as_bytes(), &bytes)?,
                    // An empty value may be a literal of the parser's own, outside the buffer.
                    value: match trim_ows(field.value) {
                        [] => Span::default(),
                        value => Span::of(value, &bytes)?,
                    },
                })
            })
            .collect::<Option<Vec<_>>>()
            .ok_or(HeadError::Malformed)?;
        Ok(Self { bytes, method, target, version, fields })
    }

    /// The method, in the spelling of the client: methods are case-sensitive (RFC 9110 9.1).
    pub fn method(&self) -> &str {
        text(self.part(self.method))
    }

    /// The request target: visible ASCII, not empty, otherwise unchecked.
    pub fn target(&self) -> &[u8] {
        self.part(self.target)
    }

    /// The protocol version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// All fields in the order and spelling of the client, values without the white space around them.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter().map(|field| (text(self.part(field.name)), self.part(field.value)))
    }

    /// The values of all lines of the field `name` (any case), in order, uncombined.
    pub fn values<'h>(&'h self, name: &str) -> impl Iterator<Item = &'h [u8]> {
        self.fields().filter(move |(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Whether there is a line of the field `name` (any case).
    pub fn has(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }

    /// The value of the field `name` when it has exactly one line.
    pub fn single(&self, name: &str) -> Option<&[u8]> {
        let mut values = self.values(name);
        let first = values.next()?;
        values.next().is_none().then_some(first)
    }

    fn part(&self, span: Span) -> &[u8] {
        self.bytes.get(span.range()).unwrap_or_default()
    }
}

impl fmt::Debug for RequestHead {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RequestHead")
            .field("method", &self.method())
            .field("version", &self.version)
            .field("fields", &self.fields.len())
            .finish_non_exhaustive()
    }
}

/// Tokens and targets are ASCII by the scan, so the default is never taken.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::testing::head;
    use super::*;

    #[test]
    fn parts_come_as_they_were_sent() {
        let head = head(
            "pOsT http://a/\"x\"?{y} HTTP/1.0",
            "HOST:a\r\nX-MiXeD:\t b c \t\r\nx-mixed: \u{e9}\r\nEmpty:\r\nBlank: \t ",
        );
        assert_eq!(head.method(), "pOsT");
        assert_eq!(head.target(), b"http://a/\"x\"?{y}");
        assert_eq!(head.version(), Version::Http10);
        let fields: Vec<_> = head.fields().collect();
        let expected: [(&str, &[u8]); 5] =
            [("HOST", b"a"), ("X-MiXeD", b"b c"), ("x-mixed", b"\xe9"), ("Empty", b""), ("Blank", b"")];
        assert_eq!(fields, expected);
    }

    #[test]
    fn look_ups_ignore_case() {
        let head = head("GET / HTTP/1.1", "A: 1\r\nB: 2\r\na: 3");
        assert_eq!(head.values("a").collect::<Vec<_>>(), [b"1", b"3"]);
        assert!(head.has("b") && !head.has("c"));
        assert_eq!(head.single("B"), Some(&b"2"[..]));
        assert_eq!(head.single("A"), None);
        assert_eq!(head.single("C"), None);
    }

    #[test]
    fn debug_shows_no_secret() {
        let head = head("GET http://a/?token=s3cret HTTP/1.1", "Authorization: s3cret");
        assert!(!format!("{head:?}").contains("s3cret"));
    }
}
