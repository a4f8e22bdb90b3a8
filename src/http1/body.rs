//! Takes the body of a request out of the octets that follow its head (RFC 9112 sections 6 and 7).
//!
//! [`BodyDecoder`] hands out data without copying it, keeps a few numbers between calls and no
//! data, and stops exactly at the end: what follows is the next request. Chunk extensions are
//! dropped, so none can reach an origin that reads them differently.

use bytes::{Buf, Bytes, BytesMut};

use super::chunk::{ChunkError, ChunkLine};
use super::connection::Connection;
use super::fields::{FieldError, FieldLimits, FieldScan};
use super::filter::forward_trailer_field;
use super::framing::BodyLength;
use super::syntax::trim_ows;

/// The most octets that all trailer lines of a body may have, with their CRLFs; inclusive.
pub const MAX_TRAILERS_BYTES: usize = 16 * 1024;
/// The most trailer lines of a body; inclusive.
pub const MAX_TRAILERS: usize = 64;

/// Trailer fields, in order: name in the client's spelling, value without white space around it.
pub type Trailers = Vec<(String, Bytes)>;

/// The next piece of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    /// The buffer holds nothing more; read on.
    NeedMore,
    /// At least one octet of data.
    Data(Bytes),
    /// The trailer fields that may be forwarded, at least one; only [`End`](Self::End) follows.
    Trailers(Trailers),
    /// The body is complete. Says so again on every further call.
    End,
}

/// Why a body was refused. The text is fixed and safe to show to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// A fault in the line before a chunk.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// The data of a chunk is not followed by CRLF.
    #[error("a chunk is not followed by CRLF at the length that it announced")]
    ChunkEnd,
    /// A fault in the trailer section.
    #[error("in the trailers: {0}")]
    Trailer(#[from] FieldError),
    /// The client stopped sending before the end of the body.
    #[error("the body ended before it was complete")]
    Truncated,
}

impl BodyError {
    /// The status code of the answer, if one can still be sent: 431 for trailers beyond their
    /// limits, otherwise 400.
    pub fn status(self) -> u16 {
        match self {
            Self::Trailer(error) => error.status(),
            Self::Chunk(_) | Self::ChunkEnd | Self::Truncated => 400,
        }
    }
}

#[derive(Debug)]
enum State {
    /// Inside a body of known length, with this many octets to come; at least one.
    Length(u64),
    ChunkLine(ChunkLine),
    /// Inside the data of a chunk, with this many octets to come.
    ChunkData(u64),
    /// After the data of a chunk, before its CR.
    ChunkCr,
    /// After that CR.
    ChunkLf,
    /// Inside the trailer section, of which this many octets were looked at.
    Trailers(FieldScan, usize),
    Done,
    Failed(BodyError),
}

/// Decodes one body.
#[derive(Debug)]
pub struct BodyDecoder {
    state: State,
    connection: Connection,
    /// How many more octets of chunk lines may be something else than a size.
    allowance: u64,
}

/// What [`BodyDecoder::step`] has done.
enum Step {
    /// Moved on; more may follow from the same buffer.
    Moved(State),
    /// Made a piece of the body.
    Made(State, Decoded),
    /// Can do nothing before there are more octets.
    Starved(State),
}

impl BodyDecoder {
    /// Chunk extensions that every body may have, in octets; beyond that, one for each octet of
    /// data. A client that signs its chunks needs far less, and without the bound it could make
    /// us read a thousand octets for each one that counts.
    const EXTENSION_ALLOWANCE: u64 = 16 * 1024;

    /// A decoder for a body of this length. `connection` holds the options of the request: a field
    /// nominated there is dropped from the trailers too.
    pub fn new(length: BodyLength, connection: &Connection) -> Self {
        Self {
            state: match length {
                BodyLength::None | BodyLength::Length(0) => State::Done,
                BodyLength::Length(length) => State::Length(length),
                BodyLength::Chunked => State::ChunkLine(ChunkLine::default()),
            },
            connection: connection.clone(),
            allowance: Self::EXTENSION_ALLOWANCE,
        }
    }

