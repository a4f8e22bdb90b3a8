//! The only place that opens outbound sockets.
//!
//! Takes addresses, never names, and connects to exactly those it was given: what may be dialled
//! is decided before. Connecting to an origin races the addresses of both families (Happy
//! Eyeballs, RFC 8305 section 5); DNS servers and other peers that the configuration names go
//! through [`ConfiguredAddr`].

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use egret_policy::PinnedAddr;
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

/// Idle time before the first keep-alive probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// Time between keep-alive probes that nothing answers.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// How to dial. The defaults are those of RFC 8305 section 8 where it has one.
#[derive(Debug, Clone, Copy)]
pub struct DialSettings {
    /// Time for the whole connect, all addresses together.
    pub connect_timeout: Duration,
    /// Time between the starts of two attempts, unless one fails earlier.
    pub stagger: Duration,
    /// Most addresses that one connect tries; the rest is never touched.
    pub max_addresses: usize,
}

impl Default for DialSettings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            stagger: Duration::from_millis(250),
            max_addresses: 8,
        }
    }
}

/// Opens connections to origins.
#[derive(Debug, Clone, Copy, Default)]
pub struct Dialer {
    settings: DialSettings,
}

/// An open connection.
#[derive(Debug)]
pub struct Connected {
    /// Nagle's algorithm is off, keep-alive is on.
    pub stream: TcpStream,
    /// The checked address that answered first.
    pub peer: PinnedAddr,
    /// The addresses that failed before it, in the order of their failure.
    pub failed: Vec<FailedAttempt>,
}

/// One address that did not connect.
#[derive(Debug)]
pub struct FailedAttempt {
    /// The address.
    pub addr: SocketAddr,
    /// What its failure counts as.
    pub cause: DialCause,
    /// The system's error; none for an attempt still open when the time was up.
    pub error: Option<io::Error>,
}

/// What a failed connect counts as. The order is that of weight: where the addresses of one
/// connect differ, the greatest decides, because it tells most. Lack of our own resources says
/// nothing about the destination and must not be hidden; a refusal proves that a host is there;
/// silence is what a filter does; no route often means only that one family is not in use here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DialCause {
    /// None of the others.
    Other,
    /// No route, or a local firewall forbids it.
    Unroutable,
    /// Nothing came back in time.
    Timeout,
    /// The peer answered with a reset.
    Refused,
    /// Out of descriptors, ports or memory for sockets on this machine.
    Overloaded,
}

/// No address connected.
#[derive(Debug, thiserror::Error)]
#[error("{}", Listed(self))]
pub struct DialError {
    /// The weightiest cause.
    pub cause: DialCause,
    /// Every address that was tried; empty only if none was given.
    pub attempts: Vec<FailedAttempt>,
}

/// A peer that the operator named: a DNS server or a parent proxy. Not subject to the checks that
/// a destination passes, so nothing a client sends may ever become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConfiguredAddr(SocketAddr);

impl ConfiguredAddr {
    /// For code that has the address from the configuration, or from DNS for a name that stands there.
    pub fn new(addr: SocketAddr) -> Self {
        Self(addr)
    }

    /// The address.
    pub fn get(self) -> SocketAddr {
        self.0
    }
}

impl Dialer {
    /// A dialler; `max_addresses` of 0 counts as 1.
    pub fn new(settings: DialSettings) -> Self {
        Self { settings }
    }

    /// Connects to the first of these checked addresses that answers. Dropping the future closes
    /// every attempt.
    ///
    /// # Errors
    /// None of them connected in time.
    pub async fn connect(&self, addresses: &[PinnedAddr]) -> Result<Connected, DialError> {
        let candidates: Vec<_> = addresses.iter().map(|pinned| pinned.socket_addr()).collect();
        let Won { stream, peer, mut failed } = self.race(&candidates).await?;
        match addresses.iter().find(|pinned| pinned.socket_addr() == peer) {
            Some(pinned) => Ok(Connected { stream, peer: *pinned, failed }),
            // Can't be: the race runs over the route's addresses alone.
            None => {
                failed.push(FailedAttempt { addr: peer, cause: DialCause::Other, error: None });
                Err(DialError { cause: DialCause::Other, attempts: failed })
            }
        }
    }

