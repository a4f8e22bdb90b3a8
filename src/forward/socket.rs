//! The socket of a connection to an origin, visible from beside hyper: it counts what arrives and
//! can be looked at while hyper owns the reading.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::stream::read_plain;

/// Bytes that are read before other connections get their turn. hyper goes on for as long as interim
/// responses come, and an origin that sends nothing else must not keep the thread.
const TURN: usize = 16 << 10;

/// A socket and the number of bytes that were read from it.
#[derive(Debug)]
pub(super) struct OriginSocket {
    stream: TcpStream,
    received: AtomicU64,
    /// What is left of the turn.
    turn: AtomicUsize,
}

impl OriginSocket {
    pub(super) const fn new(stream: TcpStream) -> Self {
        Self { stream, received: AtomicU64::new(0), turn: AtomicUsize::new(TURN) }
    }

    /// Begins another turn.
    pub(super) fn begin_turn(&self) {
        self.turn.store(TURN, Ordering::Relaxed);
    }

    /// Bytes read so far.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Is it open with nothing to read? An origin that has closed, failed or sent something
    /// unasked is not quiet.
    pub(super) fn is_quiet(&self) -> bool {
        let mut byte = [0u8; 1];
        let peeked = recv(&self.stream, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        matches!(peeked, Err(rustix::io::Errno::AGAIN))
    }

    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }
}

/// What hyper reads and writes.
#[derive(Debug)]
pub(super) struct OriginIo(Arc<OriginSocket>);

impl OriginIo {
    pub(super) const fn new(socket: Arc<OriginSocket>) -> Self {
        Self(socket)
    }
}

impl AsyncRead for OriginIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let turn = self.0.turn.load(Ordering::Relaxed);
        if turn == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            let (stream, room) = (&self.0.stream, buffer.remaining());
            ready!(stream.poll_read_ready(cx))?;
            match read_plain(stream, room, || stream.try_read_buf(buffer)) {
                Ok(count) => {
                    self.0.turn.store(turn.saturating_sub(count), Ordering::Relaxed);
                    let count = u64::try_from(count).unwrap_or(u64::MAX);
                    self.0.received.fetch_add(count, Ordering::Relaxed);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for OriginIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_with(cx, |stream| stream.try_write(data))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(cx, |stream| stream.try_write_vectored(data))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(shutdown(&self.0.stream, Shutdown::Write)?))
    }
}

impl OriginIo {
    fn poll_with(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.stream.poll_write_ready(cx))?;
            match write(&self.0.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }
}
