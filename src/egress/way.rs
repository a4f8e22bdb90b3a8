//! The way to a checked address: straight, or through the parent proxy of `[upstream]`.
//!
//! The parent gets a checked address, one after the other, and never a name. What is meant to go
//! through it never goes straight because it fails. Clients' requests and errands walk the same way.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use egret_policy::{Destination, Host, Intent, PinnedAddr, Policy, Reason, Refusal, Route};
use http::StatusCode;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::refuse::dial_reason;
use super::{Egress, Parts};
use crate::chain::{Chain, Parent, Way};
use crate::dial::{ConfiguredAddr, Connected, DialCause, DialError, Dialer, is_local};
use crate::forward::{NoTunnel, Upstream, open_tunnel};
use crate::resolve::{ResolveError, Resolver};

/// Time between two log lines about the parent.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// What a client is told of a parent: that there is one, nothing more.
const PARENT_REFUSES: &str = "The proxy on the way to the destination refuses it.";
const PARENT_FAILS: &str = "The proxy on the way to the destination could not be used.";

/// Goes the way to checked addresses, with these parts. Records nothing.
pub(super) struct Walk<'a> {
    pub(super) chain: &'a Chain,
    /// Whose listeners are no parent.
    pub(super) policy: &'a Policy,
    pub(super) resolver: &'a Resolver,
    pub(super) dialer: &'a Dialer,
    /// How long the parent may take to open a tunnel.
    pub(super) patience: Duration,
    /// For whose clients; a command has none, nor what lies idle, is counted and logged here.
    pub(super) service: Option<&'a Egress>,
}

/// A connection to a checked address.
pub(super) struct Opened {
    pub(super) stream: TcpStream,
    /// What came behind the parent's answer.
    pub(super) early: Bytes,
    pub(super) peer: PinnedAddr,
    pub(super) way: Way,
    /// What failed before it, for people.
    pub(super) failed: Vec<String>,
}

/// No connection, and why.
#[derive(Debug)]
pub(super) struct NoWay {
    pub(super) refusal: Refusal,
    /// The parent, if one is to blame.
    pub(super) parent: Option<Arc<Parent>>,
}

/// Why there is no tunnel through a parent.
#[derive(Debug, thiserror::Error)]
enum ParentFault {
    #[error("its name can't be resolved: {0}")]
    Unresolved(#[from] ResolveError),
    #[error("it is a listener of egret itself ({0})")]
    Loop(SocketAddr),
    #[error(transparent)]
    Unreached(#[from] DialError),
    #[error("{fault}{}", advice(.0), fault = .0)]
    NoTunnel(#[from] NoTunnel),
    #[error("no tunnel in time")]
    Silent,
}

fn advice(fault: &NoTunnel) -> &'static str {
    match fault {
        NoTunnel::Refused { status: StatusCode::PROXY_AUTHENTICATION_REQUIRED, .. } => {
            "; check upstream.credentials_file"
        }
        _ => "",
    }
}

impl ParentFault {
    fn reason(&self) -> Reason {
        match self {
            Self::Unresolved(ResolveError::Timeout) | Self::Silent => Reason::ConnectTimeout,
            Self::Unresolved(_) => Reason::ConnectUnroutable,
            Self::Loop(_) => Reason::ProxyLoop,
            Self::Unreached(error) => dial_reason(error.cause),
            Self::NoTunnel(NoTunnel::Malformed(_)) => Reason::UpstreamProtocol,
            Self::NoTunnel(NoTunnel::Closed(_)) => Reason::UpstreamClosed,
            Self::NoTunnel(NoTunnel::Refused { status, .. }) => match status.as_u16() {
                407 => Reason::UpstreamProtocol,
                400..=499 => Reason::ConnectRefused,
                504 => Reason::ConnectTimeout,
                500..=599 => Reason::ConnectUnroutable,
                _ => Reason::UpstreamProtocol,
            },
        }
    }

    /// May another address of the destination fare better? The parent could not reach this one.
    fn is_about_the_address(&self) -> bool {
        match self {
            Self::NoTunnel(NoTunnel::Refused { status, .. }) => matches!(status.as_u16(), 502..=504),
            Self::Silent => true,
            _ => false,
        }
    }

    /// Is it about the parent itself, whatever the destination is?
    fn is_about_the_parent(&self) -> bool {
        match self {
            Self::NoTunnel(NoTunnel::Refused { status, .. }) => {
                *status == StatusCode::PROXY_AUTHENTICATION_REQUIRED
            }
            _ => true,
        }
    }

    fn words(&self) -> &'static str {
        match self.reason() {
            Reason::ConnectRefused if !self.is_about_the_parent() => PARENT_REFUSES,
            _ => PARENT_FAILS,
        }
    }
}

impl From<Refusal> for NoWay {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, parent: None }
    }
}

