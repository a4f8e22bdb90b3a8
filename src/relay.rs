//! The inside of a tunnel: bytes from the client to the upstream and back, until
//! both sides have ended or a limit is reached.
//!
//! It never looks at a byte, never opens a socket and never writes a record: it
//! returns a [`Tally`]. Who has to look at the first bytes gives it a [`Gate`]. An
//! idle tunnel holds no buffer and no pipe. Memory is bounded by back-pressure: a
//! side is not read while the other does not take what was read before.

mod clock;
mod pipe;
mod pump;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use rustix::net::Shutdown;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use clock::Clock;
use pump::{Fault, Lane, Pump};

use crate::stream::Stream;

/// The two ends of a tunnel, and what was already read from them.
#[derive(Debug)]
pub struct Tunnel {
    /// The connection from the sandbox.
    pub client: Stream,
    /// The connection to the destination.
    pub upstream: TcpStream,
    /// Bytes read from the client so far; they go to the upstream first.
    pub early_up: Bytes,
    /// Bytes read from the upstream so far; they go to the client first.
    pub early_down: Bytes,
}

/// How long a tunnel may live; `None` is no limit.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Longest time without a byte in either direction.
    pub idle: Option<Duration>,
    /// Longest time in all, from the call of [`relay`].
    pub lifetime: Option<Duration>,
    /// Longest time without a byte after one side has ended. A slow but active
    /// direction is not cut by it.
    pub half_closed: Duration,
}

/// Payload bytes that the kernel accepted for the receiving side, or that were
/// encrypted for it. The relay only adds to them, so that others can watch a live
/// tunnel.
#[derive(Debug, Default)]
pub struct Counters {
    /// Client to upstream.
    pub up: AtomicU64,
    /// Upstream to client.
    pub down: AtomicU64,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Client to upstream.
    Up,
    /// Upstream to client.
    Down,
}

/// Grants bytes before they are written; how a byte quota bounds a tunnel.
pub trait Meter {
    /// How many of the next `want` (at least 1) bytes may pass now. 0 ends the
    /// tunnel with [`End::Exhausted`]; more than `want` counts as `want`.
    fn take(&self, direction: Direction, want: usize) -> usize;

    /// Returns granted bytes that were not written when the tunnel ended.
    fn give_back(&self, direction: Direction, unused: usize);
}

/// No quota.
impl Meter for () {
    fn take(&self, _: Direction, want: usize) -> usize {
        want
    }

    fn give_back(&self, _: Direction, _: usize) {}
}

/// Stands at the beginning of a tunnel: sees what the upstream sends, and says what of the client passes.
/// The limits, the meter and the end of either side hold as ever.
pub trait Gate<T>: Send {
    /// The upstream has sent these bytes, which go to the client whatever they are; none are its end.
    fn answered(&mut self, bytes: &[u8]);

