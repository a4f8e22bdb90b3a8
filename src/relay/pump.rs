//! One direction of a tunnel: read, write, and at the end pass the end on.
//!
//! Few bytes are copied through a buffer that the thread's tunnels share; many
//! are spliced through a pipe, if neither side wraps them in TLS. Only bytes that
//! the receiver does not take yet are held, and nothing more is read until they are
//! gone.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::pipe::Pipe;
use super::{Direction, Gate, Meter};
use crate::stream::Stream;

/// Size of the shared buffer, and so of the largest copy that is ever held.
const SCRATCH: usize = 16 * 1024;

/// Steps (a read or a write) before other tunnels of the thread get their turn.
const STEPS: usize = 4;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH].into());
}

/// Where a pump reads and writes, who counts, and who looks on.
pub(super) struct Lane<'a, M, T> {
    pub(super) from: &'a Stream,
    pub(super) to: &'a Stream,
    pub(super) sent: &'a AtomicU64,
    pub(super) meter: &'a M,
    pub(super) gate: &'a mut Option<Box<dyn Gate<T>>>,
    pub(super) direction: Direction,
}

/// Why a direction cannot go on.
#[derive(Debug)]
pub(super) enum Fault<T> {
    Read(io::Error),
    Write(io::Error),
    Exhausted,
    Refused(T),
}

/// Bytes that were read and not written yet.
#[derive(Debug)]
enum Held {
    Nothing,
    Copied(Bytes),
    Piped(Pipe, usize),
}

/// How far a direction has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    /// The source has ended, which the receiver is being told.
    Ending,
    Ended,
}

/// The state of one direction.
#[derive(Debug)]
pub(super) struct Pump {
    stage: Stage,
    held: Held,
    /// What the meter has granted and is not written yet.
    granted: usize,
    /// Bytes read since the source last ran dry.
    burst: usize,
    /// Whether to try splice next: the source has, or lately had, many bytes.
    bulk: bool,
    progress: bool,
    /// Whether a failure of the source will show by reading it.
    reads: bool,
}

impl Pump {
    /// A pump that first writes `early`.
    pub(super) fn new(early: Bytes) -> Self {
        let held = if early.is_empty() { Held::Nothing } else { Held::Copied(early) };
        Self { stage: Stage::Running, held, granted: 0, burst: 0, bulk: false, progress: false, reads: false }
    }

    /// Whether this direction is over, its end passed on.
    pub(super) fn ended(&self) -> bool {
        self.stage == Stage::Ended
    }

    /// Whether nothing more will be read.
    pub(super) fn source_ended(&self) -> bool {
        self.stage != Stage::Running
    }

    /// Whether a failure of the source will show by reading it. Not while the receiver is waited for.
    pub(super) fn reads(&self) -> bool {
        self.reads
    }

    /// Whether bytes were passed on since the last call.
    pub(super) fn took_progress(&mut self) -> bool {
        std::mem::take(&mut self.progress)
    }

    /// Gives the direction up, after a failed write.
    pub(super) fn abandon(&mut self) {
        self.held = Held::Nothing;
        self.stage = Stage::Ended;
    }

    /// Gives back what the meter granted in vain.
    pub(super) fn settle<M: Meter, T>(&mut self, lane: &Lane<'_, M, T>) {
        if self.granted > 0 {
            let unused = std::mem::take(&mut self.granted);
            lane.meter.give_back(lane.direction, unused);
        }
    }