impl From<DialError> for NoWay {
    fn from(error: DialError) -> Self {
        Refusal::new(dial_reason(error.cause)).with_detail(error.to_string()).into()
    }
}

impl From<Connected> for Opened {
    fn from(connected: Connected) -> Self {
        let Connected { stream, peer, failed } = connected;
        let failed = failed.iter().map(ToString::to_string).collect();
        Self { stream, early: Bytes::new(), peer, way: Way::Direct, failed }
    }
}

impl Opened {
    /// Begins HTTP with the origin; says why that can't be.
    pub(super) async fn http(self) -> Result<Upstream, String> {
        if !self.early.is_empty() {
            return Err("it sent something before it was asked".to_owned());
        }
        Upstream::open(self.stream, self.peer, self.way).await.map_err(|error| error.to_string())
    }
}

impl Walk<'_> {
    /// Connects to one of the route's checked addresses. Those that go straight come first: after
    /// the parent has failed, nothing is dialled any more.
    pub(super) async fn dial(&self, to: &Destination, route: &Route) -> Result<Opened, NoWay> {
        let Some(parent) = self.chain.parent() else {
            return Ok(self.dial_direct(route.addresses()).await?.into());
        };
        let straight = |pinned: &PinnedAddr| self.chain.way(to, pinned.socket_addr().ip()) == Way::Direct;
        let (direct, through): (Vec<_>, Vec<_>) = route.addresses().iter().copied().partition(straight);
        let mut failed = Vec::new();
        if !direct.is_empty() {
            match self.dial_direct(&direct).await {
                Ok(connected) => return Ok(connected.into()),
                Err(error) if through.is_empty() => return Err(error.into()),
                Err(error) => failed.push(error.to_string()),
            }
        }
        self.dial_through(parent, &through, failed).await
    }

    /// Dials; once more without idle connections if there was no descriptor.
    async fn dial_direct(&self, addresses: &[PinnedAddr]) -> Result<Connected, DialError> {
        match self.dialer.connect(addresses).await {
            Err(error) if error.cause == DialCause::Overloaded => {
                self.shed_idle();
                self.dialer.connect(addresses).await
            }
            result => result,
        }
    }

    async fn dial_through(
        &self,
        parent: &Arc<Parent>,
        addresses: &[PinnedAddr],
        mut failed: Vec<String>,
    ) -> Result<Opened, NoWay> {
        let deadline = Instant::now() + self.patience;
        let mut order = self.dialer.in_order(addresses).into_iter().peekable();
        let mut last = ParentFault::Silent;
        while let Some(peer) = order.next() {
            // One address that the parent can't reach must not take the time of all others.
            let now = Instant::now();
            let left = deadline.saturating_duration_since(now);
            let until = if order.peek().is_some() { now + left / 2 } else { deadline };
            let asked = timeout_at(until, self.tunnel(parent, peer)).await;
            last = match asked.unwrap_or(Err(ParentFault::Silent)) {
                Ok((stream, early)) => {
                    self.count("ok");
                    let way = Way::Through(Arc::clone(parent));
                    return Ok(Opened { stream, early, peer, way, failed });
                }
                Err(fault) => fault,
            };
            self.count(last.reason().code());
            failed.push(format!("{} through {parent}: {last}", peer.socket_addr()));
            if !last.is_about_the_address() {
                break;
            }
        }
        let mut refusal = Refusal::new(last.reason()).with_detail(failed.join("; "));
        refusal.words = Some(last.words().into());
        self.blame(parent, &last);
        Err(NoWay { refusal, parent: Some(Arc::clone(parent)) })
    }

    async fn tunnel(&self, parent: &Parent, target: PinnedAddr) -> Result<(TcpStream, Bytes), ParentFault> {
        let addresses = self.parent_addresses(parent).await?;
        let stream = match self.dialer.connect_configured(&addresses).await {
            Err(error) if error.cause == DialCause::Overloaded => {
                self.shed_idle();
                self.dialer.connect_configured(&addresses).await?
            }
            result => result?,
        };
        Ok(open_tunnel(stream, target, parent.fields()).await?)
    }

    /// Where the parent is now. The operator named it, so it may be anywhere but here.
    async fn parent_addresses(&self, parent: &Parent) -> Result<Vec<ConfiguredAddr>, ParentFault> {
        let addresses = match parent.host() {
            Host::Address(address) => vec![*address],
            Host::Name(name) => self.resolver.lookup(name.as_str()).await?.addresses.to_vec(),
        };
        let placed = |address: IpAddr| SocketAddr::new(address.to_canonical(), parent.port());
        let addresses: Vec<_> = addresses.into_iter().map(placed).collect();
        match addresses.iter().find(|address| self.policy.listeners.contain(**address, is_local)) {
            Some(own) => Err(ParentFault::Loop(*own)),
            None => Ok(addresses.into_iter().map(ConfiguredAddr::new).collect()),
        }
    }

    /// Refuses a route to the parent itself, by whatever name.
    pub(super) async fn keep_off_parent(&self, to: &Destination, route: Route) -> Result<Route, Refusal> {
        let Some(parent) = self.chain.parent().filter(|parent| parent.port() == to.port()) else {
            return Ok(route);
        };
        let own = self.parent_addresses(parent).await.map_err(|fault| {
            // It can't be told whether it is the parent.
            self.blame(parent, &fault);
            Refusal::new(fault.reason()).with_detail(format!("the parent proxy {parent}: {fault}"))
        })?;
        let is_own = |address: IpAddr| own.iter().any(|own| own.get().ip() == address);
        let leads_there = |pinned: &PinnedAddr| {
            let address = pinned.socket_addr().ip();
            is_own(address) || is_own(self.policy.reached(address))
        };
        if route.addresses().iter().any(leads_there) { Err(parent.as_destination()) } else { Ok(route) }
    }

    fn shed_idle(&self) {
        if let Some(service) = self.service {
            service.shed_idle();
        }
    }

    fn count(&self, result: &'static str) {
        if let Some(service) = self.service {
            service.parts.metrics.parent_asked(result);
        }
    }

    /// Logs what an operator has to mend.
    fn blame(&self, parent: &Parent, fault: &ParentFault) {
        let due = |service: &Egress| fault.is_about_the_parent() && service.parent_trouble.is_due();
        if self.service.is_some_and(due) {
            tracing::warn!(%parent, "the parent proxy can't be used: {fault}");
        }
    }
}

