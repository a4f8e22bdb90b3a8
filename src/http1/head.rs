//! Finds the head of a request in a growing buffer.
//!
//! [`HeadReader`] looks at every octet once and refuses at the first one that no accepted head can
//! have there, so a peer that speaks another protocol is told so at once instead of running into a
//! time-out. It never reads, waits or allocates for what it has not accepted yet.

use bytes::BytesMut;

use super::fields::{FieldError, FieldLimits, FieldScan};
use super::foreign::Foreign;
use super::request::RequestHead;
use super::syntax::{is_target_byte, is_token_byte};

/// The longest request line in octets, without its CRLF; inclusive.
pub const MAX_REQUEST_LINE: usize = 16 * 1024;
/// The longest method in octets; inclusive. Twice what any registered method needs and more.
pub const MAX_METHOD: usize = 64;
/// The most octets that all field lines of a head may have, with their CRLFs; inclusive.
pub const MAX_FIELDS_BYTES: usize = 64 * 1024;
/// The most field lines of a head; inclusive.
pub const MAX_FIELDS: usize = 256;

/// Why a request head was refused. The text is fixed: it never repeats what the client sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// Not HTTP/1 at all.
    #[error(transparent)]
    Foreign(#[from] Foreign),
    /// More than the one empty line that RFC 9112 2.2 asks servers to skip.
    #[error(
        "the request starts with several empty lines, as a PROXY protocol v2 header does; neither is accepted here"
    )]
    EmptyLines,
    /// CR not followed by LF, or LF not preceded by CR, in or before the request line.
    #[error("the request line does not end in CRLF")]
    LineEnding,
    /// The method is empty or has an octet that no token has.
    #[error("the method is not a token followed by one space")]
    Method,
    /// The method is longer than [`MAX_METHOD`].
    #[error("the method is longer than {MAX_METHOD} bytes")]
    MethodTooLong,
    /// The target is empty, or has a control octet or an octet outside ASCII.
    #[error("the request target is empty or contains bytes that are not visible ASCII")]
    Target,
    /// What follows the target is not exactly one space, a version and CRLF.
    #[error("the request line is not `METHOD TARGET HTTP/1.1` with single spaces")]
    RequestLine,
    /// A version of HTTP other than 1.0 and 1.1.
    #[error("the HTTP version is not supported; use HTTP/1.1")]
    Version,
    /// The request line is longer than [`MAX_REQUEST_LINE`].
    #[error("the request line is longer than {MAX_REQUEST_LINE} bytes")]
    RequestLineTooLong,
    /// A fault in the fields.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The scan accepted the head and the splitting parser did not.
    #[error("the request head is malformed")]
    Malformed,
}

impl HeadError {
    /// The status code of the answer: 400, 414, 431 or 501.
    ///
    /// An unknown version is a 400, not a 505: the peer does not speak HTTP/1, and 505 is an
    /// answer within it.
    pub fn status(self) -> u16 {
        match self {
            Self::RequestLineTooLong => 414,
            Self::MethodTooLong => 501,
            Self::Field(error) => error.status(),
            Self::Foreign(_)
            | Self::EmptyLines
            | Self::LineEnding
            | Self::Method
            | Self::Target
            | Self::RequestLine
            | Self::Version
            | Self::Malformed => 400,
        }
    }
}

/// `HTTP/1.` of the version; the digit after it is judged by itself.
const VERSION_PREFIX: &[u8; 7] = b"HTTP/1.";
/// How much of [`VERSION_PREFIX`] names the protocol; what differs after it is another version.
const PROTOCOL_PREFIX: usize = 5;

#[derive(Debug)]
enum State {
    RequestLine(Place),
    Fields(FieldScan),
    Refused(HeadError),
}

/// Where in or before the request line the scan is.
#[derive(Debug, Clone, Copy)]
enum Place {
    Start,
    /// After the CR of an empty line before the request.
    EmptyLine,
    /// After that whole line.
    AfterEmptyLine,
    Method,
    Target,
    /// Inside the version, after this many of its octets.
    Version(usize),
    /// After the minor version.
    AfterVersion,
    /// After the CR that ends the request line.
    LineEnd,
}

/// Reads request heads, one after the other, from the front of a buffer.
///
/// Give it the same buffer each time, with more octets at its end. A fault is final: the octets
/// after it are never looked at, because nobody can say where the next message would start.
#[derive(Debug)]
pub struct HeadReader {
    state: State,
    scanned: usize,
    /// Octets of the request line so far.
    line: usize,
    /// Octets of the target so far; before that, of the method.
    part: usize,
}

impl Default for HeadReader {
    fn default() -> Self {
        Self::new()
    }
}

impl HeadReader {
    /// A reader that expects the first octet of a request.
    pub fn new() -> Self {
        Self { state: State::RequestLine(Place::Start), scanned: 0, line: 0, part: 0 }
    }