    /// Connects to the first address of a peer that the configuration names.
    ///
    /// # Errors
    /// None of them connected in time.
    pub async fn connect_configured(&self, addresses: &[ConfiguredAddr]) -> Result<TcpStream, DialError> {
        let candidates: Vec<_> = addresses.iter().map(|configured| configured.get()).collect();
        self.race(&candidates).await.map(|won| won.stream)
    }

    /// The order in which these addresses are tried where one has to wait for the other, and no
    /// more of them than one connect may try.
    #[must_use]
    pub fn in_order(&self, addresses: &[PinnedAddr]) -> Vec<PinnedAddr> {
        let candidates: Vec<_> = addresses.iter().map(|pinned| pinned.socket_addr()).collect();
        let order = interleave(&candidates, self.settings.max_addresses.max(1)).into_iter();
        let pinned = |addr| addresses.iter().find(|pinned| pinned.socket_addr() == addr).copied();
        order.filter_map(pinned).collect()
    }

    async fn race(&self, candidates: &[SocketAddr]) -> Result<Won, DialError> {
        let waiting = interleave(candidates, self.settings.max_addresses.max(1));
        let deadline = Instant::now() + self.settings.connect_timeout;
        Race::new(waiting, self.settings.stagger).run(deadline).await
    }
}

/// The attempt that connected first.
#[derive(Debug)]
struct Won {
    stream: TcpStream,
    peer: SocketAddr,
    failed: Vec<FailedAttempt>,
}

/// One connect in progress.
struct Race {
    waiting: VecDeque<SocketAddr>,
    stagger: Duration,
    /// Dropping the set ends the attempts in it.
    running: JoinSet<(SocketAddr, io::Result<TcpStream>)>,
    /// The attempts in `running`, in the order of their start.
    open: Vec<SocketAddr>,
    failed: Vec<FailedAttempt>,
    next_start: Instant,
}

impl Race {
    fn new(waiting: VecDeque<SocketAddr>, stagger: Duration) -> Self {
        Self {
            waiting,
            stagger,
            running: JoinSet::new(),
            open: Vec::new(),
            failed: Vec::new(),
            next_start: Instant::now(),
        }
    }

    async fn run(mut self, deadline: Instant) -> Result<Won, DialError> {
        self.start_next();
        while !self.running.is_empty() {
            tokio::select! {
                Some(done) = self.running.join_next() => {
                    if let Ok((peer, result)) = done {
                        match result {
                            Ok(stream) => return Ok(Won { stream, peer, failed: self.failed }),
                            Err(error) => self.fail(peer, error),
                        }
                    }
                    // RFC 8305 section 5: a failed attempt does not make the next one wait.
                    self.start_next();
                }
                () = sleep_until(self.next_start), if !self.waiting.is_empty() => self.start_next(),
                () = sleep_until(deadline) => break,
            }
        }
        Err(self.give_up())
    }

    fn start_next(&mut self) {
        if let Some(addr) = self.waiting.pop_front() {
            self.open.push(addr);
            self.running.spawn(async move { (addr, open_tcp(addr, None).await) });
            self.next_start = Instant::now() + self.stagger;
        }
    }

    fn fail(&mut self, addr: SocketAddr, error: io::Error) {
        self.open.retain(|open| *open != addr);
        self.failed.push(FailedAttempt { addr, cause: cause_of(&error, addr), error: Some(error) });
    }

    fn give_up(mut self) -> DialError {
        let silent = self.open.into_iter();
        self.failed.extend(silent.map(|addr| FailedAttempt { addr, cause: DialCause::Timeout, error: None }));
        let cause = self.failed.iter().map(|attempt| attempt.cause).max();
        DialError { cause: cause.unwrap_or(DialCause::Other), attempts: self.failed }
    }
}