impl Egress {
    /// Connects to one of the route's checked addresses.
    pub(super) async fn dial(&self, to: &Destination, route: &Route) -> Result<Opened, NoWay> {
        let (chain, policy) = (self.chain.load_full(), self.policy.load_full());
        self.walk(&chain, &policy).dial(to, route).await
    }

    /// Refuses a route to the parent itself, by whatever name.
    pub(super) async fn keep_off_parent(&self, to: &Destination, route: Route) -> Result<Route, Refusal> {
        let (chain, policy) = (self.chain.load_full(), self.policy.load_full());
        self.walk(&chain, &policy).keep_off_parent(to, route).await
    }

    fn walk<'a>(&'a self, chain: &'a Chain, policy: &'a Policy) -> Walk<'a> {
        let Parts { resolver, dialer, timeouts, .. } = &self.parts;
        Walk { chain, policy, resolver, dialer, patience: timeouts.connect, service: Some(self) }
    }

    /// Keeps a connection that has just served a request, unless it would go another way now or its
    /// client no longer holds.
    pub(super) fn keep(&self, intent: &Intent, upstream: Upstream) {
        // What lies idle is no use of a registration.
        let client = intent.client.clone().without_registration();
        let idle = Intent { client, ..intent.clone() };
        self.pool.put(idle, upstream, |upstream| self.may_lie_idle(intent, upstream));
    }

    /// Does the client still hold, and would the connection go the same way now?
    pub(super) fn may_lie_idle(&self, intent: &Intent, upstream: &Upstream) -> bool {
        let address = upstream.address().socket_addr().ip();
        self.parts.identities.still_hold(&intent.client)
            && self.chain.load().way(&intent.destination, address) == *upstream.way()
    }
}

/// Keeps the log readable while the parent is in trouble.
#[derive(Debug, Default)]
pub(super) struct Trouble(Mutex<Option<Instant>>);

impl Trouble {
    fn is_due(&self) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = told.is_none_or(|told| told.elapsed() >= LOG_EVERY);
        if due {
            *told = Some(Instant::now());
        }
        due
    }
}
