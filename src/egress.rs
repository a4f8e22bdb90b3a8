//! The one path out: decide, resolve, pin, dial, record; then, and only then, bytes may flow.
//!
//! Entries put an [`Intent`](egret_policy::Intent) in and get an opened way out or a refusal that is
//! already recorded. They can't name the steps in between, so they can't skip one.

mod errand;
mod exchange;
mod floods;
mod flow;
mod hello;
mod identify;
mod live;
mod names;
mod open;
mod peer;
mod redirects;
mod refuse;
mod registered;
mod tunnel;
mod turns;
mod way;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use egret_policy::{Policy, Reason};

use crate::audit::{self, Audit, PathRecorder, Text};
use crate::chain::Chain;
use crate::client_tls::ClientTls;
use crate::config::Timeouts;
use crate::dial::Dialer;
use crate::forward::Pool;
use crate::identity::{Identities, TokenKeys};
use crate::limit::Limiter;
use crate::metrics::Metrics;
use crate::resolve::Resolver;

use floods::Floods;
pub use live::{Signals, Stop};
use redirects::Redirects;
use turns::Turns;

pub use errand::Errand;
pub use exchange::{ByteCounters, Exchange, Redial};
pub use peer::Peer;
pub use redirects::RedirectDenied;
pub(crate) use refuse::dns_reason;
pub use refuse::{Malformed, Refused};
pub use registered::NotRegistered;
pub use tunnel::Tunnel;

/// What every attempt needs.
pub struct Egress {
    policy: ArcSwap<Policy>,
    chain: ArcSwap<Chain>,
    client_tls: ArcSwapOption<ClientTls>,
    parts: Parts,
    turns: Turns,
    floods: Floods,
    redirects: Redirects,
    pool: Pool,
    /// When the DNS servers were last asked for readiness, and whether one answered.
    dns_seen: tokio::sync::Mutex<Option<(Instant, bool)>>,
    parent_trouble: way::Trouble,
}

/// What an [`Egress`] is given.
pub struct Parts {
    /// Who clients are.
    pub identities: Identities,
    /// Counts what sandboxes use of their limits.
    pub limiter: Limiter,
    /// Looks names up.
    pub resolver: Resolver,
    /// Opens connections.
    pub dialer: Dialer,
    /// Which way they go at first.
    pub chain: Chain,
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

impl Egress {
    /// Puts the parts together; `policy` and `client_tls` are the first ones in force.
    #[must_use]
    pub fn new(policy: Arc<Policy>, client_tls: Option<ClientTls>, mut parts: Parts) -> Self {
        Self {
            policy: ArcSwap::new(policy),
            chain: ArcSwap::from_pointee(std::mem::take(&mut parts.chain)),
            client_tls: ArcSwapOption::from_pointee(client_tls),
            turns: Turns::new(parts.look_ups),
            floods: Floods::default(),
            redirects: Redirects::default(),
            pool: Pool::new(parts.idle_upstreams),
            dns_seen: tokio::sync::Mutex::default(),
            parent_trouble: way::Trouble::default(),
            parts,
        }
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    /// Is this an address that egret itself listens at?
    #[must_use]
    pub fn is_own(&self, address: SocketAddr) -> bool {
        self.policy.load().listeners.contain(address, crate::dial::is_local)
    }

    /// How clients are received over TLS.
    #[must_use]
    pub fn client_tls(&self) -> Option<Arc<ClientTls>> {
        self.client_tls.load_full()
    }

    /// Puts another policy, another chain, other keys and other certificates in force: new attempts
    /// see them at once, open ones are decided again. Idle connections that went another way are
    /// closed.
    pub fn replace_policy(
        &self,
        policy: Policy,
        chain: Chain,
        keys: Option<TokenKeys>,
        client_tls: Option<ClientTls>,
    ) {
        let (policy, chain) = (Arc::new(policy), Arc::new(chain));
        self.parts.identities.replace_keys(keys);
        // Listeners change with a restart only: without one for TLS, the one that is open goes on.
        if let Some(client_tls) = client_tls {
            self.parts.identities.replace_trust(client_tls.trust().cloned());
            self.client_tls.store(Some(Arc::new(client_tls)));
        }
        // Before the policy: what that permits must not go the way of the old one.
        self.chain.store(chain);
        self.policy.store(Arc::clone(&policy));
        self.parts.signals.policy_changed(policy.generation);
        self.recheck_pool();
        for entry in self.registered().iter() {
            if let Some(error) = self.unusable(&entry.registration) {
                tracing::warn!(sandbox = %entry.registration.id, "a registered sandbox is nobody now: {error}");
            }
        }
    }

    /// Records that connections were turned away before their requests were read. `peer` is the
    /// last of them.
    pub fn record_overload(&self, peer: SocketAddr, count: u64) {
        let client = self.identify_connection(peer.ip(), None).ok();
        self.parts.audit.event(&audit::Event::Limit(audit::Limit {
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
        self.parts.signals.closing()
    }

    /// Lets go of idle connections to origins and of the counts of idle sandboxes, and tells what was
    /// counted to be told together.
    pub fn expire_idle(&self) {
        self.tell_floods(false);
        self.pool.expire();
        self.parts.limiter.forget_idle();
        self.redirects.forget_old();
    }

    /// Does a restart find what sandboxes have used of their limits?
    #[must_use]
    pub fn limits_are_kept(&self) -> bool {
        self.parts.limiter.is_kept()
    }

    /// Writes down what sandboxes have used of their limits, for the next process.
    pub async fn shutdown(&self) {
        self.parts.limiter.shutdown().await;
    }

    /// Did a DNS server answer within the last `fresh`? Asks, if nobody knows.
    pub async fn dns_answers(&self, fresh: Duration) -> bool {
        let mut known = self.dns_seen.lock().await;
        if known.is_none_or(|(when, _)| when.elapsed() >= fresh) {
            *known = Some((Instant::now(), self.parts.resolver.probe().await));
        }
        known.is_some_and(|(_, answers)| answers)
    }

    /// Is the process stopping?
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.parts.signals.stopping()
    }

    /// Waits until the process begins to stop.
    pub fn draining(&self) -> impl Future<Output = ()> + use<> {
        self.parts.signals.draining()
    }

    /// How long things may take.
    #[must_use]
    pub const fn timeouts(&self) -> &Timeouts {
        &self.parts.timeouts
    }

    /// What to count in.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.parts.metrics
    }
}