    /// Whether the body is complete, so that the next octet belongs to another request.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Says that the client will send nothing more: an error unless the body is complete.
    pub fn end_of_input(&mut self) -> Result<(), BodyError> {
        match self.state {
            State::Done => Ok(()),
            State::Failed(error) => Err(error),
            _ => self.fail(BodyError::Truncated),
        }
    }

    /// Takes the next piece off the front of `buffer`. After an error it only repeats the error.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Decoded, BodyError> {
        loop {
            match self.step(buffer) {
                Ok(Step::Moved(state)) => self.state = state,
                Ok(Step::Made(state, decoded)) => {
                    self.state = state;
                    return Ok(decoded);
                }
                Ok(Step::Starved(state)) => {
                    self.state = state;
                    return Ok(Decoded::NeedMore);
                }
                Err(error) => return self.fail(error),
            }
        }
    }

    fn fail<T>(&mut self, error: BodyError) -> Result<T, BodyError> {
        self.state = State::Failed(error);
        Err(error)
    }

    fn step(&mut self, buffer: &mut BytesMut) -> Result<Step, BodyError> {
        // Were a state not put back, the body would count as cut off.
        let state = std::mem::replace(&mut self.state, State::Failed(BodyError::Truncated));
        match state {
            State::Done => Ok(Step::Made(State::Done, Decoded::End)),
            State::Failed(error) => Err(error),
            _ if buffer.is_empty() => Ok(Step::Starved(state)),
            State::Length(left) => Ok(data(buffer, left, |left| match left {
                0 => State::Done,
                _ => State::Length(left),
            })),
            State::ChunkLine(line) => self.chunk_line(line, buffer),
            State::ChunkData(left) => Ok(data(buffer, left, |left| match left {
                0 => State::ChunkCr,
                _ => State::ChunkData(left),
            })),
            State::ChunkCr => expect(buffer, b'\r', State::ChunkLf),
            State::ChunkLf => expect(buffer, b'\n', State::ChunkLine(ChunkLine::default())),
            State::Trailers(scan, seen) => self.trailers(scan, seen, buffer),
        }
    }

    fn chunk_line(&mut self, mut line: ChunkLine, buffer: &mut BytesMut) -> Result<Step, BodyError> {
        let mut used = 0;
        let mut complete = None;
        for byte in buffer.iter() {
            used += 1;
            complete = line.step(*byte, &mut self.allowance)?;
            if complete.is_some() {
                break;
            }
        }
        buffer.advance(used);
        Ok(match complete {
            None => Step::Starved(State::ChunkLine(line)),
            Some(0) => Step::Moved(State::Trailers(
                FieldScan::new(FieldLimits { bytes: MAX_TRAILERS_BYTES, count: MAX_TRAILERS }),
                0,
            )),
            Some(size) => {
                self.allowance = self.allowance.saturating_add(size);
                Step::Moved(State::ChunkData(size))
            }
        })
    }

    fn trailers(&self, mut scan: FieldScan, seen: usize, buffer: &mut BytesMut) -> Result<Step, BodyError> {
        let mut length = seen;
        for byte in buffer.get(seen..).unwrap_or_default() {
            length += 1;
            if scan.step(*byte)? {
                let trailers = self.split_trailers(buffer.split_to(length).freeze())?;
                return Ok(match trailers.is_empty() {
                    true => Step::Moved(State::Done),
                    false => Step::Made(State::Done, Decoded::Trailers(trailers)),
                });
            }
        }
        Ok(Step::Starved(State::Trailers(scan, length)))
    }

    /// The fields of a whole trailer section that may be forwarded.
    fn split_trailers(&self, section: Bytes) -> Result<Trailers, BodyError> {
        let mut storage = [httparse::EMPTY_HEADER; MAX_TRAILERS];
        let fields = match httparse::parse_headers(&section, &mut storage) {
            Ok(httparse::Status::Complete((length, fields))) if length == section.len() => fields,
            // The scan accepted what the splitting parser did not.
            _ => return Err(FieldError::Name.into()),
        };
        Ok(fields
            .iter()
            .filter(|field| forward_trailer_field(field.name, &self.connection))
            .map(|field| (field.name.to_owned(), Bytes::copy_from_slice(trim_ows(field.value))))
            .collect())
    }
}

