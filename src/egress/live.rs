//! What open connections listen to: policy changes, revocations, an audit that fails, a stop.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use egret_policy::{
    Client, Identity, Intent, PinnedAddr, Policy, Reason, Registered, Resolution, TlsRule, Verdict,
};
use tokio::sync::watch;

use super::Egress;
use crate::identity::Snapshot;

/// How long a connection may take to end by itself when all are being closed.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How far a stop has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Running,
    /// New requests are refused, open ones go on.
    Draining,
    /// Open ones are closed.
    Closing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    generation: u64,
    /// Revocations and registrations.
    identities: u64,
    audit: bool,
    phase: Phase,
}

/// Tells every open connection at once that something has changed.
#[derive(Debug, Clone)]
pub struct Signals {
    state: Arc<watch::Sender<State>>,
}

impl Signals {
    /// Signals for a process that begins with this policy.
    #[must_use]
    pub fn new(generation: u64) -> Self {
        let state = State { generation, identities: 0, audit: true, phase: Phase::Running };
        Self { state: Arc::new(watch::Sender::new(state)) }
    }

    /// Another policy is in force.
    pub fn policy_changed(&self, generation: u64) {
        self.state.send_modify(|state| state.generation = generation);
    }

    /// A token was revoked, or what is registered has changed.
    pub fn identities_changed(&self) {
        self.state.send_modify(|state| state.identities = state.identities.wrapping_add(1));
    }

    /// The audit can, or can't, be written.
    pub fn audit_is(&self, healthy: bool) {
        self.state.send_if_modified(|state| std::mem::replace(&mut state.audit, healthy) != healthy);
    }

    /// New requests are refused from now on.
    pub fn drain(&self) {
        self.state.send_modify(|state| state.phase = Phase::Draining);
    }

    /// Open connections are closed now.
    pub fn close(&self) {
        self.state.send_modify(|state| state.phase = Phase::Closing);
    }

    /// Is the process stopping?
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.state.borrow().phase > Phase::Running
    }

    /// Is traffic refused because the audit can't be written?
    #[must_use]
    pub fn audit_failed(&self) -> bool {
        !self.state.borrow().audit
    }

    /// Waits until the process begins to stop.
    pub fn draining(&self) -> impl Future<Output = ()> + use<> {
        let mut state = self.state.subscribe();
        async move {
            // An error means that the process is over anyway.
            let _ = state.wait_for(|state| state.phase > Phase::Running).await;
        }
    }

    /// Waits until open connections are being closed, and then long enough for them to say so.
    pub fn closing(&self) -> impl Future<Output = ()> + use<> {
        let mut state = self.state.subscribe();
        async move {
            // An error means that the process is over anyway.
            let _ = state.wait_for(|state| state.phase == Phase::Closing).await;
            tokio::time::sleep(LAST_WORDS).await;
        }
    }

    pub(super) fn subscribe(&self) -> Subscription {
        Subscription(self.state.subscribe())
    }
}

pub(super) struct Subscription(watch::Receiver<State>);

/// What a decision was made by: the policy, and what was registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Basis {
    generation: u64,
    registrations: u64,
}

impl Basis {
    pub(super) fn of(policy: &Policy, registered: &Snapshot) -> Self {
        Self { generation: policy.generation, registrations: registered.version }
    }
}

/// Ends when an open connection must: see [`Stop::wait`].
pub struct Stop {
    egress: Arc<Egress>,
    changes: Subscription,
    intent: Intent,
    address: PinnedAddr,
    tls: TlsRule,
    basis: Basis,
}

impl Stop {
    pub(super) const fn new(
        egress: Arc<Egress>,
        changes: Subscription,
        intent: Intent,
        address: PinnedAddr,
        tls: TlsRule,
        basis: Basis,
    ) -> Self {
        Self { egress, changes, intent, address, tls, basis }
    }

    /// Must it be closed now? Not a part of [`Stop::wait`], so that what waits holds no policy.
    fn due(&mut self) -> Option<Reason> {
        let state = *self.changes.0.borrow_and_update();
        if state.phase == Phase::Closing {
            return Some(Reason::ShuttingDown);
        }
        if !state.audit {
            return Some(Reason::AuditUnavailable);
        }
        if !self.egress.parts.identities.still_hold(&self.intent.client) {
            return Some(Reason::IdentityRejected);
        }
        // The policy itself is looked at, not the signal: it is stored first.
        let (policy, registered) = (self.egress.policy(), self.egress.registered());
        let basis = Basis::of(&policy, &registered);
        if basis != self.basis {
            let registered = &registered.registered;
            if !still_allowed(&policy, registered, &self.intent, self.address, Some(self.tls)) {
                return Some(Reason::PolicyChanged);
            }
            self.basis = basis;
        }
        None
    }

    /// Waits until the connection must be closed, and says why: the policy in force no longer
    /// permits it, its token or certificate no longer holds, the audit can't be written, or the process stops.
    pub async fn wait(&mut self) -> Reason {
        loop {
            if let Some(reason) = self.due() {
                return reason;
            }
            if self.changes.0.changed().await.is_err() {
                return Reason::ShuttingDown;
            }
        }
    }
}

/// The client as it would be identified now; `None` if that is another sandbox, or none.
pub(super) fn still_identified(policy: &Policy, registered: &Registered, client: &Client) -> Option<Client> {
    match &client.identity {
        // By its token alone: whether that still holds is no question of policy.
        Identity::Token(_) => Some(client.clone()),
        Identity::Cert(certificate) => {
            let now = policy.sandboxes.identify_certificate(client.source, certificate).ok();
            now.filter(|now| now.sandbox == client.sandbox)
        }
        Identity::Source | Identity::Registered(_) | Identity::Listener => {
            let now = policy.sandboxes.identify(client.source, registered).ok();
            now.filter(|now| now.sandbox == client.sandbox)
        }
    }
}

/// Would this policy permit what is open already?
///
/// `tls` is what was asked of a tunnel when it was opened: one that may have begun with anything
/// can't be kept under a policy that asks for TLS.
pub(super) fn still_allowed(
    policy: &Arc<Policy>,
    registered: &Registered,
    intent: &Intent,
    address: PinnedAddr,
    tls: Option<TlsRule>,
) -> bool {
    let Some(client) = still_identified(policy, registered, &intent.client) else {
        return false;
    };
    let intent = Intent { client, ..intent.clone() };
    let Verdict::Allow(grant) = policy.decide(&intent) else {
        return false;
    };
    let answer = Resolution { addresses: vec![address.socket_addr().ip()] };
    match grant.pin(&answer, crate::dial::is_local) {
        Ok(route) => !(route.tls == TlsRule::Required && tls == Some(TlsRule::Any)),
        Err(_) => false,
    }
}
