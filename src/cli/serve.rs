//! `egret serve`: runs the proxy until it is told to stop.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use egret_policy::Listeners;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::runtime::{CLOSING, in_runtime};
use super::{ConfigArgs, FAILED, OK, complain};
use crate::audit::{self, Audit, PathKey, PathRecorder, Start, Tap};
use crate::client_tls::ClientTls;
use crate::config::{ConfigSource, Files, Listen, Loaded, OnAuditFailure, Settings};
use crate::control::Control;
use crate::dial::{DialSettings, Dialer};
use crate::egress::{Egress, Parts, Signals};
use crate::entry::Gate;
use crate::identity::{self, Identities, Registry, Revocations};
use crate::ledger::{self, Ledger};
use crate::limit::Limiter;
use crate::metrics::Metrics;
use crate::reload::Reloader;
use crate::resolve::{Resolver, ResolverSettings};
use crate::server::{self, Budget, Door, Server};

/// What is logged where `EGRET_LOG` says nothing. The resolver library would let a hostile zone
/// fill the log.
const DEFAULT_LOG: &str = "info,hickory_net=off,hickory_proto=off,hickory_resolver=off";

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Name pattern to allow, with the built-in defaults; repeatable
    #[arg(long, value_name = "PATTERN")]
    allow: Vec<String>,
}

impl ServeArgs {
    pub(super) fn run(self) -> u8 {
        let mut files = Files::default();
        let (loaded, source) = match self.config.load_noting(self.allow, &mut files) {
            Ok(loaded) => loaded,
            Err(code) => return code,
        };
        start_log(DEFAULT_LOG);
        match in_runtime(serve(loaded, source, files)) {
            Ok(()) => OK,
            Err(message) => {
                complain(&message);
                FAILED
            }
        }
    }
}

