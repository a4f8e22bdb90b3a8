//! Listeners: accepts clients up to a ceiling and hands each connection to an entry.
//!
//! Never stops accepting for good: when descriptors run out it waits a little and goes on.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::entry::{Gate, http};

/// Connections that the kernel keeps while they wait to be accepted.
const BACKLOG: i32 = 4096;
/// How long to wait when the system has no descriptor to give.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// Time between two log lines about the same trouble.
const LOG_EVERY: Duration = Duration::from_secs(1);
/// Descriptors for everything that is not a client's connection or its way out.
const RESERVED: u64 = 64;
/// Ceiling on client connections where the descriptor limit is no bound.
const MOST_CONNECTIONS: u64 = 32_768;

/// Opens a listening socket.
///
/// # Errors
/// The address can't be bound.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]` alone must not take IPv4 clients too: that is what `0.0.0.0` is for.
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Raises the soft descriptor limit to the hard one; the ceiling on connections that leaves.
#[must_use]
pub fn connection_ceiling(wanted: Option<usize>) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    // A client's connection and its way out take two.
    let fit = now.map_or(MOST_CONNECTIONS, |n| (n.saturating_sub(RESERVED) / 2).clamp(1, MOST_CONNECTIONS));
    let fit = usize::try_from(fit).unwrap_or(usize::MAX);
    match wanted {
        Some(wanted) if wanted > fit => {
            tracing::warn!(wanted, fit, "the descriptor limit does not permit max_connections");
            fit
        }
        Some(wanted) => wanted,
        None => {
            if fit < 1024 {
                tracing::warn!(fit, "the descriptor limit permits few connections; raise it (ulimit -n)");
            }
            fit
        }
    }
}

/// The proxy's listeners and what bounds them.
pub struct Server {
    gate: Arc<Gate>,
    slots: Arc<Semaphore>,
    ceiling: usize,
    tasks: TaskTracker,
}

impl Server {
    /// A server for at most `ceiling` client connections.
    #[must_use]
    pub fn new(gate: Arc<Gate>, ceiling: usize) -> Self {
        Self { gate, slots: Arc::new(Semaphore::new(ceiling)), ceiling, tasks: TaskTracker::new() }
    }

    /// The tasks of client connections.
    #[must_use]
    pub const fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Accepts clients until the process begins to stop.
    pub async fn accept(&self, listener: TcpListener, stopping: impl Future<Output = ()>) {
        let mut stopping = std::pin::pin!(stopping);
        let mut trouble = Trouble::default();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = &mut stopping => return,
            };
            match accepted {
                Ok((stream, peer)) => self.take(stream, peer, &mut trouble),
                Err(error) if is_passing(&error) => {}
                Err(error) => {
                    if trouble.tell().is_some() {
                        tracing::error!(%error, "clients can't be accepted; trying again");
                    }
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                }
            }
        }
    }

    fn take(&self, stream: TcpStream, peer: SocketAddr, trouble: &mut Trouble) {
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            self.gate.egress.metrics().connection_refused();
            if let Some(count) = trouble.tell() {
                tracing::warn!(ceiling = self.ceiling, count, "at the ceiling of client connections");
                self.gate.egress.record_overload(peer, count);
            }
            // Not tracked: it ends at once, and holds no slot.
            tokio::spawn(turn_away(stream, Arc::clone(&self.gate.name)));
            return;
        };
        if let Err(error) = prepare(&stream) {
            tracing::debug!(%error, %peer, "a client left before it was served");
            return;
        }
        let gate = Arc::clone(&self.gate);
        let open = gate.egress.metrics().connection_open();
        let tasks = self.tasks.clone();
        self.tasks.spawn(async move {
            if let Some(tunnel) = http::serve(gate, stream, peer).await {
                // A task of its own frees what serving HTTP took.
                let carry = tunnel.carry();
                tasks.spawn(async move {
                    carry.await;
                    drop((slot, open));
                });
            }
        });
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    crate::dial::keep_alive(stream)
}

/// Says `overloaded` without reading anything.
async fn turn_away(mut stream: TcpStream, name: Arc<str>) {
    let answer = format!(
        "HTTP/1.1 503 egret overloaded\r\n\
         Proxy-Status: {}; error=proxy_internal_error; details=\"overloaded\"\r\n\
         X-Egret-Reason: overloaded\r\nRetry-After: 1\r\n\
         Content-Length: 0\r\nConnection: close\r\n\r\n",
        crate::entry::proxy_status_name(&name)
    );
    let answered = async {
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
