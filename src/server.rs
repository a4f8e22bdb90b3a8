//! Listeners: accepts clients up to a ceiling and hands each connection to an entry.
//!
//! Never stops accepting for good: when descriptors run out it waits a little and goes on.

mod datagrams;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use crate::entry::{Gate, dns, http, socks, tls, transparent};

pub use datagrams::bind_datagrams;

/// Connections that the kernel keeps while they wait to be accepted.
const BACKLOG: i32 = 4096;
/// How long to wait when the system has no descriptor to give.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// Time between two log lines about the same trouble.
const LOG_EVERY: Duration = Duration::from_secs(1);
/// Descriptors for everything that is not a client's connection or its way out.
const RESERVED: usize = 64;
/// Ceiling on client connections where the descriptor limit is no bound.
const MOST_CONNECTIONS: usize = 32_768;
/// Most idle connections to origins.
const MOST_IDLE: usize = 1024;
/// Most questions to DNS servers at once.
const MOST_LOOK_UPS: usize = 1024;
/// Most questions for names in datagrams that wait for their answers at once.
const MOST_QUESTIONS: usize = 1024;
/// Most of them of one client address. So many are ahead of another client's question at most, while
/// one within its default limits has hardly more under way at the slowest of servers.
const MOST_QUESTIONS_PER_CLIENT: usize = MOST_QUESTIONS / 8;
/// The share of the ceiling on connections that one client address may take, in quarters.
const QUARTERS_PER_CLIENT: usize = 3;

/// Opens a listening socket for the runtime.
///
/// # Errors
/// The address can't be bound.
pub fn bind(address: SocketAddr, door: Door) -> io::Result<TcpListener> {
    TcpListener::from_std(listen(address, door)?)
}

