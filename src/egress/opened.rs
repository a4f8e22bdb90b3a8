//! A way out that was decided, dialled and recorded: a tunnel, or the exchange of one request.
//!
//! Dropping one frees it and records its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use egret_policy::{Host, Intent, Reason, Route, TlsRule};
use tokio::net::TcpStream;

use super::{Egress, RedirectDenied, Refused, Stop};
use crate::audit::{Closing, Flow, Text};
use crate::client_hello::{ClientHelloError, ClientHelloReader};
use crate::forward::Upstream;
use crate::limit::{ByteMeter, Permit};
use crate::redirect::Target;
use crate::relay::{self, Counters, Direction, End, Meter};

/// How long one side of a tunnel may be silent after the other has ended.
const HALF_CLOSED: std::time::Duration = std::time::Duration::from_secs(60);
/// Bytes asked of the client at once while its ClientHello is awaited.
const HELLO_READ: usize = 4096;

/// An opened tunnel; no byte has passed yet.
pub struct Tunnel {
    egress: Arc<Egress>,
    upstream: TcpStream,
    route: Route,
    flow: Flow,
    permit: Permit,
    stop: Stop,
}

/// Why a tunnel's first bytes were not let through.
struct NameFault {
    reason: Reason,
    detail: Option<String>,
}

impl NameFault {
    const fn new(reason: Reason) -> Self {
        Self { reason, detail: None }
    }
}

impl Tunnel {
    pub(super) const fn new(
        egress: Arc<Egress>,
        upstream: TcpStream,
        route: Route,
        flow: Flow,
        permit: Permit,
        stop: Stop,
    ) -> Self {
        Self { egress, upstream, route, flow, permit, stop }
    }

    /// The client could not be told that the tunnel is open.
    pub fn abandon(self, error: &std::io::Error) {
        close(self.flow, &Counters::default(), Reason::ClientCancel, Some(error.to_string()), None);
    }

    /// Carries bytes until the tunnel ends, and records the end. `early` are bytes of the client
    /// that were read with its request.
    ///
    /// Where the rule asks for TLS, nothing passes before the ClientHello has named the host.
    pub async fn carry(mut self, client: TcpStream, mut early: BytesMut, host: Host) {
        if self.route.tls == TlsRule::Required
            && let Err(fault) = self.check_name(&client, &mut early, &host).await
        {
            close(self.flow, &Counters::default(), fault.reason, fault.detail, None);
            return;
        }
        let _open = self.egress.metrics.tunnel_open();
        let limits = relay_limits(&self.route);
        let tunnel = relay::Tunnel {
            client,
            upstream: self.upstream,
            early_up: early.freeze(),
            early_down: Bytes::new(),
        };
        let Self { egress, flow, permit, mut stop, .. } = self;
        let watch = FlowWatch { flow: Some(flow), counters: Arc::default(), egress };
        let counters = Arc::clone(&watch.counters);
        let tally = relay::relay(tunnel, limits, counters, permit.meter(), stop.wait()).await;
        watch.end(tally.end, None);
    }

    /// Reads the ClientHello into `early` and compares its server name with the host.
    async fn check_name(
        &mut self,
        client: &TcpStream,
        early: &mut BytesMut,
        host: &Host,
    ) -> Result<(), NameFault> {
        let deadline = tokio::time::Instant::now() + self.egress.timeouts.tls;
        let mut reader = ClientHelloReader::new();
        loop {
            match reader.read(early) {
                Ok(Some(hello)) => return agree(&hello, host),
                Ok(None) => {}
                Err(ClientHelloError::NotTls) => return Err(NameFault::new(Reason::NotTls)),
                Err(error) => {
                    let detail = Some(error.to_string());
                    return Err(NameFault { reason: Reason::TlsMalformed, detail });
                }
            }
            early.reserve(HELLO_READ);
            let read = tokio::select! {
                read = read_some(client, early) => read,
                () = tokio::time::sleep_until(deadline) => return Err(NameFault::new(Reason::TlsTimeout)),
                reason = self.stop.wait() => return Err(NameFault::new(reason)),
            };
            match read {
                Ok(0) | Err(_) => return Err(NameFault::new(Reason::ClientCancel)),
                Ok(_) => {}
            }
        }
    }
}

