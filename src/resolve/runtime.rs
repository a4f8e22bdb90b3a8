//! What hickory runs on: its sockets come from `dial`, and lead to configured DNS servers alone.
//!
//! [`Connector`] also keeps why a connection failed, which hickory's pool does not pass on.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hickory_resolver::config::ConnectionConfig;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::iocompat::AsyncIoTokioAsStd;
use hickory_resolver::net::runtime::{DnsUdpSocket, RuntimeProvider, TokioHandle, TokioTime};
use hickory_resolver::{ConnectionProvider, PoolContext};
use tokio::io::{Interest, ReadBuf};
use tokio::net::{TcpStream, UdpSocket};

use crate::dial::{ConfiguredAddr, configured_tcp, configured_udp};

/// Limit for a connect that hickory does not limit itself. The look-up's own deadline is shorter.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Opens sockets to `servers` and to nothing else, whatever hickory asks for.
#[derive(Clone)]
pub(super) struct Runtime {
    servers: Arc<[ConfiguredAddr]>,
    handle: TokioHandle,
}

impl Runtime {
    pub(super) fn new(servers: impl IntoIterator<Item = ConfiguredAddr>) -> Self {
        Self { servers: servers.into_iter().collect(), handle: TokioHandle::default() }
    }

    fn configured(&self, addr: SocketAddr) -> io::Result<ConfiguredAddr> {
        let known = self.servers.iter().find(|server| server.get() == addr);
        known.copied().ok_or_else(|| {
            let text = format!("{addr} is not a configured DNS server");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })
    }
}

/// Opens the connections to one server and keeps the reason when that fails.
#[derive(Clone)]
pub(super) struct Connector {
    runtime: Runtime,
    failure: Arc<Mutex<Option<String>>>,
}

impl Connector {
    pub(super) fn new(runtime: Runtime) -> Self {
        Self { runtime, failure: Arc::default() }
    }

    /// Why the latest failed connection failed; taken once.
    pub(super) fn take_failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

type Connecting<C> = Pin<Box<dyn Future<Output = Result<C, NetError>> + Send>>;

impl ConnectionProvider for Connector {
    type Conn = <Runtime as ConnectionProvider>::Conn;
    type FutureConn = Connecting<Self::Conn>;
    type RuntimeProvider = Runtime;

    fn new_connection(
        &self,
        ip: IpAddr,
        config: &ConnectionConfig,
        cx: &PoolContext,
    ) -> Result<Self::FutureConn, NetError> {
        let connecting = self.runtime.new_connection(ip, config, cx)?;
        let failure = Arc::clone(&self.failure);
        Ok(Box::pin(async move {
            connecting.await.inspect_err(|error| {
                let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                *failure = Some(error.to_string());
            })
        }))
    }

    fn runtime_provider(&self) -> &Runtime {
        &self.runtime
    }
}

type Opening<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

impl RuntimeProvider for Runtime {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = ServerUdp;
    type Tcp = AsyncIoTokioAsStd<TcpStream>;

    fn create_handle(&self) -> TokioHandle {
        self.handle.clone()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        bind: Option<SocketAddr>,
        limit: Option<Duration>,
    ) -> Opening<Self::Tcp> {
        let server = self.configured(server);
        Box::pin(async move {
            let stream = configured_tcp(server?, bind, limit.unwrap_or(CONNECT_LIMIT)).await?;
            Ok(AsyncIoTokioAsStd(stream))
        })
    }

    fn bind_udp(&self, local: SocketAddr, server: SocketAddr) -> Opening<Self::Udp> {
        let opened = self.configured(server).and_then(|server| {
            let socket = configured_udp(server, local)?;
            Ok(ServerUdp { socket, server: server.get() })
        });
        Box::pin(async move { opened })
    }
}

/// A UDP socket connected to one DNS server. A closed port there is an error at once, not a
/// time-out.
pub(super) struct ServerUdp {
    socket: UdpSocket,
    server: SocketAddr,
}

impl ServerUdp {
    /// Waits for errors as well: what an ICMP message leaves on the socket makes it neither
    /// readable nor writable, so that waiting for data alone would miss it.
    async fn receive(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        loop {
            let ready = self.socket.ready(Interest::READABLE | Interest::ERROR).await?;
            if ready.is_error() {
                if let Some(error) = self.socket.take_error()? {
                    return Err(error);
                }
                // Someone else took the error: forget the readiness, or this loop would spin.
                let nothing = || io::Result::<()>::Err(io::ErrorKind::WouldBlock.into());
                let _ = self.socket.try_io(Interest::ERROR, nothing);
            }
            match self.socket.try_recv(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Ok((result?, self.server)),
            }
        }
    }
}

impl DnsUdpSocket for ServerUdp {
    type Time = TokioTime;

    // The trait declares `async fn`s through a macro; this is what it makes of them.
    fn recv_from<'socket, 'buf, 'call>(
        &'socket self,
        buf: &'buf mut [u8],
    ) -> Pin<Box<dyn Future<Output = io::Result<(usize, SocketAddr)>> + Send + 'call>>
    where
        'socket: 'call,
        'buf: 'call,
    {
        Box::pin(self.receive(buf))
    }

    fn poll_recv_from(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>> {
        let mut buf = ReadBuf::new(buf);
        ready!(self.socket.poll_recv(cx, &mut buf))?;
        Poll::Ready(Ok((buf.filled().len(), self.server)))
    }

    fn poll_send_to(&self, cx: &mut Context<'_>, buf: &[u8], target: SocketAddr) -> Poll<io::Result<usize>> {
        if target != self.server {
            return Poll::Ready(Err(io::ErrorKind::InvalidInput.into()));
        }
        self.socket.poll_send(cx, buf)
    }
}
