//! A connection whose bytes are payload: a plain socket, or a TLS session of a client on one.
//!
//! Read and written by shared reference and without waiting, so that one task can serve both
//! directions. It never looks at a byte, never opens a socket, and shakes no hands.

mod tls;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use egret_policy::Certificate;
use rustix::net::Shutdown;
use rustls::ServerConnection;
use tokio::io::Interest;
use tokio::net::TcpStream;

use tls::TlsStream;

/// One end of what passes.
#[derive(Debug)]
pub enum Stream {
    /// The socket's bytes are the payload.
    Plain(TcpStream),
    /// The payload is inside TLS.
    Tls(Box<TlsStream>),
}

impl From<TcpStream> for Stream {
    fn from(socket: TcpStream) -> Self {
        Self::Plain(socket)
    }
}

impl Stream {
    /// A client's TLS session after its handshake, with the certificate that was verified in it.
    #[must_use]
    pub fn tls(socket: TcpStream, session: ServerConnection, certificate: Option<Arc<Certificate>>) -> Self {
        Self::Tls(Box::new(TlsStream::new(socket, session, certificate)))
    }

    /// The socket below, whatever is spoken on it.
    #[must_use]
    pub const fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => tls.socket(),
        }
    }

    /// The socket, if its bytes are the payload, so that the kernel may move them.
    #[must_use]
    pub const fn plain(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(socket) => Some(socket),
            Self::Tls(_) => None,
        }
    }

    /// The certificate by which the client may be known.
    #[must_use]
    pub const fn certificate(&self) -> Option<&Arc<Certificate>> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(tls) => tls.certificate(),
        }
    }

    /// Ready when a read may give something. Wakes the last task that asked.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => socket.poll_read_ready(cx),
            Self::Tls(tls) => tls.poll_read_ready(cx),
        }
    }

    /// Ready when a write may take something. Wakes the last task that asked.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket().poll_write_ready(cx)
    }

    /// Ready when the kernel has taken everything that was written. A plain socket is always.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => tls.poll_flush(cx),
        }
    }

    /// Ends our side, in order: what was written goes first. The peer may go on sending.
    pub fn poll_end(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => Poll::Ready(Ok(rustix::net::shutdown(socket, Shutdown::Write)?)),
            Self::Tls(tls) => tls.poll_end(cx),
        }
    }

    /// Reads once; 0 is the orderly end of the peer's side.
    ///
    /// # Errors
    /// `WouldBlock`; `UnexpectedEof` where TLS broke off without its end; what the system says.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => read_plain(socket, buffer.len(), || socket.try_read(buffer)),
            Self::Tls(tls) => tls.try_read(buffer),
        }
    }

    /// Reads once, up to `most` bytes, behind what the buffer holds. As [`Stream::try_read`].
    ///
    /// # Errors
    /// As for [`Stream::try_read`].
    pub fn try_read_buf(&self, buffer: &mut BytesMut, most: usize) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => {
                buffer.reserve(most);
                let room = buffer.capacity() - buffer.len();
                read_plain(socket, room, || socket.try_read_buf(buffer))
            }
            Self::Tls(tls) => tls.try_read_buf(buffer, most),
        }
    }

    /// Writes once; how much was taken. Of TLS up to one record is held until it is flushed.
    ///
    /// # Errors
    /// `WouldBlock`, and what the system says.
    pub fn try_write(&self, data: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_write(data),
            Self::Tls(tls) => tls.try_write(&[io::IoSlice::new(data)]),
        }
    }

    /// Writes once from several pieces. As [`Stream::try_write`].
    ///
    /// # Errors
    /// As for [`Stream::try_write`].
    pub fn try_write_vectored(&self, data: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_write_vectored(data),
            Self::Tls(tls) => tls.try_write(data),
        }
    }

    /// Waits until a read may give something.
    ///
    /// # Errors
    /// The runtime is over.
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_read_ready(cx)).await
    }

    /// Waits until a write may take something.
    ///
    /// # Errors
    /// The runtime is over.
    pub async fn writable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_write_ready(cx)).await
    }

    /// Waits until the kernel has taken everything that was written.
    ///
    /// # Errors
    /// What the system says.
    pub async fn flush(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Ends our side, as [`Stream::poll_end`].
    ///
    /// # Errors
    /// What the system says.
    pub async fn end(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_end(cx)).await
    }

    /// Waits until the connection has failed both ways. A peer that has only finished sending is
    /// still there.
    pub async fn failed(&self) {
        // An error of the wait itself says as much.
        let _ = self.socket().ready(Interest::ERROR).await;
    }
}

/// Reads once. A read that does not fill its room has emptied the socket, and the edge-triggered
/// selector tells of what comes after it: that the socket is no longer readable is noted with the
/// read, which saves finding it out by another one. Told from within [`TcpStream::try_io`], so that
/// what comes in between is not forgotten.
pub(crate) fn read_plain(
    socket: &TcpStream,
    room: usize,
    read: impl FnOnce() -> io::Result<usize>,
) -> io::Result<usize> {
    let mut emptied = None;
    let result = socket.try_io(Interest::READABLE, || {
        let count = read()?;
        if 0 < count && count < room {
            emptied = Some(count);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(count)
    });
    emptied.map_or(result, Ok)
}