    /// What the client sends next and may go to the upstream; no bytes are its end. `None` opens the
    /// gate for good. An error ends the tunnel with [`End::Refused`].
    ///
    /// Asked again whenever the tunnel's task wakes; so what the upstream sends needs no waker.
    fn poll_next(&mut self, cx: &mut Context<'_>, client: &Stream) -> Poll<Result<Option<Bytes>, T>>;
}

/// Why a tunnel ended.
#[derive(Debug)]
pub enum End<T> {
    /// Both sides ended their stream, and everything was delivered.
    Finished,
    /// The client's connection failed, for example by a reset.
    ClientError(io::Error),
    /// The upstream's connection failed.
    UpstreamError(io::Error),
    /// Nothing moved for [`Limits::idle`].
    Idle,
    /// One side had ended or failed, and nothing moved for [`Limits::half_closed`].
    HalfClosed,
    /// [`Limits::lifetime`] is over.
    Lifetime,
    /// The [`Meter`] granted no more bytes.
    Exhausted,
    /// The stop signal fired, with its reason.
    Stopped(T),
    /// The [`Gate`] did not let the client through, for this reason.
    Refused(T),
}

/// What a finished tunnel moved, in bytes as in [`Counters`], and why it ended.
#[derive(Debug)]
pub struct Tally<T> {
    /// Bytes from the client that were passed on.
    pub up: u64,
    /// Bytes from the upstream that were passed on.
    pub down: u64,
    /// Why it ended.
    pub end: End<T>,
}

/// Copies both ways until the tunnel ends, then closes both connections, a FIN
/// first. The end of one side is passed on as the end of that direction only. A
/// failure of one side ends both, as soon as what it had sent before is delivered.
/// What is cut short must not look whole: a client whose TLS broke off is passed on
/// as a reset, and a client with TLS reads its end only after both sides had theirs.
///
/// Bytes of the client behind `early_up` wait for the `gate`, where there is one.
/// `stop` ends the tunnel at once; dropping the future does so without a tally.
/// The future must be polled within a tokio runtime with I/O and time.
pub fn relay<M: Meter, T>(
    tunnel: Tunnel,
    mut gate: Option<Box<dyn Gate<T>>>,
    limits: Limits,
    counters: Arc<Counters>,
    meter: M,
    mut stop: impl Future<Output = T> + Unpin,
) -> impl Future<Output = Tally<T>> {
    // An `async fn` would keep a second copy of all this in each tunnel's future, and so would a
    // step of it that took by value what it is given here by reference.
    let Tunnel { client, upstream, early_up, early_down } = tunnel;
    let upstream = Stream::from(upstream);
    let mut up = Pump::new(early_up);
    let mut down = Pump::new(early_down);
    let mut clock = Clock::start(limits, Instant::now());
    async move {
        let mut copy = Copy {
            client: &client,
            upstream: &upstream,
            counters: &counters,
            meter: &meter,
            up: &mut up,
            down: &mut down,
            gate: &mut gate,
            failure: None,
        };
        let end = run(&mut copy, &mut clock, &mut stop).await;
        // These fail only if the connection is gone already.
        if client.plain().is_none() && matches!(end, End::ClientError(_) | End::Refused(_)) {
            let _ = rustix::net::sockopt::set_socket_linger(upstream.socket(), Some(Duration::ZERO));
        } else {
            let _ = rustix::net::shutdown(upstream.socket(), Shutdown::Write);
        }
        let _ = rustix::net::shutdown(client.socket(), Shutdown::Write);
        Tally { up: counters.up.load(Ordering::Relaxed), down: counters.down.load(Ordering::Relaxed), end }
    }
}

/// Drives both directions, the clock and the stop signal until one of them ends
/// the tunnel.
async fn run<M: Meter, T>(
    copy: &mut Copy<'_, M, T>,
    clock: &mut Clock,
    mut stop: impl Future<Output = T> + Unpin,
) -> End<T> {
    let mut timer = pin!(tokio::time::sleep_until(clock.wake_at()));
    let mut client_fails = FailureWatch::new(copy.client);
    let mut upstream_fails = FailureWatch::new(copy.upstream);
    let mut broken = Broken::default();

    let end = poll_fn(|cx| {
        if let Poll::Ready(reason) = Pin::new(&mut stop).poll(cx) {
            return Poll::Ready(End::Stopped(reason));
        }
        if let Poll::Ready(end) = copy.poll(cx) {
            return Poll::Ready(end);
        }
        broken.client |= !broken.client && client_fails.fires(cx, copy.up.reads());
        broken.upstream |= !broken.upstream && upstream_fails.fires(cx, copy.down.reads());
        if let Some(end) = copy.end_if_unread(broken) {
            return Poll::Ready(end);
        }
        if copy.took_progress() {
            clock.progress(Instant::now());
        }
        if broken.any() || copy.half_closed() {
            clock.half_close();
        }
        poll_clock(cx, timer.as_mut(), clock)
    })
    .await;
    copy.settle();
    end
}

/// Ready when a limit is reached. The timer is set anew when it fires too early
/// or must fire sooner, not on each byte.
fn poll_clock<T>(cx: &mut Context<'_>, mut timer: Pin<&mut Sleep>, clock: &Clock) -> Poll<End<T>> {
    loop {
        let at = clock.wake_at();
        if at < timer.deadline() {
            timer.as_mut().reset(at);
        }
        ready!(timer.as_mut().poll(cx));
        if let Some(end) = clock.expired(Instant::now()) {
            return Poll::Ready(end);
        }
        timer.as_mut().reset(at);
    }
}

/// Tells of the failure of a connection that is not being read: it has ended, or the other side
/// is slow. One that is read tells by itself, and an idle tunnel, which reads both, has no watch.
struct FailureWatch<'a> {
    stream: &'a Stream,
    wait: Option<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>,
}

