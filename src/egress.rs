//! The one path out: decide, resolve, pin, dial, record; then, and only then, bytes may flow.
//!
//! Entries put an [`Intent`] in and get an opened way out or a refusal that is already recorded.
//! They can't name the steps in between, so they can't skip one.

mod exchange;
mod flow;
mod identify;
mod live;
mod redirects;
mod tunnel;
mod turns;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use egret_policy::{
    Action, Client, Destination, Grant, Host, Intent, PinnedAddr, Policy, Reason, Refusal, Resolution, Route,
    Verdict,
};

use crate::audit::{self, Attempt, Audit, AuditUnavailable, PathRecorder, Text};
use crate::config::Timeouts;
use crate::dial::{Connected, DialCause, DialError, Dialer};
use crate::forward::{Pool, Upstream};
use crate::identity::{Identities, TokenKeys};
use crate::limit::{Account, Exceeded, Limiter, Permit};
use crate::metrics::Metrics;
use crate::resolve::{ResolveError, Resolver};

pub use live::{Signals, Stop};
use redirects::Redirects;
use turns::Turns;

pub use exchange::{ByteCounters, Exchange, Redial};
pub use redirects::RedirectDenied;
pub use tunnel::Tunnel;

/// What every attempt needs.
pub struct Egress {
    policy: ArcSwap<Policy>,
    identities: Identities,
    resolver: Resolver,
    dialer: Dialer,
    audit: Audit,
    paths: PathRecorder,
    limiter: Limiter,
    turns: Turns,
    redirects: Redirects,
    pool: Pool,
    signals: Signals,
    metrics: Arc<Metrics>,
    timeouts: Timeouts,
    /// When the DNS servers were last asked for readiness, and whether one answered.
    dns_seen: tokio::sync::Mutex<Option<(Instant, bool)>>,
}

/// The parts of an [`Egress`].
pub struct Parts {
    /// The first policy.
    pub policy: Arc<Policy>,
    /// Who clients are.
    pub identities: Identities,
    /// Looks names up.
    pub resolver: Resolver,
    /// Opens connections.
    pub dialer: Dialer,
    /// Records.
    pub audit: Audit,
    /// How paths are recorded.
    pub paths: PathRecorder,
    /// Tells open connections what has changed.
    pub signals: Signals,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// Most connections to origins that lie idle.
    pub idle_upstreams: usize,
    /// Most look-ups that wait for DNS.
    pub look_ups: usize,
}

/// A refusal that has been recorded.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub refusal: Refusal,
    /// The status that the client gets.
    pub status: u16,
    /// The audit ID.
    pub id: String,
    /// When a new attempt can succeed, where that is known.
    pub retry_after: Option<Duration>,
}

/// A request that never became an intent: what is known of it, for the record.
#[derive(Debug, Default)]
pub struct Malformed<'a> {
    /// Who sent it, if it got that far.
    pub client: Option<&'a Client>,
    /// The method, if there is one.
    pub method: Option<&'a str>,
    /// Where it wanted to go, if that can be read.
    pub destination: Option<&'a Destination>,
    /// The path at that place, without the query.
    pub path: Option<&'a [u8]>,
    /// Without a destination: what stands where the authority belongs.
    pub target: Option<&'a [u8]>,
}

/// An intent that was allowed and resolved; nothing has been dialled yet.
struct Admitted {
    attempt: Attempt,
    route: Route,
    permit: Permit,
    generation: u64,
}