/// The first `most` addresses, each once, families alternating, IPv6 first when there is one
/// (RFC 8305 section 4); the order inside a family is kept.
fn interleave(candidates: &[SocketAddr], most: usize) -> VecDeque<SocketAddr> {
    let (mut first, mut second): (VecDeque<SocketAddr>, VecDeque<SocketAddr>) =
        candidates.iter().partition(|addr| addr.is_ipv6());
    let mut order = VecDeque::new();
    while order.len() < most {
        let Some(addr) = first.pop_front().or_else(|| second.pop_front()) else {
            break;
        };
        if !order.contains(&addr) {
            order.push_back(addr);
            std::mem::swap(&mut first, &mut second);
        }
    }
    order
}

/// What an error of `socket` or `connect` to `addr` counts as.
fn cause_of(error: &io::Error, addr: SocketAddr) -> DialCause {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS) => return DialCause::Overloaded,
        Some(Errno::AFNOSUPPORT | Errno::HOSTDOWN) => return DialCause::Unroutable,
        _ => {}
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => DialCause::Refused,
        io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkDown
        | io::ErrorKind::PermissionDenied => DialCause::Unroutable,
        // IPv6 without any local address: the family is switched off on this machine. With IPv4
        // it means that no local port is free for this peer.
        io::ErrorKind::AddrNotAvailable if addr.is_ipv6() => DialCause::Unroutable,
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => {
            DialCause::Overloaded
        }
        io::ErrorKind::TimedOut => DialCause::Timeout,
        _ => DialCause::Other,
    }
}

/// "connect failed: 192.0.2.1:443 timed out, 192.0.2.2:443 Connection refused (os error 111)".
struct Listed<'a>(&'a DialError);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.attempts.is_empty() {
            return f.write_str("connect failed: no address to connect to");
        }
        f.write_str("connect failed: ")?;
        for (n, attempt) in self.0.attempts.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{attempt}")?;
        }
        Ok(())
    }
}

impl fmt::Display for FailedAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            Some(error) => write!(f, "{} {error}", self.addr),
            None => write!(f, "{} timed out", self.addr),
        }
    }
}

/// Opens a TCP connection to a peer that the configuration names.
pub async fn configured_tcp(
    addr: ConfiguredAddr,
    bind: Option<SocketAddr>,
    limit: Duration,
) -> io::Result<TcpStream> {
    match timeout(limit, open_tcp(addr.0, bind)).await {
        Ok(result) => result,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Opens a UDP socket connected to a peer that the configuration names: the kernel then drops
/// what others send, and reports a closed port at once. `local` port 0 lets the system choose.
pub fn configured_udp(addr: ConfiguredAddr, local: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(addr.0), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.bind(&local.into())?;
    socket.connect(&addr.0.into())?;
    UdpSocket::from_std(socket.into())
}

#[allow(clippy::disallowed_methods, reason = "this is the place where connections are opened")]
async fn open_tcp(addr: SocketAddr, bind: Option<SocketAddr>) -> io::Result<TcpStream> {
    let socket = match addr.ip() {
        IpAddr::V4(_) => TcpSocket::new_v4()?,
        IpAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if let Some(local) = bind {
        socket.bind(local)?;
    }
    socket.set_nodelay(true)?;
    SockRef::from(&socket).set_tcp_keepalive(&keepalive_probes())?;
    socket.connect(addr).await
}

fn keepalive_probes() -> TcpKeepalive {
    TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL)
}

/// Has the kernel find out when the peer of an accepted connection is dead.
///
/// # Errors
/// The connection is gone.
pub fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_tcp_keepalive(&keepalive_probes())
}

/// Is the address one of this machine's own? Asks the kernel by binding to it; where it gives no
/// answer, as without a descriptor, the address counts as one.
#[must_use]
pub fn is_local(address: IpAddr) -> bool {
    let address = SocketAddr::new(address, 0);
    let bound = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
        .and_then(|socket| socket.bind(&address.into()));
    bound.map_or_else(|error| !says_elsewhere(&error), |()| true)
}

/// Is this the kernel's word that no such address is here, or none of its family?
fn says_elsewhere(error: &io::Error) -> bool {
    let no_family = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(no_family)
}

#[cfg(test)]
#[path = "dial_tests.rs"]
mod tests;