impl<'a> FailureWatch<'a> {
    fn new(stream: &'a Stream) -> Self {
        Self { stream, wait: None }
    }

    fn fires(&mut self, cx: &mut Context<'_>, is_read: bool) -> bool {
        if is_read {
            self.wait = None;
            return false;
        }
        let stream = self.stream;
        self.wait.get_or_insert_with(|| Box::pin(stream.failed())).as_mut().poll(cx).is_ready()
    }
}

/// Which connections are known to have failed.
#[derive(Debug, Default, Clone, Copy)]
struct Broken {
    client: bool,
    upstream: bool,
}

impl Broken {
    fn any(self) -> bool {
        self.client || self.upstream
    }
}

#[derive(Debug, Clone, Copy)]
enum Side {
    Client,
    Upstream,
}

/// Both directions of a running tunnel.
struct Copy<'a, M, T> {
    client: &'a Stream,
    upstream: &'a Stream,
    counters: &'a Counters,
    meter: &'a M,
    up: &'a mut Pump,
    down: &'a mut Pump,
    gate: &'a mut Option<Box<dyn Gate<T>>>,
    /// The first failed write. What the failed side had sent is still delivered.
    failure: Option<(Side, io::Error)>,
}

impl<M: Meter, T> Copy<'_, M, T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End<T>> {
        // What comes down may open the gate for what goes up.
        for direction in [Direction::Down, Direction::Up] {
            let (pump, mut lane, source, sink) = self.split(direction);
            match pump.poll(cx, &mut lane) {
                Poll::Pending | Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(Fault::Exhausted)) => return Poll::Ready(End::Exhausted),
                Poll::Ready(Err(Fault::Refused(why))) => return Poll::Ready(End::Refused(why)),
                Poll::Ready(Err(Fault::Read(error))) => {
                    return Poll::Ready(self.fail(source, error));
                }
                Poll::Ready(Err(Fault::Write(error))) => {
                    pump.abandon();
                    self.failure.get_or_insert((sink, error));
                }
            }
        }
        if !(self.up.ended() && self.down.ended()) {
            return Poll::Pending;
        }
        Poll::Ready(match self.failure.take() {
            Some((side, error)) => self.fail(side, error),
            None => End::Finished,
        })
    }

    /// One direction: its pump, its lane, the side it reads and the side it writes.
    fn split(&mut self, direction: Direction) -> (&mut Pump, Lane<'_, M, T>, Side, Side) {
        let (pump, from, to, sent, source, sink) = match direction {
            Direction::Up => {
                (&mut *self.up, self.client, self.upstream, &self.counters.up, Side::Client, Side::Upstream)
            }
            Direction::Down => (
                &mut *self.down,
                self.upstream,
                self.client,
                &self.counters.down,
                Side::Upstream,
                Side::Client,
            ),
        };
        let lane = Lane { from, to, sent, meter: self.meter, gate: self.gate, direction };
        (pump, lane, source, sink)
    }

    /// The end by a failure of `side`, unless an earlier one is known.
    fn fail(&mut self, side: Side, error: io::Error) -> End<T> {
        match self.failure.take().unwrap_or((side, error)) {
            (Side::Client, error) => End::ClientError(error),
            (Side::Upstream, error) => End::UpstreamError(error),
        }
    }

    /// The end by a broken connection from which nothing more will be read. One
    /// that is still read ends by its own read error, after its last bytes.
    fn end_if_unread(&mut self, broken: Broken) -> Option<End<T>> {
        let (side, stream) = if broken.client && (self.up.ended() || self.gate.is_some()) {
            (Side::Client, self.client)
        } else if broken.upstream && self.down.ended() {
            (Side::Upstream, self.upstream)
        } else {
            return None;
        };
        let pending = stream.socket().take_error().ok().flatten();
        let error = pending.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into());
        Some(self.fail(side, error))
    }

    /// Whether bytes were passed on since the last call.
    fn took_progress(&mut self) -> bool {
        // Not a lazy `||`: both flags must be cleared.
        self.up.took_progress() | self.down.took_progress()
    }

    fn half_closed(&self) -> bool {
        self.up.source_ended() || self.down.source_ended()
    }

    /// Gives back what the meter granted in vain.
    fn settle(&mut self) {
        for direction in [Direction::Up, Direction::Down] {
            let (pump, lane, ..) = self.split(direction);
            pump.settle(&lane);
        }
    }
}

#[cfg(test)]
mod tests;
