//! The body of a request on its way to the origin: piece by piece, never whole.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use crate::http1::{BodyLength, Trailers};

/// The client's body ended before it was complete, so the request must not look complete either.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the request body was aborted")]
pub struct BodyAborted;

#[derive(Debug)]
enum Piece {
    Frame(Frame<Bytes>),
    /// The body is complete. A channel that closes without it has broken off.
    End,
}

/// What hyper sends as the body.
#[derive(Debug)]
pub struct OutBody {
    pieces: Option<mpsc::Receiver<Piece>>,
    length: Option<u64>,
}

/// Where the pieces of a body come from. Dropping it before [`BodySender::end`] breaks the request
/// off, so that the origin sees no complete body.
#[derive(Debug)]
pub struct BodySender(mpsc::Sender<Piece>);

impl OutBody {
    /// No body at all.
    #[must_use]
    pub const fn empty() -> Self {
        Self { pieces: None, length: Some(0) }
    }

    /// A body of the length that the client announced; at most one piece waits in between.
    #[must_use]
    pub fn streaming(length: BodyLength) -> (BodySender, Self) {
        let (sender, receiver) = mpsc::channel(1);
        let length = match length {
            BodyLength::None => Some(0),
            BodyLength::Length(length) => Some(length),
            BodyLength::Chunked => None,
        };
        (BodySender(sender), Self { pieces: Some(receiver), length })
    }
}

impl BodySender {
    /// Hands a piece over; `false` if the origin takes no more.
    pub async fn data(&self, data: Bytes) -> bool {
        self.send(Piece::Frame(Frame::data(data))).await
    }

    /// Hands the trailers over; fields that http can't represent are left out.
    pub async fn trailers(&self, trailers: Trailers) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in trailers {
            let name = HeaderName::from_bytes(name.as_bytes());
            let value = HeaderValue::from_maybe_shared(value);
            if let (Ok(name), Ok(value)) = (name, value) {
                map.append(name, value);
            }
        }
        self.send(Piece::Frame(Frame::trailers(map))).await
    }

    /// Says that the body is complete.
    pub async fn end(self) -> bool {
        self.send(Piece::End).await
    }

    async fn send(&self, piece: Piece) -> bool {
        self.0.send(piece).await.is_ok()
    }
}

impl Body for OutBody {
    type Data = Bytes;
    type Error = BodyAborted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyAborted>>> {
        let Some(pieces) = &mut self.pieces else {
            return Poll::Ready(None);
        };
        Poll::Ready(match ready!(pieces.poll_recv(cx)) {
            Some(Piece::Frame(frame)) => Some(Ok(frame)),
            Some(Piece::End) => {
                self.pieces = None;
                None
            }
            None => Some(Err(BodyAborted)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