impl Egress {
    /// Puts the parts together.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts {
            policy,
            identities,
            resolver,
            dialer,
            audit,
            paths,
            signals,
            metrics,
            timeouts,
            idle_upstreams,
            look_ups,
        } = parts;
        let policy = ArcSwap::new(policy);
        let (pool, limiter, dns_seen) =
            (Pool::new(idle_upstreams), Limiter::default(), tokio::sync::Mutex::default());
        Self {
            policy,
            identities,
            resolver,
            dialer,
            audit,
            paths,
            limiter,
            turns: Turns::new(look_ups),
            redirects: Redirects::default(),
            pool,
            signals,
            metrics,
            timeouts,
            dns_seen,
        }
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    /// Puts another policy and other keys in force: new attempts see them at once, open ones are
    /// decided again.
    pub fn replace_policy(&self, policy: Policy, keys: Option<TokenKeys>) {
        let policy = Arc::new(policy);
        self.identities.replace_keys(keys);
        self.policy.store(Arc::clone(&policy));
        self.signals.policy_changed(policy.generation);
        self.pool.retain(|intent, address| {
            self.identities.still_hold(&intent.client) && live::still_allowed(&policy, intent, address, None)
        });
    }

    /// Records that connections were turned away before their requests were read. `peer` is the
    /// last of them.
    pub fn record_overload(&self, peer: SocketAddr, count: u64) {
        let client = self.identify_source(peer.ip()).ok();
        self.audit.event(&audit::Event::Limit(audit::Limit {
            sandbox: Text::from(client.as_ref().map_or("", |client| &*client.sandbox)),
            limit: "max_connections",
            reason: Reason::Overloaded.code(),
            count,
            since: None,
        }));
    }

    /// Lets go of every idle connection to an origin, when descriptors are short.
    pub fn shed_idle(&self) {
        self.pool.clear();
    }

    /// Waits until open connections are being closed, and a little longer for them to end well.
    pub fn closing(&self) -> impl Future<Output = ()> + use<> {
        self.signals.closing()
    }

    /// Lets go of idle connections to origins and of the counts of idle sandboxes.
    pub fn expire_idle(&self) {
        self.pool.expire();
        self.limiter.forget_idle();
        self.redirects.forget_old();
    }

    /// Did a DNS server answer within the last `fresh`? Asks, if nobody knows.
    pub async fn dns_answers(&self, fresh: Duration) -> bool {
        let mut known = self.dns_seen.lock().await;
        if known.is_none_or(|(when, _)| when.elapsed() >= fresh) {
            *known = Some((Instant::now(), self.resolver.probe().await));
        }
        known.is_some_and(|(_, answers)| answers)
    }

    /// Is the process stopping?
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.signals.stopping()
    }

    /// Waits until the process begins to stop.
    pub fn draining(&self) -> impl Future<Output = ()> + use<> {
        self.signals.draining()
    }

    /// How long things may take.
    #[must_use]
    pub const fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// What to count in.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Records a request that could not be understood, or whose client is not known.
    pub async fn refuse(
        &self,
        what: Malformed<'_>,
        peer: SocketAddr,
        refusal: Refusal,
        status: u16,
    ) -> Refused {
        let mut request = audit::Request {
            client: Some(peer),
            method: what.method.map(Text::from),
            path: what.path.map(|path| self.paths.record(path)),
            host: what.target.filter(|target| !target.is_empty()).map(Text::new),
            ..audit::Request::default()
        };
        if let Some(client) = what.client {
            identify_record(&mut request, client);
        }
        if let Some(destination) = what.destination {
            place_record(&mut request, destination);
        }
        let attempt = self.audit.begin(request);
        self.refuse_attempt(attempt, refusal, status).await
    }

    /// Opens a tunnel.
    ///
    /// # Errors
    /// The refusal, recorded.
    pub async fn open_tunnel(self: &Arc<Self>, intent: Intent, peer: SocketAddr) -> Result<Tunnel, Refused> {
        let Admitted { mut attempt, route, permit, generation } = self.admit(&intent, peer).await?;
        let connected = match self.dial(&route).await {
            Ok(connected) => connected,
            Err(error) => return Err(self.refuse_dial(attempt, &error).await),
        };
        note_dialed(&mut attempt, &connected);
        let attempt = self.still_current(attempt, &intent, connected.peer, generation).await?;
        let flow = self.permit(attempt).await?;
        let stop = self.stop_for(intent, &route, connected.peer, generation);
        Ok(Tunnel::new(Arc::clone(self), connected.stream, route, flow, permit, stop))
    }

    /// Opens the way for one request, over a pooled connection if one fits.
    ///
    /// # Errors
    /// The refusal, recorded.
    pub async fn open_exchange(
        self: &Arc<Self>,
        intent: Intent,
        peer: SocketAddr,
    ) -> Result<Exchange, Refused> {
        let Admitted { mut attempt, route, permit, generation } = self.admit(&intent, peer).await?;
        let upstream = match self.pool.take(&intent, &route) {
            Some(upstream) => {
                attempt.outcome_mut().dialed = Some(upstream.address().socket_addr().ip());
                upstream
            }
            None => match self.dial(&route).await {
                Ok(connected) => {
                    note_dialed(&mut attempt, &connected);
                    match Upstream::open(connected.stream, connected.peer).await {
                        Ok(upstream) => upstream,
                        Err(error) => {
                            let refusal = Refusal::new(Reason::UpstreamProtocol);
                            let refusal = refusal.with_detail(error.to_string());
                            return Err(self.refuse_for(attempt, refusal).await);
                        }
                    }
                }
                Err(error) => return Err(self.refuse_dial(attempt, &error).await),
            },
        };
        let attempt = self.still_current(attempt, &intent, upstream.address(), generation).await?;
        let flow = self.permit(attempt).await?;
        let stop = self.stop_for(intent.clone(), &route, upstream.address(), generation);
        Ok(Exchange::new(Arc::clone(self), intent, upstream, route, flow, permit, stop))
    }

    /// Decides a request that the proxy answers itself, with this status.
    ///
    /// # Errors
    /// The refusal, recorded.
    pub async fn answer_here(&self, intent: &Intent, peer: SocketAddr, status: u16) -> Result<(), Refused> {
        let Admitted { mut attempt, .. } = self.admit(intent, peer).await?;
        attempt.outcome_mut().status = Some(status);
        let id = attempt.id().to_string();
        self.metrics.decided("allow", Reason::Allowed);
        attempt.refuse().await.map_err(|error| unrecorded(&error, id))
    }

    fn stop_for(
        self: &Arc<Self>,
        intent: Intent,
        route: &Route,
        address: PinnedAddr,
        generation: u64,
    ) -> Stop {
        Stop::new(Arc::clone(self), self.signals.subscribe(), intent, address, route.tls, generation)
    }

    /// Refuses what is no longer permitted: a policy may have come into force, or a token been
    /// revoked, while DNS or the dial took their time.
    async fn still_current(
        &self,
        attempt: Attempt,
        intent: &Intent,
        address: PinnedAddr,
        generation: u64,
    ) -> Result<Attempt, Refused> {
        if !self.identities.still_hold(&intent.client) {
            let refusal = Refusal::new(Reason::IdentityRejected);
            return Err(self.refuse_for(attempt, refusal.with_detail("the token no longer holds")).await);
        }
        let policy = self.policy.load_full();
        if policy.generation == generation || live::still_allowed(&policy, intent, address, None) {
            return Ok(attempt);
        }
        let refusal = match policy.decide(intent) {
            Verdict::Deny(refusal) => refusal,
            Verdict::Allow(_) => Refusal::new(Reason::AddressNotAllowed),
        };
        Err(self.refuse_for(attempt, refusal.with_detail("the policy has changed meanwhile")).await)
    }

    /// Dials; once more without idle connections if there was no descriptor.
    async fn dial(&self, route: &Route) -> Result<Connected, DialError> {
        match self.dialer.connect(route).await {
            Err(error) if error.cause == DialCause::Overloaded => {
                self.shed_idle();
                self.dialer.connect(route).await
            }
            result => result,
        }
    }

    /// Decides, resolves and pins.
    async fn admit(&self, intent: &Intent, peer: SocketAddr) -> Result<Admitted, Refused> {
        let mut attempt = self.audit.begin(self.request_record(intent, peer));
        if self.signals.stopping() {
            return Err(self.refuse_for(attempt, Refusal::new(Reason::ShuttingDown)).await);
        }
        if self.signals.audit_failed() {
            // Known beforehand: no need to look up or dial for it.
            return Err(self.refuse_for(attempt, Refusal::new(Reason::AuditUnavailable)).await);
        }
        let policy = self.policy.load_full();
        let outcome = attempt.outcome_mut();
        outcome.generation = Some(policy.generation);
        outcome.policy = Some(Text::from(&*intent.client.policy));
        let permit = match self.take_in(&policy, intent) {
            Ok(permit) => permit,
            Err(exceeded) => return Err(self.refuse_limit(attempt, &exceeded).await),
        };
        let grant = match policy.decide(intent) {
            Verdict::Allow(grant) => grant,
            Verdict::Deny(refusal) => return Err(self.refuse_for(attempt, refusal).await),
        };
        if let Err(exceeded) = permit.count_host(grant.host()) {
            return Err(self.refuse_limit(attempt, &exceeded).await);
        }
        note_grant(&mut attempt, &grant);
        let started = Instant::now();
        let looked_up = self.look_up(intent, &grant).await;
        self.metrics.dns_seconds.observe(started.elapsed().as_secs_f64());
        if grant.host().name().is_some() {
            attempt.outcome_mut().dns = Some(started.elapsed());
        }
        let resolution = match looked_up {
            Ok(resolution) => resolution,
            Err(error) => {
                let refusal = Refusal::new(dns_reason(&error)).with_detail(error.to_string());
                return Err(self.refuse_for(attempt, refusal).await);
            }
        };
        attempt.outcome_mut().addresses = Some(resolution.addresses.iter().copied().collect());
        match grant.pin(&resolution, crate::dial::is_local) {
            Ok(route) => {
                let outcome = attempt.outcome_mut();
                outcome.reason = Reason::Allowed.code();
                outcome.rule = route.rule.as_deref().map(Text::from);
                if let Some(held_back) = &route.would_deny {
                    outcome.verdict = audit::Verdict::WouldDeny;
                    outcome.reason = held_back.reason.code();
                    outcome.rule = held_back.rule.as_deref().map(Text::from);
                }
                Ok(Admitted { attempt, route, permit, generation: policy.generation })
            }
            Err(refusal) => {
                attempt.outcome_mut().verdict = audit::Verdict::Deny;
                Err(self.refuse_for(attempt, refusal).await)
            }
        }
    }

    /// Looks a granted host up. What is not known yet waits for one of the sandbox's own turns, so
    /// that slow names of one sandbox leave the servers to the others.
    async fn look_up(&self, intent: &Intent, grant: &Grant) -> Result<Resolution, ResolveError> {
        if let Some(known) = self.resolver.known(grant) {
            return known;
        }
        let Some(_turn) = self.turns.take(&intent.client.sandbox, self.resolver.timeout()).await else {
            return Err(ResolveError::Timeout);
        };
        self.resolver.resolve(grant).await
    }

    async fn permit(&self, attempt: Attempt) -> Result<audit::Flow, Refused> {
        let id = attempt.id().to_string();
        let observed = attempt.verdict() == audit::Verdict::WouldDeny;
        match attempt.permit().await {
            Ok(flow) => {
                let verdict = if observed { "would_deny" } else { "allow" };
                self.metrics.decided(verdict, Reason::Allowed);
                Ok(flow)
            }
            Err(error) => {
                self.metrics.decided("deny", Reason::AuditUnavailable);
                Err(unrecorded(&error, id))
            }
        }
    }

    fn take_in(&self, policy: &Policy, intent: &Intent) -> Result<Permit, Exceeded> {
        let client = &intent.client;
        let limits = policy.effective(client).map(|effective| Arc::clone(&effective.limits));
        let mut accounts = vec![(Account::of_sandbox(client), limits.unwrap_or_default())];
        accounts.extend(Account::of_token(client));
        self.limiter.admit(accounts)
    }

    async fn refuse_limit(&self, attempt: Attempt, exceeded: &Exceeded) -> Refused {
        let refusal = Refusal::new(exceeded.reason).with_detail(format!("limit: {}", exceeded.limit));
        let refused = self.refuse_for(attempt, refusal).await;
        Refused { retry_after: Some(exceeded.retry_after), ..refused }
    }

    async fn refuse_dial(&self, attempt: Attempt, error: &DialError) -> Refused {
        let refusal = Refusal::new(dial_reason(error.cause)).with_detail(error.to_string());
        self.refuse_for(attempt, refusal).await
    }

    async fn refuse_for(&self, attempt: Attempt, refusal: Refusal) -> Refused {
        let status = self.status(refusal.reason);
        self.refuse_attempt(attempt, refusal, status).await
    }

    async fn refuse_attempt(&self, mut attempt: Attempt, refusal: Refusal, status: u16) -> Refused {
        let outcome = attempt.outcome_mut();
        outcome.reason = refusal.reason.code();
        outcome.status = Some(status);
        if let Some(rule) = &refusal.rule {
            outcome.rule = Some(Text::from(&**rule));
        }
        outcome.detail = refusal.detail.as_deref().map(Text::from);
        let verdict = match outcome.verdict {
            audit::Verdict::Allow => "allow",
            audit::Verdict::Deny => "deny",
            audit::Verdict::WouldDeny => "would_deny",
        };
        self.metrics.decided(verdict, refusal.reason);
        let id = attempt.id().to_string();
        // The answer is a refusal either way; the audit's own health is told elsewhere.
        if let Err(error) = attempt.refuse().await {
            tracing::debug!(%error, %id, "a refusal could not be recorded");
        }
        Refused { refusal, status, id, retry_after: None }
    }

    fn request_record(&self, intent: &Intent, peer: SocketAddr) -> audit::Request {
        let mut request = audit::Request {
            client: Some(peer),
            redirected_from: self.redirects.source_of(intent),
            ..audit::Request::default()
        };
        identify_record(&mut request, &intent.client);
        place_record(&mut request, &intent.destination);
        match &intent.action {
            Action::Tunnel => {
                request.protocol = Some(audit::Protocol::Connect);
                request.method = Some(Text::from("CONNECT"));
            }
            Action::Place => {}
            Action::Request { method, path } => {
                request.protocol = Some(audit::Protocol::Http);
                request.method = Some(Text::from(&**method));
                request.path = Some(self.paths.record(path));
            }
        }
        request
    }
}

