//! A client's TLS session on its socket, after the handshake.
//!
//! tokio-rustls would want it for one direction at a time; this reads and writes as sockets do, by
//! shared reference. What it holds back is bounded: one record that the kernel has not taken yet,
//! one that has not arrived whole, and what of the last one nobody has read.

use std::io::{self, BufRead, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use egret_policy::Certificate;
use rustix::net::Shutdown;
use rustls::ServerConnection;
use tokio::net::TcpStream;

/// Most bytes that are encrypted before the kernel has taken those before them: one full record.
const RECORD: usize = 16 * 1024;

/// Reads of the socket within one of the payload. Records may hold none of it, and a peer that sends
/// only such must not keep the thread.
const READS: usize = 16;

/// A session and the socket that carries it.
#[derive(Debug)]
pub struct TlsStream {
    socket: TcpStream,
    /// Used by one task alone, so the lock is never waited for.
    session: Mutex<Session>,
    certificate: Option<Arc<Certificate>>,
}

#[derive(Debug)]
struct Session {
    tls: ServerConnection,
    /// Has the end of our side been said?
    ended: bool,
}

/// The socket as rustls reads and writes it.
struct Raw<'a>(&'a TcpStream);

impl Read for Raw<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0.try_write(data)
    }

    fn write_vectored(&mut self, data: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsStream {
    pub(super) fn new(
        socket: TcpStream,
        mut tls: ServerConnection,
        certificate: Option<Arc<Certificate>>,
    ) -> Self {
        tls.set_buffer_limit(Some(RECORD));
        Self { socket, session: Mutex::new(Session { tls, ended: false }), certificate }
    }

    pub(super) const fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(super) const fn certificate(&self) -> Option<&Arc<Certificate>> {
        self.certificate.as_ref()
    }

    fn lock(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.lock().tls.reader().fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.socket.poll_read_ready(cx),
            // The end, or its lack, is to be read as well.
            _ => Poll::Ready(Ok(())),
        }
    }

    pub(super) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.push(&mut self.lock()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.socket.poll_write_ready(cx))?;
                }
                result => return Poll::Ready(result),
            }
        }
    }

    pub(super) fn poll_end(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        {
            let mut session = self.lock();
            if !session.ended {
                session.ended = true;
                session.tls.send_close_notify();
            }
        }
        ready!(self.poll_flush(cx))?;
        Poll::Ready(Ok(rustix::net::shutdown(&self.socket, Shutdown::Write)?))
    }

    pub(super) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_with(|mut plain| plain.read(buffer).unwrap_or(0))
    }

    pub(super) fn try_read_buf(&self, buffer: &mut BytesMut, most: usize) -> io::Result<usize> {
        self.read_with(|plain| {
            let taken = plain.get(..most).unwrap_or(plain);
            buffer.extend_from_slice(taken);
            taken.len()
        })
    }

    /// Gives plain bytes to `take`, which says how many it took.
    fn read_with(&self, mut take: impl FnMut(&[u8]) -> usize) -> io::Result<usize> {
        let session = &mut self.lock();
        for _ in 0..READS {
            match session.tls.reader().fill_buf() {
                Ok(plain) => {
                    let taken = take(plain);
                    session.tls.reader().consume(taken);
                    return Ok(taken);
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(io::Error::new(error.kind(), "the connection ended without the end of TLS"));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            session.tls.read_tls(&mut Raw(&self.socket))?;
            if let Err(error) = session.tls.process_new_packets() {
                // The alert that says so; the connection is over either way.
                let _ = self.push(session);
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
        // Waiting until the socket is ready, as a caller does next, gives other tasks their turn.
        Err(io::ErrorKind::WouldBlock.into())
    }

    pub(super) fn try_write(&self, data: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let session = &mut self.lock();
        self.push(session)?;
        let taken = session.tls.writer().write_vectored(data)?;
        match self.push(session) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Writes what is encrypted.
    fn push(&self, session: &mut Session) -> io::Result<()> {
        while session.tls.wants_write() {
            if session.tls.write_tls(&mut Raw(&self.socket))? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }
}