/// Does the server name agree with the host? An IP literal has none (RFC 6066 section 3).
fn agree(hello: &crate::client_hello::ClientHello, host: &Host) -> Result<(), NameFault> {
    match (hello.server_name(), host) {
        (None, Host::Address(_)) => Ok(()),
        (None, Host::Name(_)) => Err(NameFault::new(Reason::SniMissing)),
        (Some(_), Host::Name(name)) if hello.names_host(name.as_str()) => Ok(()),
        (Some(sni), _) => {
            let detail = format!("server name {}", String::from_utf8_lossy(sni));
            Err(NameFault { reason: Reason::SniMismatch, detail: Some(detail) })
        }
    }
}

/// One read of whatever is there.
async fn read_some(stream: &TcpStream, buffer: &mut BytesMut) -> std::io::Result<usize> {
    loop {
        stream.readable().await?;
        match stream.try_read_buf(buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            result => return result,
        }
    }
}

/// Records the end of relayed bytes, with what had passed, even if the task is dropped.
struct FlowWatch {
    flow: Option<Flow>,
    counters: Arc<Counters>,
    egress: Arc<Egress>,
}

impl FlowWatch {
    fn end(mut self, end: End<Reason>, status: Option<u16>) {
        let (reason, error) = match end {
            End::Finished => (Reason::Allowed, None),
            End::ClientError(error) => (Reason::ClientCancel, Some(error.to_string())),
            End::UpstreamError(error) => (Reason::UpstreamClosed, Some(error.to_string())),
            End::Idle => (Reason::IdleTimeout, None),
            End::HalfClosed => (Reason::IdleTimeout, Some("half-closed without progress".to_owned())),
            End::Lifetime => (Reason::LifetimeExceeded, None),
            End::Exhausted => (Reason::QuotaExceeded, None),
            End::Stopped(reason) => (reason, None),
        };
        self.record(reason, error, status);
    }

    fn record(&mut self, reason: Reason, error: Option<String>, status: Option<u16>) {
        if let Some(flow) = self.flow.take() {
            self.egress.metrics.moved(&self.counters);
            close(flow, &self.counters, reason, error, status);
        }
    }
}

impl Drop for FlowWatch {
    fn drop(&mut self) {
        self.record(Reason::ClientCancel, None, None);
    }
}

fn close(flow: Flow, counters: &Counters, reason: Reason, error: Option<String>, status: Option<u16>) {
    flow.close(Closing {
        bytes_up: counters.up.load(Ordering::Relaxed),
        bytes_down: counters.down.load(Ordering::Relaxed),
        status,
        reason: reason.code(),
        error: error.map(Text::from),
    });
}

/// The way for one request, opened and recorded.
pub struct Exchange {
    intent: Intent,
    upstream: Option<Upstream>,
    redial: Redial,
    permit: Permit,
    stop: Stop,
    watch: FlowWatch,
}

/// Opens another connection over the same checked addresses.
pub struct Redial {
    egress: Arc<Egress>,
    route: Route,
}

impl Redial {
    /// Another connection, where a pooled one turned out to be stale.
    ///
    /// # Errors
    /// None of the addresses connects; the reason says how that failed.
    pub async fn connect(&self) -> Result<Upstream, Reason> {
        let connected = self.egress.dialer.connect(&self.route).await;
        let connected = connected.map_err(|error| super::dial_reason(error.cause))?;
        let opened = Upstream::open(connected.stream, connected.peer).await;
        opened.map_err(|_| Reason::UpstreamProtocol)
    }
}

impl Exchange {
    pub(super) fn new(
        egress: Arc<Egress>,
        intent: Intent,
        upstream: Upstream,
        route: Route,
        flow: Flow,
        permit: Permit,
        stop: Stop,
    ) -> Self {
        let watch = FlowWatch { flow: Some(flow), counters: Arc::default(), egress: Arc::clone(&egress) };
        let redial = Redial { egress, route };
        Self { intent, upstream: Some(upstream), redial, permit, stop, watch }
    }

    /// The audit ID.
    #[must_use]
    pub fn id(&self) -> String {
        self.watch.flow.as_ref().map(|flow| flow.id().to_string()).unwrap_or_default()
    }