/// The host as records show it: an IPv6 address without brackets.
fn host_text(host: &Host) -> String {
    match host {
        Host::Name(name) => name.to_string(),
        Host::Address(address) => address.to_string(),
    }
}

fn identify_record(request: &mut audit::Request, client: &Client) {
    request.sandbox = Some(Text::from(&*client.sandbox));
    request.identity = Some((&client.identity).into());
    if let Some(token) = client.token() {
        request.workspace = token.workspace.as_deref().map(Text::from);
        request.tool = token.tool.as_deref().map(Text::from);
    }
}

fn place_record(request: &mut audit::Request, destination: &Destination) {
    request.scheme = Some(destination.scheme().as_str());
    request.host = Some(Text::from(host_text(destination.host())));
    request.port = Some(destination.port());
}

/// What holds of a grant if nothing comes of it.
fn note_grant(attempt: &mut Attempt, grant: &Grant) {
    let outcome = attempt.outcome_mut();
    outcome.verdict = audit::Verdict::Allow;
    if let Some(held_back) = grant.would_deny() {
        outcome.verdict = audit::Verdict::WouldDeny;
        outcome.rule = held_back.rule.as_deref().map(Text::from);
    }
}

fn note_dialed(attempt: &mut Attempt, connected: &Connected) {
    let outcome = attempt.outcome_mut();
    outcome.dialed = Some(connected.peer.socket_addr().ip());
    if !connected.failed.is_empty() {
        let failed: Vec<_> = connected.failed.iter().map(ToString::to_string).collect();
        outcome.detail = Some(Text::from(failed.join("; ")));
    }
}

pub(crate) fn dns_reason(error: &ResolveError) -> Reason {
    match error {
        ResolveError::NotFound { .. } => Reason::DnsNotFound,
        ResolveError::Failed(_) => Reason::DnsFailed,
        ResolveError::Timeout => Reason::DnsTimeout,
    }
}

const fn dial_reason(cause: DialCause) -> Reason {
    match cause {
        DialCause::Refused => Reason::ConnectRefused,
        DialCause::Timeout => Reason::ConnectTimeout,
        DialCause::Unroutable | DialCause::Other => Reason::ConnectUnroutable,
        DialCause::Overloaded => Reason::Overloaded,
    }
}

/// What can't be recorded is refused.
fn unrecorded(error: &AuditUnavailable, id: String) -> Refused {
    let refusal = Refusal::new(Reason::AuditUnavailable).with_detail(error.to_string());
    Refused { refusal, status: 503, id, retry_after: None }
}