    /// Takes a complete head off the front of `buffer`; `None` when the head goes on.
    ///
    /// After `Some` the reader is ready for the next request, whose octets may already follow.
    pub fn read(&mut self, buffer: &mut BytesMut) -> Result<Option<RequestHead>, HeadError> {
        let Some(length) = self.scan(buffer)? else {
            return Ok(None);
        };
        *self = Self::new();
        let head = RequestHead::split(buffer.split_to(length).freeze());
        if let Err(error) = head {
            self.state = State::Refused(error);
        }
        head.map(Some)
    }

    /// Looks at the octets of `buffer` that it has not seen yet; the length of the head once it is whole.
    fn scan(&mut self, buffer: &[u8]) -> Result<Option<usize>, HeadError> {
        while let Some(byte) = buffer.get(self.scanned) {
            match self.step(*byte) {
                Ok(complete) => {
                    self.scanned += 1;
                    if complete {
                        return Ok(Some(self.scanned));
                    }
                }
                Err(error) => {
                    let error = match error {
                        HeadError::Field(_) => error,
                        _ => Foreign::recognise(buffer, self.scanned).map_or(error, HeadError::from),
                    };
                    self.state = State::Refused(error);
                    return Err(error);
                }
            }
        }
        match self.state {
            State::Refused(error) => Err(error),
            _ => Ok(None),
        }
    }

    /// Takes the next octet; `true` when it was the last one of the head.
    fn step(&mut self, byte: u8) -> Result<bool, HeadError> {
        match &mut self.state {
            State::RequestLine(place) => {
                let place = *place;
                self.state = self.request_line(place, byte)?;
                Ok(false)
            }
            State::Fields(fields) => Ok(fields.step(byte)?),
            State::Refused(error) => Err(*error),
        }
    }

    fn request_line(&mut self, place: Place, byte: u8) -> Result<State, HeadError> {
        let place = match (place, byte) {
            (Place::Start, b'\r') => Place::EmptyLine,
            (Place::EmptyLine, b'\n') => Place::AfterEmptyLine,
            (Place::AfterEmptyLine, b'\r') => return Err(HeadError::EmptyLines),
            (Place::Start | Place::AfterEmptyLine | Place::Method, _) => self.method(byte)?,
            (Place::Target, _) => self.target(byte)?,
            (Place::Version(at), _) => version(at, byte)?,
            (Place::AfterVersion, b'\r') => Place::LineEnd,
            (Place::LineEnd, b'\n') => {
                return Ok(State::Fields(FieldScan::new(FieldLimits {
                    bytes: MAX_FIELDS_BYTES,
                    count: MAX_FIELDS,
                })));
            }
            (Place::EmptyLine | Place::LineEnd, _) | (Place::AfterVersion, b'\n') => {
                return Err(HeadError::LineEnding);
            }
            (Place::AfterVersion, _) => return Err(HeadError::RequestLine),
        };
        self.count(place)?;
        Ok(State::RequestLine(place))
    }

    fn method(&mut self, byte: u8) -> Result<Place, HeadError> {
        match byte {
            b' ' if self.part > 0 => {
                self.part = 0;
                Ok(Place::Target)
            }
            _ if is_token_byte(byte) && self.part == MAX_METHOD => Err(HeadError::MethodTooLong),
            _ if is_token_byte(byte) => {
                self.part += 1;
                Ok(Place::Method)
            }
            b'\n' => Err(HeadError::LineEnding),
            // A lone word on a line, `GET` and the line's end.
            b'\r' => Err(HeadError::RequestLine),
            _ => Err(HeadError::Method),
        }
    }

    fn target(&mut self, byte: u8) -> Result<Place, HeadError> {
        match byte {
            _ if is_target_byte(byte) => {
                self.part += 1;
                Ok(Place::Target)
            }
            b' ' if self.part > 0 => Ok(Place::Version(0)),
            b'\n' => Err(HeadError::LineEnding),
            b'\r' => Err(HeadError::RequestLine),
            _ => Err(HeadError::Target),
        }
    }

    /// Counts the octets from the first one of the method to the last one of the version.
    fn count(&mut self, place: Place) -> Result<(), HeadError> {
        if matches!(place, Place::Method | Place::Target | Place::Version(_) | Place::AfterVersion) {
            if self.line == MAX_REQUEST_LINE {
                return Err(HeadError::RequestLineTooLong);
            }
            self.line += 1;
        }
        Ok(())
    }
}

fn version(at: usize, byte: u8) -> Result<Place, HeadError> {
    match VERSION_PREFIX.get(at) {
        Some(expected) if *expected == byte => Ok(Place::Version(at + 1)),
        None if matches!(byte, b'0' | b'1') => Ok(Place::AfterVersion),
        _ if at >= PROTOCOL_PREFIX && (byte.is_ascii_digit() || byte == b'.') => Err(HeadError::Version),
        _ if byte == b'\n' => Err(HeadError::LineEnding),
        _ => Err(HeadError::RequestLine),
    }
}

#[cfg(test)]
mod tests;