/// Takes as much data as there is, up to `left` octets; `next` makes the state for what is left then.
fn data(buffer: &mut BytesMut, left: u64, next: impl FnOnce(u64) -> State) -> Step {
    let length = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
    let data = buffer.split_to(length).freeze();
    // `length` is at most `left`.
    let left = left.saturating_sub(u64::try_from(length).unwrap_or(u64::MAX));
    Step::Made(next(left), Decoded::Data(data))
}

fn expect(buffer: &mut BytesMut, byte: u8, next: State) -> Result<Step, BodyError> {
    if buffer.first() != Some(&byte) {
        return Err(BodyError::ChunkEnd);
    }
    buffer.advance(1);
    Ok(Step::Moved(next))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Data, trailers, and whether the end was reached.
    type Body = Result<(Vec<u8>, Trailers, bool), BodyError>;

    /// Everything the decoder says about `input`, data joined, and what it leaves.
    fn decode(length: BodyLength, input: &[u8]) -> (Body, Vec<u8>) {
        let connection = Connection::from_values(std::iter::once(&b"X-Hop"[..]));
        let mut decoder = BodyDecoder::new(length, &connection);
        let mut buffer = BytesMut::from(input);
        let (mut data, mut trailers) = (Vec::new(), Trailers::new());
        let result = loop {
            match decoder.decode(&mut buffer) {
                Ok(Decoded::Data(piece)) => data.extend_from_slice(&piece),
                Ok(Decoded::Trailers(fields)) => trailers = fields,
                Ok(Decoded::End) => break Ok((data, trailers, true)),
                Ok(Decoded::NeedMore) => break Ok((data, trailers, false)),
                Err(error) => {
                    assert_eq!(decoder.decode(&mut buffer), Err(error), "an error is final");
                    break Err(error);
                }
            }
        };
        (result, buffer.to_vec())
    }

    fn chunked(input: &[u8]) -> Body {
        decode(BodyLength::Chunked, input).0
    }

    #[test]
    fn bodies_end_where_they_should() {
        for (length, input, data, rest) in [
            (BodyLength::None, &b"GET"[..], &b""[..], &b"GET"[..]),
            (BodyLength::Length(0), b"GET", b"", b"GET"),
            (BodyLength::Length(2), b"hiGET", b"hi", b"GET"),
            (BodyLength::Chunked, b"0\r\n\r\nGET", b"", b"GET"),
            (BodyLength::Chunked, b"5\r\nhello\r\n1;x=y\r\n!\r\n00\r\n\r\nGET", b"hello!", b"GET"),
            (BodyLength::Chunked, b"2\r\n\r\n\r\n0\r\n\r\n\r\n", b"\r\n", b"\r\n"),
        ] {
            let expected = Ok((data.to_vec(), Trailers::new(), true));
            assert_eq!(decode(length, input), (expected, rest.to_vec()), "{input:?}");
        }
    }

    #[test]
    fn unfinished_bodies_want_more() {
        for (length, input) in [
            (BodyLength::Length(u64::MAX), &b"abc"[..]),
            (BodyLength::Chunked, b""),
            (BodyLength::Chunked, b"5"),
            (BodyLength::Chunked, b"5\r\nhello"),
            (BodyLength::Chunked, b"5\r\nhello\r"),
            (BodyLength::Chunked, b"0\r\n"),
            (BodyLength::Chunked, b"0\r\nX: y\r\n\r"),
            (BodyLength::Chunked, b"FFFFFFFFFFFFFFFF\r\nabc"),
        ] {
            let (result, _) = decode(length, input);
            assert!(matches!(result, Ok((_, _, false))), "{input:?}");
        }
    }

    #[test]
    fn faults_are_named() {
        for (input, error) in [
            (&b"+5\r\nhello\r\n"[..], BodyError::Chunk(ChunkError::Size)),
            (b"5\nhello\r\n", BodyError::Chunk(ChunkError::LineEnding)),
            (b"5\r\nhello\n0\r\n\r\n", BodyError::ChunkEnd),
            (b"5\r\nhelloo\r\n0\r\n\r\n", BodyError::ChunkEnd),
            (b"5\r\nhello0\r\n\r\n", BodyError::ChunkEnd),
            (b"5\r\nhello\rX", BodyError::ChunkEnd),
            (b"5\r\nhell\r\n0\r\n\r\n", BodyError::ChunkEnd),
            (b"5\r\nhello\r\n\r\n", BodyError::Chunk(ChunkError::Size)),
            (b"0\r\n\n", BodyError::Trailer(FieldError::LineEnding)),
            (b"0\r\nX : y\r\n\r\n", BodyError::Trailer(FieldError::Name)),
            (b"0\r\nX: y\r\n z\r\n\r\n", BodyError::Trailer(FieldError::Folded)),
            (b"0\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", BodyError::Trailer(FieldError::Name)),
        ] {
            assert_eq!(chunked(input), Err(error), "{input:?}");
            assert_eq!(error.status(), 400);
        }
    }

    #[test]
    fn trailers_are_filtered() {
        let (_, trailers, ended) = chunked(
            b"0\r\nX-Sum:\t abc \r\nContent-Length: 5\r\nX-Hop: 1\r\nProxy-Authorization: x\r\nX_Forwarded_For: y\r\nx-b:\r\n\r\n",
        )
        .unwrap();
        let expected = [("X-Sum".to_owned(), Bytes::from_static(b"abc")), ("x-b".to_owned(), Bytes::new())];
        assert_eq!((trailers.as_slice(), ended), (&expected[..], true));
        let (_, trailers, ended) = chunked(b"0\r\nHost: x\r\n\r\n").unwrap();
        assert_eq!((trailers.len(), ended), (0, true));
    }

    #[test]
    fn trailers_are_bounded() {
        let many = |count: usize| format!("0\r\n{}\r\n", "X: y\r\n".repeat(count)).into_bytes();
        assert!(chunked(&many(MAX_TRAILERS)).is_ok());
        assert_eq!(chunked(&many(MAX_TRAILERS + 1)).unwrap_err().status(), 431);
        let long = |size: usize| format!("0\r\nX: {}\r\n\r\n", "y".repeat(size - 5)).into_bytes();
        assert!(chunked(&long(MAX_TRAILERS_BYTES)).is_ok());
        assert_eq!(chunked(&long(MAX_TRAILERS_BYTES + 1)).unwrap_err().status(), 431);
    }

    #[test]
    fn extensions_need_data() {
        let extension = "e".repeat(900);
        let greedy = format!("1;{extension}\r\na\r\n").repeat(20);
        let error = BodyError::Chunk(ChunkError::TooManyExtensions);
        assert_eq!(chunked(greedy.as_bytes()), Err(error));
        // As a client that signs its chunks sends them.
        let signed =
            format!("2000;chunk-signature={}\r\n{}\r\n", "f".repeat(64), "d".repeat(0x2000)).repeat(1000);
        assert!(chunked(signed.as_bytes()).is_ok());
    }

    #[test]
    fn a_million_small_chunks() {
        let (data, _, ended) =
            chunked(&[b"1\r\na\r\n".repeat(1_000_000), b"0\r\n\r\n".to_vec()].concat()).unwrap();
        assert_eq!((data.len(), ended), (1_000_000, true));
    }

    #[test]
    fn the_end_of_input_is_an_error_inside_a_body() {
        let connection = Connection::default();
        for (length, result) in [
            (BodyLength::None, Ok(())),
            (BodyLength::Length(1), Err(BodyError::Truncated)),
            (BodyLength::Chunked, Err(BodyError::Truncated)),
        ] {
            let mut decoder = BodyDecoder::new(length, &connection);
            assert_eq!(decoder.end_of_input(), result);
            assert_eq!(decoder.is_done(), result.is_ok());
        }
    }
}
