//! The client's connection: buffered reads, whole writes, and an orderly end.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::time::{Instant, timeout_at};

use crate::stream::Stream;

/// Octets asked for at first: most heads have fewer, and so little memory is had at once.
const FIRST: usize = 1024;
/// Octets asked for at once of what is longer.
const READ: usize = 16 * 1024;
/// Most octets read and thrown away before a refused client is cut off, so that it can read the
/// refusal instead of seeing a reset.
const LINGER_BYTES: usize = 512 << 20;
/// Longest time for that.
const LINGER: Duration = Duration::from_secs(5);

/// The connection and what was read from it but not used.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) stream: Stream,
    pub(super) buffer: BytesMut,
    /// How long the client may take to read what is written.
    stall: Duration,
}

impl Wire {
    pub(super) fn new(stream: Stream, stall: Duration) -> Self {
        Self { stream, buffer: BytesMut::new(), stall }
    }

    /// Reads once into the buffer; 0 at the end of the stream. An idle connection holds no buffer.
    pub(super) async fn read(&mut self) -> io::Result<usize> {
        let most = if self.buffer.is_empty() { FIRST } else { READ };
        read_once(&self.stream, &mut self.buffer, most).await
    }

    /// Writes everything, if the client reads it in time.
    pub(super) async fn write(&self, mut data: impl Buf) -> io::Result<()> {
        tokio::time::timeout(self.stall, write_all(&self.stream, &mut data)).await?
    }

    /// Ends a connection on which the client may still be sending.
    pub(super) async fn close(mut self) {
        let deadline = Instant::now() + LINGER;
        if !matches!(timeout_at(deadline, self.stream.end()).await, Ok(Ok(()))) {
            return;
        }
        let mut thrown_away = 0;
        while thrown_away < LINGER_BYTES {
            self.buffer.clear();
            match timeout_at(deadline, read_into(&self.stream, &mut self.buffer)).await {
                Ok(Ok(count)) if count > 0 => thrown_away += count,
                _ => return,
            }
        }
    }

    /// Ends the connection with a reset, where a plain end would look like a complete answer.
    pub(super) fn reset(self) {
        // A zero linger time makes the close a reset; if it can't be set, the close is plain.
        let _ = socket2::SockRef::from(self.stream.socket()).set_linger(Some(Duration::ZERO));
    }
}

/// One read of whatever is there.
pub(super) async fn read_into(stream: &Stream, buffer: &mut BytesMut) -> io::Result<usize> {
    read_once(stream, buffer, READ).await
}

async fn read_once(stream: &Stream, buffer: &mut BytesMut, most: usize) -> io::Result<usize> {
    loop {
        if buffer.is_empty() {
            *buffer = BytesMut::new();
        }
        stream.readable().await?;
        match stream.try_read_buf(buffer, most) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return result,
        }
    }
}

/// Writes everything.
pub(super) async fn write_all(stream: &Stream, data: &mut impl Buf) -> io::Result<()> {
    while data.has_remaining() {
        let mut slices = [io::IoSlice::new(&[]); 4];
        let filled = data.chunks_vectored(&mut slices);
        let slices = slices.get(..filled).unwrap_or_default();
        match stream.try_write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => data.advance(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) => return Err(error),
        }
    }
    stream.flush().await
}
