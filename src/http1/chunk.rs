//! The line before the data of a chunk: its size, and extensions nobody needs (RFC 9112 7.1).

use super::syntax::is_value_byte;

/// The longest chunk line in octets, without its CRLF; inclusive.
pub const MAX_CHUNK_LINE: usize = 1024;

/// As many digits as 64 bits need; octets of a line beyond them count as extension.
const SIZE_DIGITS: usize = 16;

/// Why a chunk line was refused. The text is fixed and safe to show to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The size is empty, has something else than hexadecimal digits, or does not fit 64 bits.
    #[error("a chunk size is not a plain hexadecimal number within 64 bits")]
    Size,
    /// CR not followed by LF, or LF not preceded by CR.
    #[error("a chunk size line does not end in CRLF")]
    LineEnding,
    /// A control octet in an extension.
    #[error("a chunk extension contains a control character")]
    Extension,
    /// The line is longer than [`MAX_CHUNK_LINE`].
    #[error("a chunk size line is longer than {MAX_CHUNK_LINE} bytes")]
    TooLong,
    /// The extensions of all chunks together are out of proportion to the data.
    #[error("the chunk extensions are larger than the data")]
    TooManyExtensions,
}

#[derive(Debug, Clone, Copy, Default)]
enum State {
    #[default]
    Start,
    Size,
    Extension,
    LineEnd,
}

/// A scan of one chunk line.
#[derive(Debug, Default)]
pub(super) struct ChunkLine {
    state: State,
    size: u64,
    length: usize,
}

impl ChunkLine {
    /// Takes the next octet; the size when it was the last one of the line.
    ///
    /// `allowance` is how many octets of extensions the body may still have.
    pub(super) fn step(&mut self, byte: u8, allowance: &mut u64) -> Result<Option<u64>, ChunkError> {
        self.state = match (self.state, byte) {
            (State::Start | State::Size, _) if byte.is_ascii_hexdigit() => {
                self.push_digit(byte)?;
                State::Size
            }
            (State::Size, b';') => State::Extension,
            (State::Size | State::Extension, b'\r') => State::LineEnd,
            (State::Extension, _) if is_value_byte(byte) => State::Extension,
            (State::LineEnd, b'\n') => return Ok(Some(self.size)),
            (State::LineEnd, _) | (State::Size | State::Extension, b'\n') => {
                return Err(ChunkError::LineEnding);
            }
            (State::Start | State::Size, _) => return Err(ChunkError::Size),
            (State::Extension, _) => return Err(ChunkError::Extension),
        };
        if !matches!(self.state, State::LineEnd) {
            self.count(allowance)?;
        }
        Ok(None)
    }

    fn push_digit(&mut self, byte: u8) -> Result<(), ChunkError> {
        let digit = char::from(byte).to_digit(16).ok_or(ChunkError::Size)?;
        self.size = self
            .size
            .checked_mul(16)
            .and_then(|size| size.checked_add(u64::from(digit)))
            .ok_or(ChunkError::Size)?;
        Ok(())
    }

    fn count(&mut self, allowance: &mut u64) -> Result<(), ChunkError> {
        if self.length == MAX_CHUNK_LINE {
            return Err(ChunkError::TooLong);
        }
        self.length += 1;
        if self.length > SIZE_DIGITS {
            *allowance = allowance.checked_sub(1).ok_or(ChunkError::TooManyExtensions)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// `Ok(None)`: wants more.
    fn line(input: &[u8]) -> Result<Option<u64>, ChunkError> {
        let mut line = ChunkLine::default();
        let mut allowance = 2048;
        for byte in input {
            if let Some(size) = line.step(*byte, &mut allowance)? {
                return Ok(Some(size));
            }
        }
        Ok(None)
    }

    #[test]
    fn sizes() {
        for (input, size) in [
            (&b"0\r\n"[..], 0),
            (b"5\r\n", 5),
            (b"aF\r\n", 0xAF),
            (b"0005\r\n", 5),
            (b"00000000000000000005\r\n", 5),
            (b"FFFFFFFFFFFFFFFF\r\n", u64::MAX),
            (b"5;a=b\r\n", 5),
            (b"5;a=\"x;\t\xe9\"\r\n", 5),
        ] {
            assert_eq!(line(input), Ok(Some(size)), "{input:?}");
        }
    }

    #[test]
    fn faults() {
        use ChunkError::{Extension, LineEnding, Size};
        for (input, error) in [
            (&b"\r\n"[..], Size),
            (b"\n", Size),
            (b";a\r\n", Size),
            (b"+5\r\n", Size),
            (b"-1\r\n", Size),
            (b"0x5\r\n", Size),
            (b" 5\r\n", Size),
            (b"5 \r\n", Size),
            (b"5 ;a\r\n", Size),
            (b"5\t\r\n", Size),
            (b"5_0\r\n", Size),
            (b"5g\r\n", Size),
            (b"5,5\r\n", Size),
            (b"\xef\xbc\x95\r\n", Size),
            (b"5\x00\r\n", Size),
            (b"10000000000000005\r\n", Size),
            (b"FFFFFFFFFFFFFFFF0\r\n", Size),
            (b"5\n", LineEnding),
            (b"5\rx", LineEnding),
            (b"5\r\r\n", LineEnding),
            (b"5;a\n", LineEnding),
            (b"5;a\rb\r\n", LineEnding),
            (b"5;a\x00\r\n", Extension),
            (b"5;\x7f\r\n", Extension),
        ] {
            assert_eq!(line(input), Err(error), "{input:?}");
        }
    }

    #[test]
    fn a_line_is_bounded() {
        let fill = |length: usize| format!("5;{}\r\n", "a".repeat(length - 2)).into_bytes();
        assert_eq!(line(&fill(MAX_CHUNK_LINE)), Ok(Some(5)));
        assert_eq!(line(&fill(MAX_CHUNK_LINE + 1)), Err(ChunkError::TooLong));
    }

    #[test]
    fn extensions_use_up_the_allowance() {
        let mut allowance = 4;
        let mut scan = ChunkLine::default();
        for byte in b"5;aaaaaaaaaaaaaaaaaa" {
            scan.step(*byte, &mut allowance).unwrap();
        }
        assert_eq!(allowance, 0);
        assert_eq!(scan.step(b'a', &mut allowance), Err(ChunkError::TooManyExtensions));
    }
}
