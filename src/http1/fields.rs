//! Field lines as they stand in a head and in a trailer section (RFC 9112 section 5).
//!
//! [`FieldScan`] judges one octet at a time, so it needs no memory of its own and gives the same
//! answer however the octets were cut into segments. It never repairs: what RFC 9112 lets a
//! recipient tolerate (bare LF, line folding, space before the colon) is refused, because two
//! parsers that repair differently disagree about where a message ends.

use std::ops::Range;

use super::syntax::{is_token_byte, is_value_byte};

/// Why a header or trailer section was refused. The text is fixed and safe to show to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// CR not followed by LF, or LF not preceded by CR.
    #[error("a field line does not end in CRLF")]
    LineEnding,
    /// A line that starts with a space or tab: folding, or white space before the first field.
    #[error("a field line starts with white space; folded field values are not accepted")]
    Folded,
    /// An empty name, an octet that no token has, or white space before the colon.
    #[error("a field name is not a token that is followed at once by a colon")]
    Name,
    /// A control octet other than tab in a value.
    #[error("a field value contains a control character")]
    Value,
    /// The lines of the section are too long together.
    #[error("the fields are longer than {limit} bytes together")]
    TooLarge {
        /// The most that is accepted, in bytes.
        limit: usize,
    },
    /// The section has too many lines.
    #[error("there are more than {limit} fields")]
    TooMany {
        /// The most that are accepted.
        limit: usize,
    },
}

impl FieldError {
    /// The status code that answers a request with this fault: 431 for a limit, otherwise 400.
    pub fn status(self) -> u16 {
        match self {
            Self::TooLarge { .. } | Self::TooMany { .. } => 431,
            Self::LineEnding | Self::Folded | Self::Name | Self::Value => 400,
        }
    }
}

/// How much a section may hold; both bounds are inclusive.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldLimits {
    /// Octets of all field lines with their line ends, without the empty line that closes the section.
    pub bytes: usize,
    /// Field lines.
    pub count: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    LineStart,
    Name,
    Value,
    /// After the CR that ends a field line.
    LineEnd,
    /// After the CR of the empty line.
    SectionEnd,
}

/// A scan of field lines up to and including the empty line that ends them.
#[derive(Debug)]
pub(super) struct FieldScan {
    state: State,
    limits: FieldLimits,
    bytes: usize,
    count: usize,
}

impl FieldScan {
    pub(super) fn new(limits: FieldLimits) -> Self {
        Self { state: State::LineStart, limits, bytes: 0, count: 0 }
    }

    /// Takes the next octet; `true` when it was the last one of the section.
    pub(super) fn step(&mut self, byte: u8) -> Result<bool, FieldError> {
        self.state = match (self.state, byte) {
            (State::LineStart, b'\r') => State::SectionEnd,
            (State::SectionEnd, b'\n') => return Ok(true),
            (State::LineStart, _) => {
                self.start_line(byte)?;
                State::Name
            }
            (State::Name, b':') => State::Value,
            (State::Name, _) if is_token_byte(byte) => State::Name,
            (State::Value, b'\r') => State::LineEnd,
            (State::Value, _) if is_value_byte(byte) => State::Value,
            (State::LineEnd, b'\n') => State::LineStart,
            (State::Name | State::Value, b'\r' | b'\n') | (State::LineEnd | State::SectionEnd, _) => {
                return Err(FieldError::LineEnding);
            }
            (State::Name, _) => return Err(FieldError::Name),
            (State::Value, _) => return Err(FieldError::Value),
        };
        if self.state != State::SectionEnd {
            self.count_byte()?;
        }
        Ok(false)
    }

    fn start_line(&mut self, byte: u8) -> Result<(), FieldError> {
        match byte {
            b'\n' => return Err(FieldError::LineEnding),
            b' ' | b'\t' => return Err(FieldError::Folded),
            _ if !is_token_byte(byte) => return Err(FieldError::Name),
            _ => {}
        }
        if self.count == self.limits.count {
            return Err(FieldError::TooMany { limit: self.limits.count });
        }
        self.count += 1;
        Ok(())
    }