    /// The connection to the origin, to be used with [`Exchange::stop`]; taken once.
    pub fn take_upstream(&mut self) -> Option<Upstream> {
        self.upstream.take()
    }

    /// What opens another connection, and what ends the exchange.
    pub const fn parts(&mut self) -> (&Redial, &mut Stop) {
        (&self.redial, &mut self.stop)
    }

    /// Ends when the exchange must be cut.
    pub const fn stop(&mut self) -> &mut Stop {
        &mut self.stop
    }

    /// Decides where a response sends its client, before the client learns of it.
    ///
    /// # Errors
    /// One of the targets is not permitted; that is recorded.
    pub async fn check_redirects(&mut self, targets: &[Target]) -> Result<(), RedirectDenied> {
        let Self { watch, intent, .. } = self;
        match &watch.flow {
            Some(flow) => watch.egress.check_redirects(intent, flow.id(), targets).await,
            None => Err(RedirectDenied),
        }
    }

    /// Where payload bytes are counted.
    #[must_use]
    pub fn counters(&self) -> ByteCounters {
        ByteCounters { counters: Arc::clone(&self.watch.counters), meter: self.permit.meter() }
    }

    /// The exchange is over: records it, and keeps the connection if it can serve another request.
    pub fn finish(
        mut self,
        upstream: Option<Upstream>,
        reason: Reason,
        status: Option<u16>,
        error: Option<String>,
    ) {
        self.watch.record(reason, error, status);
        if let Some(upstream) = upstream {
            self.watch.egress.pool.put(self.intent.clone(), upstream);
        }
    }

    /// A refusal of ours in place of the origin's answer, after the request was let out.
    #[must_use]
    pub fn fail(mut self, reason: Reason, error: Option<String>) -> Refused {
        let id = self.id();
        let status = self.watch.egress.status(reason);
        self.watch.record(reason, error, Some(status));
        Refused { refusal: egret_policy::Refusal::new(reason), status, id, retry_after: None }
    }

    /// Carries the bytes of an upgraded connection until it ends, and records that. Each side
    /// comes with what was already read from it.
    pub async fn carry(self, client: (TcpStream, Bytes), origin: (TcpStream, Bytes), status: u16) {
        let Self { mut stop, watch, redial, permit, .. } = self;
        let _open = watch.egress.metrics.tunnel_open();
        let tunnel =
            relay::Tunnel { client: client.0, upstream: origin.0, early_up: client.1, early_down: origin.1 };
        let limits = relay_limits(&redial.route);
        let counters = Arc::clone(&watch.counters);
        let tally = relay::relay(tunnel, limits, counters, permit.meter(), stop.wait()).await;
        watch.end(tally.end, Some(status));
    }
}

fn relay_limits(route: &Route) -> relay::Limits {
    relay::Limits {
        idle: route.limits.tunnel_idle,
        lifetime: route.limits.tunnel_lifetime,
        half_closed: HALF_CLOSED,
    }
}

/// Counts payload bytes of an exchange, each way, and holds them to the quota.
#[derive(Debug, Clone)]
pub struct ByteCounters {
    counters: Arc<Counters>,
    meter: ByteMeter,
}

impl ByteCounters {
    /// May so many bytes of the request body go to the origin? Takes them all or none.
    #[must_use]
    pub fn take_up(&self, bytes: usize) -> bool {
        self.take(Direction::Up, bytes)
    }

    /// May so many bytes of the response body go to the client? Takes them all or none.
    #[must_use]
    pub fn take_down(&self, bytes: usize) -> bool {
        self.take(Direction::Down, bytes)
    }

    /// Bytes of the request body were handed to the origin.
    pub fn up(&self, bytes: usize) {
        add(&self.counters.up, bytes);
    }

    /// Bytes of the response body were taken by the client's connection.
    pub fn down(&self, bytes: usize) {
        add(&self.counters.down, bytes);
    }

    fn take(&self, direction: Direction, bytes: usize) -> bool {
        if bytes == 0 {
            return true;
        }
        let granted = self.meter.take(direction, bytes);
        if granted < bytes {
            self.meter.give_back(direction, granted);
        }
        granted == bytes
    }
}

fn add(counter: &AtomicU64, bytes: usize) {
    counter.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
}