/// Opens a listening socket that does not wait.
///
/// # Errors
/// The address can't be bound.
pub fn listen(address: SocketAddr, door: Door) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]` alone must not take IPv4 clients too: that is what `0.0.0.0` is for.
        socket.set_only_v6(true)?;
    }
    if door == Door::Transparent {
        // For TPROXY, which needs CAP_NET_ADMIN or CAP_NET_RAW; what REDIRECT diverts comes in without it.
        let set = if address.is_ipv6() {
            socket.set_ip_transparent_v6(true)
        } else {
            socket.set_ip_transparent_v4(true)
        };
        if let Err(error) = set {
            tracing::info!(
                %error,
                %address,
                "REDIRECT and DNAT can divert to this listener, but TPROXY can't without CAP_NET_ADMIN"
            );
        }
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// How the process's descriptors are shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Client connections; each may need a second descriptor for its way out.
    pub connections: usize,
    /// Connections to origins that lie idle.
    pub idle_upstreams: usize,
    /// Questions to DNS servers that wait for an answer.
    pub look_ups: usize,
}

impl Budget {
    /// How many descriptors this process may have once it has raised its limit.
    #[must_use]
    pub fn most_descriptors() -> usize {
        count(getrlimit(Resource::Nofile).maximum)
    }

    /// Raises the soft descriptor limit to the hard one; says what it is now.
    pub fn raise() -> usize {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => count(limit.maximum),
            Err(_) => count(limit.current),
        }
    }

    /// Raises the soft descriptor limit to the hard one and shares it out. `wanted` are the
    /// client connections that the configuration asks for.
    #[must_use]
    pub fn of_this_process(wanted: Option<usize>) -> Self {
        let budget = Self::of(Self::raise(), wanted);
        match wanted {
            Some(wanted) if wanted > budget.connections => {
                let fit = budget.connections;
                tracing::warn!(wanted, fit, "the descriptor limit does not permit max_connections");
            }
            None if budget.connections < 1024 => {
                let fit = budget.connections;
                tracing::warn!(fit, "the descriptor limit permits few connections; raise it (ulimit -n)");
            }
            _ => {}
        }
        budget
    }

    /// Shares out `descriptors`: a reserve, an eighth each for idle connections to origins and
    /// for look-ups, and the rest for clients.
    fn of(descriptors: usize, wanted: Option<usize>) -> Self {
        let rest = descriptors.saturating_sub(RESERVED);
        let eighth = rest / 8;
        let idle_upstreams = eighth.min(MOST_IDLE);
        let look_ups = eighth.clamp(1, MOST_LOOK_UPS);
        // A client's connection and its way out take two.
        let fit = (rest.saturating_sub(idle_upstreams + look_ups) / 2).clamp(1, MOST_CONNECTIONS);
        Self { connections: wanted.map_or(fit, |wanted| wanted.min(fit)), idle_upstreams, look_ups }
    }
}

/// A limit as a number; that there is none, as the largest.
fn count(limit: Option<u64>) -> usize {
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// What clients speak at a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// HTTP/1.
    Plain,
    /// HTTP/1 inside TLS.
    Tls,
    /// SOCKS version 5.
    Socks,
    /// HTTP/1 or SOCKS, which the first octet tells apart.
    Both,
    /// DNS.
    Dns,
    /// Whatever they say to the destinations that they believe to be connected to.
    Transparent,
}

/// The proxy's listeners and what bounds them.
pub struct Server {
    gate: Arc<Gate>,
    room: Room,
    /// For questions in datagrams.
    questions: Room,
    strangers: Arc<dns::Strangers>,
    tasks: TaskTracker,
}

impl Server {
    /// A server for at most `ceiling` client connections.
    #[must_use]
    pub fn new(gate: Arc<Gate>, ceiling: usize) -> Self {
        Self {
            gate,
            room: Room::new(ceiling, ceiling * QUARTERS_PER_CLIENT / 4),
            questions: Room::new(MOST_QUESTIONS, MOST_QUESTIONS_PER_CLIENT),
            strangers: Arc::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// The tasks of client connections.
    #[must_use]
    pub const fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Accepts clients until the process begins to stop.
    pub async fn accept(&self, listener: TcpListener, door: Door, stopping: impl Future<Output = ()>) {
        let mut stopping = std::pin::pin!(stopping);
        let mut trouble = Trouble::default();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = &mut stopping => return,
            };
            match accepted {
                Ok((stream, peer)) => self.take(stream, peer, door, &mut trouble),
                Err(error) if is_passing(&error) => {}
                Err(error) => {
                    // Idle connections to origins hold descriptors that nobody needs.
                    self.gate.egress.shed_idle();
                    if trouble.tell().is_some() {
                        tracing::error!(%error, "clients can't be accepted; trying again");
                    }
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                }
            }
        }
    }

    fn take(&self, stream: TcpStream, peer: SocketAddr, door: Door, trouble: &mut Trouble) {
        let Some(slot) = self.room.slot(peer.ip()) else {
            self.gate.egress.metrics().connection_refused();
            if let Some(count) = trouble.tell() {
                tracing::warn!(ceiling = self.room.ceiling, count, "at the ceiling of client connections");
                self.gate.egress.record_overload(peer, count);
            }
            // Not tracked: it ends at once, and holds no slot. Over TLS it would take a handshake, and
            // SOCKS has no word for it before the client has sent three messages.
            match door {
                Door::Plain | Door::Both => {
                    tokio::spawn(turn_away(stream, door, Arc::clone(&self.gate.name)));
                }
                // To a program that knows of no proxy a plain end would look like a complete answer.
                Door::Transparent => {
                    let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                }
                Door::Tls | Door::Socks | Door::Dns => {}
            }
            return;
        };
        if let Err(error) = prepare(&stream) {
            tracing::debug!(%error, %peer, "a client left before it was served");
            return;
        }
        let gate = Arc::clone(&self.gate);
        let open = gate.egress.metrics().connection_open();
        let tasks = self.tasks.clone();
        let strangers = Arc::clone(&self.strangers);
        self.tasks.spawn(async move {
            let closing = gate.egress.closing();
            let serving = async {
                match door {
                    Door::Plain => http::serve(gate, stream.into(), peer.into()).await,
                    Door::Tls => tls::serve(gate, stream, peer.into()).await,
                    Door::Socks => socks::serve(gate, stream.into(), peer).await,
                    Door::Both => socks::serve_either(gate, stream, peer).await,
                    Door::Dns => {
                        dns::serve(gate, stream, peer, strangers).await;
                        None
                    }
                    Door::Transparent => transparent::serve(gate, stream, peer).await,
                }
            };
            let served = tokio::select! {
                served = serving => served,
                // What does not end by itself at a stop is dropped.
                () = closing => None,
            };
            if let Some(tunnel) = served {
                // A task of its own frees what serving HTTP took.
                tasks.spawn(tunnel.carry((slot, open)));
            }
        });
    }
}

/// Places for what clients have open, of which none may take all.
struct Room {
    slots: Arc<Semaphore>,
    clients: Clients,
    ceiling: usize,
    most_per_client: usize,
}

impl Room {
    fn new(ceiling: usize, most_per_client: usize) -> Self {
        let slots = Arc::new(Semaphore::new(ceiling));
        Self { slots, clients: Clients::default(), ceiling, most_per_client: most_per_client.max(1) }
    }

    /// A place for one more of a client, which leaves room for other clients.
    fn slot(&self, client: IpAddr) -> Option<Slot> {
        let permit = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        let client = subscriber(client);
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let count = clients.entry(client).or_default();
        if *count >= self.most_per_client {
            return None;
        }
        *count += 1;
        Some(Slot { _permit: permit, clients: Arc::clone(&self.clients), client })
    }
}

/// A client's place under the ceiling.
struct Slot {
    _permit: OwnedSemaphorePermit,
    clients: Clients,
    client: IpAddr,
}

type Clients = Arc<Mutex<HashMap<IpAddr, usize>>>;

impl Drop for Slot {
    fn drop(&mut self) {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = clients.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&self.client);
            }
        }
    }
}

/// Whose connections count together: an IPv6 client has a whole /64 of addresses.
fn subscriber(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    crate::dial::keep_alive(stream)
}

/// Says `overloaded` without reading anything; nothing to a client of SOCKS.
async fn turn_away(mut stream: TcpStream, door: Door, name: Arc<str>) {
    let answer = format!(
        "HTTP/1.1 503 egret overloaded\r\n\
         Proxy-Status: {}; error=proxy_internal_error; details=\"overloaded\"\r\n\
         X-Egret-Reason: overloaded\r\nRetry-After: 1\r\n\
         Content-Length: 0\r\nConnection: close\r\n\r\n",
        crate::entry::proxy_status_name(&name)
    );
    let answered = async {
        if door == Door::Both && socks::speaks(&stream).await? {
            return Ok(());
        }
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    };
    // The client is refused whether or not it reads that.
    let _ = tokio::time::timeout(Duration::from_secs(1), answered).await;
}

/// Errors of `accept` that belong to the one client.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

/// Keeps the log readable while the same trouble goes on.
#[derive(Debug, Default)]
struct Trouble {
    told: Option<Instant>,
    untold: u64,
}

impl Trouble {
    /// Counts one more; how many there were since the last word, if it is time for another.
    fn tell(&mut self) -> Option<u64> {
        self.untold += 1;
        if self.told.is_some_and(|told| told.elapsed() < LOG_EVERY) {
            return None;
        }
        self.told = Some(Instant::now());
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_never_promised_twice() {
        for descriptors in [0, 64, 128, 256, 1024, 20_000, 1 << 20, usize::MAX] {
            let Budget { connections, idle_upstreams, look_ups } = Budget::of(descriptors, None);
            assert!(connections >= 1 && look_ups >= 1);
            if descriptors >= 128 {
                assert!(RESERVED + 2 * connections + idle_upstreams + look_ups <= descriptors);
            }
        }
        assert_eq!(Budget::of(20_000, Some(100)).connections, 100);
        assert_eq!(Budget::of(256, Some(100_000)).connections, Budget::of(256, None).connections);
    }
}