/// Diagnostics go to standard error: for people on a terminal, else as JSON.
pub(super) fn start_log(default: &str) {
    let filter = EnvFilter::try_from_env("EGRET_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = if std::io::stderr().is_terminal() { log.try_init() } else { log.json().try_init() };
    if let Err(error) = started {
        complain(&format!("no log: {error}"));
    }
}

/// The listeners as bound.
pub(super) struct Bound {
    pub proxy: Vec<(TcpListener, Door)>,
    pub datagrams: Vec<std::net::UdpSocket>,
    /// `None` where nobody is to ask.
    pub control: Option<TcpListener>,
    /// As the policy knows them.
    pub own: Listeners,
}

fn bind(settings: &Settings) -> Result<Bound, String> {
    let listen = |address, door| server::bind(address, door).map_err(|error| unbound(address, &error));
    let Listen { proxy, tls, socks, transparent, dns, .. } = &settings.listen;
    // An address in both lists is one listener for both; every port 0 is another free port.
    let shared = |address: &SocketAddr, other: &[SocketAddr]| address.port() != 0 && other.contains(address);
    let door = |address| if shared(address, socks) { Door::Both } else { Door::Plain };
    let plain = proxy.iter().map(|address| (*address, door(address)));
    let tls = tls.iter().map(|&address| (address, Door::Tls));
    let socks = socks.iter().filter(|address| !shared(address, proxy));
    let socks = socks.map(|&address| (address, Door::Socks));
    let transparent = transparent.iter().map(|&address| (address, Door::Transparent));
    let dns = dns.iter().map(|&address| (address, Door::Dns));
    let proxy = plain.chain(tls).chain(socks).chain(transparent).chain(dns);
    let proxy = proxy.map(|(address, door)| Ok((listen(address, door)?, door)));
    let proxy = proxy.collect::<Result<Vec<_>, String>>()?;
    let asked = proxy.iter().filter(|(_, door)| *door == Door::Dns);
    let datagrams = asked.map(|(listener, _)| {
        // With port 0, the port that the connections have.
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        server::bind_datagrams(address).map_err(|error| unbound(address, &error))
    });
    let datagrams = datagrams.collect::<Result<Vec<_>, String>>()?;
    let control = listen(settings.listen.control, Door::Plain)?;
    let bound = proxy.iter().map(|(listener, _)| listener).chain([&control]).map(TcpListener::local_addr);
    let bound = bound.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    Ok(Bound { proxy, datagrams, control: Some(control), own: Listeners { bound } })
}

/// Why an address can't be listened on, and what helps.
fn unbound(address: SocketAddr, error: &std::io::Error) -> String {
    let help = match error.kind() {
        std::io::ErrorKind::AddrInUse => "stop what has it, or change [listen]",
        std::io::ErrorKind::PermissionDenied if address.port() < 1024 => {
            "ports below 1024 take CAP_NET_BIND_SERVICE, or a lower net.ipv4.ip_unprivileged_port_start"
        }
        _ => "change [listen]",
    };
    format!("{address} can't be listened on: {error}; {help}")
}

impl Bound {
    /// What is where, for the log.
    fn doors(&self) -> String {
        let clients = self.proxy.iter().map(|(_, door)| match door {
            Door::Plain => "proxy",
            Door::Tls => "tls",
            Door::Socks => "socks",
            Door::Both => "proxy and socks",
            Door::Dns => "dns",
            Door::Transparent => "transparent",
        });
        let doors = clients.chain(["control"]).zip(&self.own.bound);
        doors.map(|(what, address)| format!("{what} {address}")).collect::<Vec<_>>().join(", ")
    }
}

async fn serve(loaded: Loaded, source: ConfigSource, files: Files) -> Result<(), String> {
    // Before anything can be reached: a signal that comes early must not just kill the process.
    let mut stops = Stops::listen()?;
    let bound = bind(&loaded.settings)?;
    let doors = bound.doors();
    let proxy = Proxy::begin(loaded, source, files, bound, None)?;
    tracing::info!(listen = doors, connections = proxy.connections, "egret is serving");
    stops.wait(&proxy.audit, &proxy.reloader).await;
    proxy.drain(proxy.patience, stops.again()).await;
    proxy.end().await
}

/// A proxy at work, whatever it listens on.
pub(super) struct Proxy {
    egress: Arc<Egress>,
    server: Arc<Server>,
    signals: Signals,
    audit: Audit,
    ledger: Option<Ledger>,
    reloader: Arc<Reloader>,
    connections: usize,
    /// `[timeouts] drain`.
    patience: Duration,
}

impl Proxy {
    /// Opens everything and begins to accept clients. The ledger is kept, unless somebody else is
    /// to hear of the records.
    pub(super) fn begin(
        loaded: Loaded,
        source: ConfigSource,
        files: Files,
        bound: Bound,
        tap: Option<Arc<dyn Tap>>,
    ) -> Result<Self, String> {
        let Loaded { settings, mut policy, chain, token_keys, client_tls, .. } = loaded;
        let budget = Budget::of_this_process(settings.listen.max_connections);
        policy.listeners = bound.own.clone();
        make_state_dir(&settings)?;
        let ledger = if tap.is_none() { Some(open_ledger(&settings)?) } else { None };
        let tap = tap.or_else(|| ledger.as_ref().map(Ledger::tap));
        let audit = open_audit(&settings, policy.generation, tap)?;
        if let Some(ledger) = &ledger {
            ledger.start().map_err(|error| error.to_string())?;
        }
        let signals = Signals::new(policy.generation);
        let metrics = Arc::new(Metrics::default());
        metrics.started(policy.generation);
        let trust = client_tls.as_ref().and_then(ClientTls::trust).cloned();
        let parts = Parts {
            identities: Identities::new(
                token_keys,
                trust,
                open_revocations(&settings)?,
                open_registry(&settings)?,
            ),
            limiter: Limiter::open(&settings.state_dir).map_err(|error| error.to_string())?,
            resolver: Resolver::new(ResolverSettings {
                in_flight: budget.look_ups,
                ..settings.dns.resolver()
            })
            .map_err(|error| error.to_string())?,
            idle_upstreams: budget.idle_upstreams,
            look_ups: budget.look_ups,
            dialer: Dialer::new(DialSettings {
                connect_timeout: settings.timeouts.connect,
                ..DialSettings::default()
            }),
            chain,
            audit: audit.clone(),
            paths: path_recorder(&settings)?,
            signals: signals.clone(),
            metrics,
            timeouts: settings.timeouts,
        };
        let egress = Arc::new(Egress::new(Arc::new(policy), client_tls, parts));
        let reloader = Arc::new(Reloader::new(
            source,
            bound.own.clone(),
            settings.clone(),
            files,
            Arc::clone(&egress),
            audit.clone(),
        ));
        let gate = Arc::new(Gate { egress: Arc::clone(&egress), name: settings.listen.name.as_str().into() });
        let (connections, patience) = (budget.connections, settings.timeouts.drain);
        let server = Arc::new(Server::new(gate, connections));
        let proxy = Self { egress, server, signals, audit, ledger, reloader, connections, patience };
        proxy.open(bound, &settings)?;
        Ok(proxy)
    }

    /// Opens the doors, and starts what goes on beside.
    fn open(&self, bound: Bound, settings: &Settings) -> Result<(), String> {
        for (listener, door) in bound.proxy {
            let server = Arc::clone(&self.server);
            let stopping = self.signals.draining();
            tokio::spawn(async move { server.accept(listener, door, stopping).await });
        }
        for socket in bound.datagrams {
            let server = Arc::clone(&self.server);
            let stopping = self.signals.draining();
            let received = server.receive(socket, stopping);
            received.map_err(|error| {
                format!("questions can't be received: {error}; raise the limits on threads and open files")
            })?;
        }
        if let (Some(listener), Some(ledger)) = (bound.control, &self.ledger) {
            let control = Control {
                egress: Arc::clone(&self.egress),
                audit: self.audit.clone(),
                ledger: ledger.clone(),
                reloader: Arc::clone(&self.reloader),
                signals: self.signals.clone(),
                token: settings.listen.control_token.clone(),
            };
            tokio::spawn(control.serve(listener, self.signals.draining()));
        }
        let reloader = Arc::clone(&self.reloader);
        tokio::spawn(async move { reloader.watch().await });
        if settings.audit.on_failure == OnAuditFailure::Deny {
            tokio::spawn(follow_audit(self.audit.clone(), self.signals.clone()));
        }
        tokio::spawn(tidy(Arc::clone(&self.egress)));
        tokio::spawn(expire(Arc::clone(&self.egress)));
        Ok(())
    }

    /// Refuses new requests, waits for open ones, then closes what is left: after so long, or at
    /// once when told to.
    pub(super) async fn drain(&self, patience: Duration, at_once: impl Future<Output = ()>) {
        tracing::info!("stopping: no new requests");
        self.signals.drain();
        self.server.tasks().close();
        tokio::select! {
            () = self.server.tasks().wait() => return,
            () = tokio::time::sleep(patience) => {}
            () = at_once => {}
        }
        self.signals.close();
        // A task that does not end by itself is dropped with the runtime, which records its end.
        let _ = tokio::time::timeout(CLOSING, self.server.tasks().wait()).await;
    }

    /// Writes what is left to write.
    pub(super) async fn end(self) -> Result<(), String> {
        self.egress.tell_floods(true);
        let stopped = self.audit.shutdown().await.map_err(|error| error.to_string());
        if let Some(ledger) = &self.ledger {
            ledger.shutdown().await;
        }
        self.egress.shutdown().await;
        stopped
    }
}

fn make_state_dir(settings: &Settings) -> Result<(), String> {
    std::fs::create_dir_all(&settings.state_dir).map_err(|error| {
        let dir = settings.state_dir.display();
        format!("the state directory {dir} can't be made: {error}; create it, or change state.dir")
    })
}

fn open_ledger(settings: &Settings) -> Result<Ledger, String> {
    let (state_dir, audit_file) = (settings.state_dir.clone(), settings.audit.file.clone());
    let settings = ledger::Settings { state_dir, audit_file, limits: ledger::Limits::default() };
    Ledger::open(settings).map_err(|error| error.to_string())
}

fn open_audit(settings: &Settings, generation: u64, tap: Option<Arc<dyn Tap>>) -> Result<Audit, String> {
    let on_failure = match settings.audit.on_failure {
        OnAuditFailure::Deny => audit::OnFailure::Deny,
        OnAuditFailure::Allow => audit::OnFailure::Allow,
    };
    let mut wanted = audit::Settings::new(&settings.audit.file);
    wanted.on_failure = on_failure;
    wanted.sync = settings.audit.sync;
    wanted.tap = tap;
    let start = Start { version: env!("CARGO_PKG_VERSION"), generation, policy_digest: None };
    Audit::open(wanted, start).map_err(|error| error.to_string())
}

fn open_revocations(settings: &Settings) -> Result<Revocations, String> {
    Revocations::open(&settings.state_dir, identity::now()).map_err(|error| error.to_string())
}

fn open_registry(settings: &Settings) -> Result<Registry, String> {
    Registry::open(&settings.state_dir, identity::now()).map_err(|error| error.to_string())
}

fn path_recorder(settings: &Settings) -> Result<PathRecorder, String> {
    if settings.audit.paths {
        return Ok(PathRecorder::Plain);
    }
    PathKey::load_or_create(&settings.state_dir).map(PathRecorder::Hashed).map_err(|error| error.to_string())
}

/// Has open connections closed when the audit can't be written.
async fn follow_audit(audit: Audit, signals: Signals) {
    let mut health = audit.health();
    loop {
        let healthy = *health.borrow_and_update();
        signals.audit_is(healthy);
        if health.changed().await.is_err() {
            return;
        }
    }
}

/// Lets go of idle connections to origins that have lain too long.
async fn tidy(egress: Arc<Egress>) {
    loop {
        tokio::time::sleep(Duration::from_secs(10)).await;
        egress.expire_idle();
    }
}

/// Removes registered sandboxes when their time has come.
async fn expire(egress: Arc<Egress>) {
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let egress = Arc::clone(&egress);
        // A task that breaks off is begun anew.
        let _ = tokio::task::spawn_blocking(move || egress.expire_registered()).await;
    }
}

/// The signals that the process listens to.
struct Stops {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Stops {
    fn listen() -> Result<Self, String> {
        let listen = |kind| signal(kind).map_err(|error| format!("signals can't be received: {error}"));
        Ok(Self {
            hangup: listen(SignalKind::hangup())?,
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Waits for SIGTERM or SIGINT. SIGHUP reloads, and reopens the audit file for log rotation.
    async fn wait(&mut self, audit: &Audit, reloader: &Arc<Reloader>) {
        loop {
            tokio::select! {
                () = Self::stop(&mut self.terminate, &mut self.interrupt) => return,
                _ = self.hangup.recv() => {
                    audit.reopen();
                    let reloader = Arc::clone(reloader);
                    tokio::spawn(async move { reloader.reload().await });
                }
            }
        }
    }

    /// Waits for another SIGTERM or SIGINT.
    async fn again(&mut self) {
        Self::stop(&mut self.terminate, &mut self.interrupt).await;
    }

    async fn stop(terminate: &mut Signal, interrupt: &mut Signal) {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}