    fn count_byte(&mut self) -> Result<(), FieldError> {
        if self.bytes == self.limits.bytes {
            return Err(FieldError::TooLarge { limit: self.limits.bytes });
        }
        self.bytes += 1;
        Ok(())
    }
}

/// A part of a buffer that holds at most 4 GiB; eight bytes instead of sixteen, 512 of them a head.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// Where `part` lies inside `whole`; `None` when it does not.
    pub(super) fn of(part: &[u8], whole: &[u8]) -> Option<Self> {
        let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
        let end = start.checked_add(part.len())?;
        if end > whole.len() {
            return None;
        }
        Some(Self { start: u32::try_from(start).ok()?, end: u32::try_from(end).ok()? })
    }

    /// The range in octets.
    pub(super) fn range(self) -> Range<usize> {
        // Lossless: `usize` has at least 32 bits on every platform that has sockets.
        self.start as usize..self.end as usize
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use super::*;

    const LIMITS: FieldLimits = FieldLimits { bytes: 64, count: 3 };

    /// `Ok(None)`: wants more; `Ok(Some(n))`: complete after n octets.
    fn scan(input: &[u8]) -> Result<Option<usize>, FieldError> {
        let mut scan = FieldScan::new(LIMITS);
        for (at, byte) in input.iter().enumerate() {
            if scan.step(*byte)? {
                return Ok(Some(at + 1));
            }
        }
        Ok(None)
    }

    #[test]
    fn sections_end_at_their_empty_line() {
        for (input, length) in [
            (&b"\r\nrest"[..], 2),
            (b"A: b\r\n\r\nrest", 8),
            (b"A:\r\nB:\t x \xff\r\n\r\n", 15),
            (b"!#$%&'*+-.^_`|~9: ::\r\n\r\n", 24),
        ] {
            assert_eq!(scan(input), Ok(Some(length)), "{input:?}");
            assert_eq!(scan(&input[..length - 1]), Ok(None), "{input:?}");
        }
    }

    #[test]
    fn faults_are_named() {
        use FieldError::{Folded, LineEnding, Name, Value};
        for (input, error) in [
            (&b"\n"[..], LineEnding),
            (b"\r\r", LineEnding),
            (b"A: b\n", LineEnding),
            (b"A: b\rC: d", LineEnding),
            (b"A: b\r\r\n", LineEnding),
            (b"A\r\n", LineEnding),
            (b"A: b\r\n\n", LineEnding),
            (b" A: b\r\n", Folded),
            (b"A: b\r\n\tc", Folded),
            (b": x", Name),
            (b"A : x", Name),
            (b"A\t: x", Name),
            (b"A\xa0: x", Name),
            (b"A\x85: x", Name),
            (b"A(y): x", Name),
            (b"\"A\": x", Name),
            (b"\x00A: x", Name),
            (b"A\x0b: x", Name),
            (b"{A}: x", Name),
            (b"A: \x00", Value),
            (b"A: \x0bchunked", Value),
            (b"A: \x0cx", Value),
            (b"A: \x1b[2J", Value),
            (b"A: \x7f", Value),
        ] {
            assert_eq!(scan(input), Err(error), "{input:?}");
            assert_eq!(error.status(), 400);
        }
    }

    #[test]
    fn limits_are_inclusive() {
        let three = b"A: 1\r\nB: 2\r\nC: 3\r\n".to_vec();
        assert!(matches!(scan(&[&three[..], b"\r\n"].concat()), Ok(Some(_))));
        let error = scan(&[&three[..], b"D"].concat()).unwrap_err();
        assert_eq!((error, error.status()), (FieldError::TooMany { limit: 3 }, 431));

        let fill = |length: usize| format!("A: {}\r\n\r\n", "x".repeat(length - 5)).into_bytes();
        assert!(matches!(scan(&fill(64)), Ok(Some(_))));
        let error = scan(&fill(65)).unwrap_err();
        assert_eq!((error, error.status()), (FieldError::TooLarge { limit: 64 }, 431));
    }

    #[test]
    fn spans_find_parts_and_refuse_strangers() {
        let whole = b"hello world".to_vec();
        assert_eq!(Span::of(&whole[6..], &whole).unwrap().range(), 6..11);
        assert!(Span::of(b"stranger", &whole[..4]).is_none());
    }
}
