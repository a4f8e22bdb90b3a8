//! Where the body of a request ends (RFC 9112 section 6), decided in this one place.
//!
//! Nothing ambiguous is resolved by picking a reading: whatever two parsers could frame
//! differently is refused, and the caller closes the connection.

use super::request::{RequestHead, Version};
use super::syntax::{decimal, is_token};

/// How the body of a request is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// No framing field: there is no body.
    None,
    /// `Content-Length`, in octets.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// Why the framing of a request was refused. The text is fixed and safe to show to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// Both framing fields.
    #[error("Content-Length and Transfer-Encoding must not occur together")]
    LengthAndEncoding,
    /// More than one `Content-Length` line, equal or not.
    #[error("Content-Length must not occur more than once")]
    SeveralLengths,
    /// A value that is not decimal digits within 64 bits.
    #[error("Content-Length must be one decimal number")]
    Length,
    /// Several `Transfer-Encoding` lines, a list, or a value that is not a token.
    #[error("Transfer-Encoding must be `chunked` alone")]
    Encoding,
    /// A single coding other than `chunked`.
    #[error("the transfer coding is not supported; send `chunked` alone")]
    UnknownCoding,
    /// HTTP/1.0 has no transfer codings.
    #[error("Transfer-Encoding must not be used in HTTP/1.0")]
    EncodingInHttp10,
    /// `CONNECT` with anything but `Content-Length: 0`.
    #[error("CONNECT must not have a body; send tunnel data after the answer")]
    ConnectBody,
}

impl FramingError {
    /// The status code of the answer: 501 for an unknown coding, otherwise 400.
    pub fn status(self) -> u16 {
        match self {
            Self::UnknownCoding => 501,
            Self::LengthAndEncoding
            | Self::SeveralLengths
            | Self::Length
            | Self::Encoding
            | Self::EncodingInHttp10
            | Self::ConnectBody => 400,
        }
    }
}

/// How the body of `head` is delimited.
///
/// `CONNECT` never has one: `Content-Length: 0`, which some clients send, counts as none.
pub fn body_length(head: &RequestHead) -> Result<BodyLength, FramingError> {
    let length = match (head.has("Transfer-Encoding"), head.has("Content-Length")) {
        (true, true) => return Err(FramingError::LengthAndEncoding),
        (true, false) => transfer_coding(head)?,
        (false, true) => content_length(head)?,
        (false, false) => BodyLength::None,
    };
    match (head.method(), length) {
        ("CONNECT", BodyLength::None | BodyLength::Length(0)) => Ok(BodyLength::None),
        ("CONNECT", _) => Err(FramingError::ConnectBody),
        (_, length) => Ok(length),
    }
}

fn transfer_coding(head: &RequestHead) -> Result<BodyLength, FramingError> {
    if head.version() == Version::Http10 {
        return Err(FramingError::EncodingInHttp10);
    }
    match head.single("Transfer-Encoding") {
        Some(value) if value.eq_ignore_ascii_case(b"chunked") => Ok(BodyLength::Chunked),
        Some(value) if is_token(value) => Err(FramingError::UnknownCoding),
        _ => Err(FramingError::Encoding),
    }
}

fn content_length(head: &RequestHead) -> Result<BodyLength, FramingError> {
    let value = head.single("Content-Length").ok_or(FramingError::SeveralLengths)?;
    decimal(value).map(BodyLength::Length).ok_or(FramingError::Length)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::testing::head;
    use super::*;

    fn framing(request: &str) -> Result<BodyLength, FramingError> {
        let (line, fields) = request.split_once('|').unwrap();
        body_length(&head(line, fields))
    }

    #[test]
    fn accepted_framing() {
        for (request, length) in [
            ("GET http://a/ HTTP/1.1|", BodyLength::None),
            ("GET http://a/ HTTP/1.0|", BodyLength::None),
            ("GET http://a/ HTTP/1.1|Content-Length: 0", BodyLength::Length(0)),
            ("POST http://a/ HTTP/1.0|content-length:\t5 ", BodyLength::Length(5)),
            ("POST http://a/ HTTP/1.1|Content-Length: 05", BodyLength::Length(5)),
            ("POST http://a/ HTTP/1.1|Content-Length: 18446744073709551615", BodyLength::Length(u64::MAX)),
            ("POST http://a/ HTTP/1.1|tRANSFER-eNCODING: ChUnKeD\t", BodyLength::Chunked),
            ("CONNECT a:443 HTTP/1.1|", BodyLength::None),
            ("CONNECT a:443 HTTP/1.1|Content-Length: 0", BodyLength::None),
        ] {
            assert_eq!(framing(request), Ok(length), "{request}");
        }
    }

    #[test]
    fn bad_lengths() {
        for value in [
            "",
            "+5",
            "-1",
            "0x5",
            "5 5",
            "5,5",
            "0, 45",
            "5;",
            "1_0",
            "5.0",
            "1e1",
            "18446744073709551616",
            "\"5\"",
            "five",
        ] {
            let request = format!("POST http://a/ HTTP/1.1|Content-Length: {value}");
            assert_eq!(framing(&request), Err(FramingError::Length), "{value:?}");
        }
        for second in ["5", "44", ""] {
            let request = format!("POST http://a/ HTTP/1.1|Content-Length: 5\r\ncontent-length: {second}");
            assert_eq!(framing(&request), Err(FramingError::SeveralLengths), "{second:?}");
        }
    }

    #[test]
    fn bad_codings() {
        for value in [
            "",
            "chunked,",
            ",chunked",
            "chunked, gzip",
            "gzip, chunked",
            "chunked, chunked",
            "\"chunked\"",
            "chunked;q=1",
            "identity, chunked",
            "chunked chunked",
            "chunked\u{a0}",
        ] {
            let request = format!("POST http://a/ HTTP/1.1|Transfer-Encoding: {value}");
            assert_eq!(framing(&request), Err(FramingError::Encoding), "{value:?}");
            let request = format!("{request}\r\nContent-Length: 5");
            assert_eq!(framing(&request), Err(FramingError::LengthAndEncoding), "{value:?}");
        }
        for value in ["gzip", "xchunked", "identity", "chunked1"] {
            let error = framing(&format!("POST http://a/ HTTP/1.1|Transfer-Encoding: {value}")).unwrap_err();
            assert_eq!((error, error.status()), (FramingError::UnknownCoding, 501), "{value:?}");
        }
        for (request, error) in [
            (
                "POST http://a/ HTTP/1.1|Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
                FramingError::Encoding,
            ),
            (
                "POST http://a/ HTTP/1.1|Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
                FramingError::Encoding,
            ),
            ("POST http://a/ HTTP/1.0|Transfer-Encoding: chunked", FramingError::EncodingInHttp10),
            (
                "POST http://a/ HTTP/1.1|Content-Length: 0\r\nTransfer-Encoding: chunked",
                FramingError::LengthAndEncoding,
            ),
        ] {
            assert_eq!(framing(request), Err(error), "{request}");
            assert_eq!(error.status(), 400);
        }
    }

    #[test]
    fn connect_has_no_body() {
        for field in ["Content-Length: 1", "Transfer-Encoding: chunked"] {
            let request = format!("CONNECT a:443 HTTP/1.1|{field}");
            assert_eq!(framing(&request), Err(FramingError::ConnectBody), "{field}");
        }
    }
}