    /// Moves bytes until a socket is not ready. Ready when the direction is over.
    pub(super) fn poll<M: Meter, T>(
        &mut self,
        cx: &mut Context<'_>,
        lane: &mut Lane<'_, M, T>,
    ) -> Poll<Result<(), Fault<T>>> {
        self.reads = false;
        for _ in 0..STEPS {
            match (self.stage, &self.held) {
                (Stage::Ended, _) => return Poll::Ready(Ok(())),
                (Stage::Ending, _) => {
                    // Fails only if the connection is gone, which the other direction sees.
                    let _ = ready!(lane.to.poll_end(cx));
                    self.stage = Stage::Ended;
                }
                (Stage::Running, Held::Nothing) => {
                    ready!(lane.to.poll_flush(cx)).map_err(Fault::Write)?;
                    if let (Some(gate), Direction::Up) = (&mut *lane.gate, lane.direction) {
                        match ready!(gate.poll_next(cx, lane.from)).map_err(Fault::Refused)? {
                            Some(end) if end.is_empty() => {
                                *lane.gate = None;
                                self.stage = Stage::Ending;
                            }
                            Some(bytes) => self.held = Held::Copied(bytes),
                            None => *lane.gate = None,
                        }
                        continue;
                    }
                    self.reads = true;
                    ready!(lane.from.poll_read_ready(cx)).map_err(Fault::Read)?;
                    self.reads = false;
                    self.read(lane)?;
                }
                (Stage::Running, _) => {
                    ready!(lane.to.poll_write_ready(cx)).map_err(Fault::Write)?;
                    self.write_held(lane)?;
                }
            }
        }
        // It goes on at once.
        self.reads = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn read<M: Meter, T>(&mut self, lane: &mut Lane<'_, M, T>) -> Result<(), Fault<T>> {
        if self.bulk
            && lane.gate.is_none()
            && let (Some(from), Some(_)) = (lane.from.plain(), lane.to.plain())
            && self.splice_in(from).map_err(Fault::Read)?
        {
            return Ok(());
        }
        BUFFER.with_borrow_mut(|buffer| self.copy(lane, buffer))
    }

    /// Splices from the source into a pipe; false if that yielded nothing. Only a
    /// plain read can tell why: splice does not pass a byte of urgent data, and
    /// reports an end of stream behind it as if nothing were left.
    fn splice_in(&mut self, from: &TcpStream) -> io::Result<bool> {
        let Some(pipe) = Pipe::take() else {
            return Ok(false);
        };
        match pipe.fill(from) {
            Ok(0) | Err(rustix::io::Errno::AGAIN) => {
                pipe.put_back();
                Ok(false)
            }
            Ok(count) => {
                self.bulk = count >= SCRATCH;
                self.burst = self.burst.saturating_add(count);
                self.held = Held::Piped(pipe, count);
                Ok(true)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reads into the shared buffer and writes from it; a rest is held.
    fn copy<M: Meter, T>(&mut self, lane: &mut Lane<'_, M, T>, buffer: &mut [u8]) -> Result<(), Fault<T>> {
        let Some(count) = self.read_once(lane.from, buffer).map_err(Fault::Read)? else {
            return Ok(());
        };
        let data = buffer.get(..count).unwrap_or_default();
        if let Some(gate) = lane.gate {
            // Of the upstream: the client is read by the gate.
            gate.answered(data);
        }
        if data.is_empty() {
            self.stage = Stage::Ending;
            return Ok(());
        }
        let allowed = self.grant(lane, count)?;
        let written = match lane.to.try_write(data.get(..allowed).unwrap_or(data)) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(Fault::Write(error)),
        };
        self.wrote(lane, written);
        if let Some(rest) = data.get(written..).filter(|rest| !rest.is_empty()) {
            self.held = Held::Copied(Bytes::copy_from_slice(rest));
        }
        Ok(())
    }

    /// Reads once: 0 is the end of the stream, `None` nothing for now.
    fn read_once(&mut self, from: &Stream, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let count = match from.try_read(buffer) {
            Ok(count) => Some(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => return Err(error),
        };
        self.burst = self.burst.saturating_add(count.unwrap_or(0));
        if count == Some(buffer.len()) {
            self.bulk = true;
        } else {
            self.bulk = self.burst >= 2 * SCRATCH;
            self.burst = 0;
        }
        Ok(count)
    }

    fn write_held<M: Meter, T>(&mut self, lane: &Lane<'_, M, T>) -> Result<(), Fault<T>> {
        let allowed = self.grant(lane, self.held.len())?;
        let to = lane.to;
        let result = match &self.held {
            Held::Nothing => return Ok(()),
            Held::Copied(bytes) => to.try_write(bytes.get(..allowed).unwrap_or(bytes)),
            Held::Piped(pipe, _) => match to.plain() {
                Some(to) => to.try_io(Interest::WRITABLE, || Ok(pipe.drain(to, allowed)?)),
                // Nothing was spliced for it.
                None => Err(io::ErrorKind::Unsupported.into()),
            },
        };
        match result {
            Ok(0) => Err(Fault::Write(io::ErrorKind::WriteZero.into())),
            Ok(written) => {
                self.wrote(lane, written);
                self.held.advance(written);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(Fault::Write(error)),
        }
    }

    /// How many of `want` bytes may be written now.
    fn grant<M: Meter, T>(&mut self, lane: &Lane<'_, M, T>, want: usize) -> Result<usize, Fault<T>> {
        if self.granted == 0 {
            self.granted = lane.meter.take(lane.direction, want).min(want);
        }
        match self.granted.min(want) {
            0 => Err(Fault::Exhausted),
            allowed => Ok(allowed),
        }
    }

    fn wrote<M, T>(&mut self, lane: &Lane<'_, M, T>, count: usize) {
        self.granted = self.granted.saturating_sub(count);
        self.progress |= count > 0;
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        lane.sent.fetch_add(count, Ordering::Relaxed);
    }
}

impl Held {
    fn len(&self) -> usize {
        match self {
            Held::Nothing => 0,
            Held::Copied(bytes) => bytes.len(),
            Held::Piped(_, count) => *count,
        }
    }

    /// Forgets `count` bytes that were written; an emptied pipe is put back.
    fn advance(&mut self, count: usize) {
        let left = self.len().saturating_sub(count);
        *self = match std::mem::replace(self, Held::Nothing) {
            Held::Copied(mut bytes) if left > 0 => {
                bytes.advance(count);
                Held::Copied(bytes)
            }
            Held::Piped(pipe, _) if left > 0 => Held::Piped(pipe, left),
            Held::Piped(pipe, _) => {
                pipe.put_back();
                Held::Nothing
            }
            Held::Nothing | Held::Copied(_) => Held::Nothing,
        };
    }
}
