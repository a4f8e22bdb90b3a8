//! Opening a way out, step by step in the one order: decide, resolve, pin, dial, record.

use std::sync::Arc;
use std::time::Instant;

use egret_policy::{
    Client, Grant, Intent, Limits, PinnedAddr, Policy, Reason, Refusal, Resolution, Route, Verdict,
};

use super::live::{self, Basis};
use super::refuse::{dns_reason, unrecorded};
use super::way::Opened;
use super::{Egress, Exchange, Peer, Refused, Stop, Tunnel};
use crate::audit::{self, Attempt, Text};
use crate::chain::{Parent, Way};
use crate::limit::{Account, Exceeded, Permit};
use crate::resolve::ResolveError;

/// An intent that was allowed and resolved; nothing has been dialled yet.
struct Admitted {
    attempt: Attempt,
    route: Route,
    permit: Permit,
    basis: Basis,
}

impl Egress {
    /// Opens a tunnel.
    ///
    /// # Errors
    /// The refusal, recorded.
    pub async fn open_tunnel(
        self: &Arc<Self>,
        intent: Intent,
        peer: impl Into<Peer>,
    ) -> Result<Tunnel, Refused> {
        let Admitted { mut attempt, route, permit, basis } = self.admit(&intent, peer.into()).await?;
        let opened = match self.dial(&intent.destination, &route).await {
            Ok(opened) => opened,
            Err(error) => return Err(self.refuse_dial(attempt, error).await),
        };
        note_opened(&mut attempt, &opened);
        let attempt = self.still_current(attempt, &intent, opened.peer, basis).await?;
        let flow = self.permit(attempt).await?;
        let stop = self.stop_for(intent, &route, opened.peer, basis);
        Ok(Tunnel::new(Arc::clone(self), (opened.stream, opened.early), route, flow, permit, stop))
    }

    /// Opens the way for one request, over a pooled connection if one fits.
    ///
    /// # Errors
    /// The refusal, recorded.
    pub async fn open_exchange(
        self: &Arc<Self>,
        intent: Intent,
        peer: impl Into<Peer>,
    ) -> Result<Exchange, Refused> {
        let Admitted { mut attempt, route, permit, basis } = self.admit(&intent, peer.into()).await?;
        let chain = self.chain.load_full();
        let way = |address: PinnedAddr| chain.way(&intent.destination, address.socket_addr().ip());
        let upstream = match self.pool.take(&intent, &route, way) {
            Some(upstream) => {
                note_way(&mut attempt, upstream.address(), upstream.way());
                upstream
            }
            None => match self.dial(&intent.destination, &route).await {
                Ok(opened) => {
                    note_opened(&mut attempt, &opened);
                    match opened.http().await {
                        Ok(upstream) => upstream,
                        Err(error) => {
                            let refusal = Refusal::new(Reason::UpstreamProtocol).with_detail(error);
                            return Err(self.refuse_for(attempt, refusal).await);
                        }
                    }
                }
                Err(error) => return Err(self.refuse_dial(attempt, error).await),
            },
        };
        let attempt = self.still_current(attempt, &intent, upstream.address(), basis).await?;
        let flow = self.permit(attempt).await?;
        let stop = self.stop_for(intent.clone(), &route, upstream.address(), basis);
        Ok(Exchange::new(Arc::clone(self), intent, upstream, route, flow, permit, stop))
    }

    /// Decides a request that the proxy answers itself, with this status.
    ///
    /// # Errors
    /// The refusal, recorded.
    pub async fn answer_here(
        &self,
        intent: &Intent,
        peer: impl Into<Peer>,
        status: u16,
    ) -> Result<(), Refused> {
        let Admitted { mut attempt, .. } = self.admit(intent, peer.into()).await?;
        attempt.outcome_mut().status = Some(status);
        let id = attempt.id().to_string();
        self.parts.metrics.decided("allow", Reason::Allowed);
        attempt.refuse().await.map_err(|error| unrecorded(&error, id))
    }

    fn stop_for(self: &Arc<Self>, intent: Intent, route: &Route, address: PinnedAddr, basis: Basis) -> Stop {
        Stop::new(Arc::clone(self), self.parts.signals.subscribe(), intent, address, route.tls, basis)
    }

    /// Refuses what is no longer permitted: a policy may have come into force, or a token been
    /// revoked, while DNS or the dial took their time.
    async fn still_current(
        &self,
        mut attempt: Attempt,
        intent: &Intent,
        address: PinnedAddr,
        basis: Basis,
    ) -> Result<Attempt, Refused> {
        if !self.parts.identities.still_hold(&intent.client) {
            attempt.outcome_mut().verdict = audit::Verdict::Deny;
            let refusal = Refusal::new(Reason::IdentityRejected);
            return Err(self.refuse_for(attempt, refusal.with_detail("the identity no longer holds")).await);
        }
        let (policy, registered) = (self.policy.load_full(), self.registered());
        if Basis::of(&policy, &registered) == basis
            || live::still_allowed(&policy, &registered.registered, intent, address, None)
        {
            return Ok(attempt);
        }
        attempt.outcome_mut().verdict = audit::Verdict::Deny;
        let refusal = match policy.decide(intent) {
            Verdict::Deny(refusal) => refusal,
            Verdict::Allow(_) => Refusal::new(Reason::AddressNotAllowed),
        };
        Err(self.refuse_for(attempt, refusal.with_detail("the policy has changed meanwhile")).await)
    }

    /// Decides, resolves and pins.
    async fn admit(&self, intent: &Intent, peer: Peer) -> Result<Admitted, Refused> {
        let mut attempt = self.parts.audit.begin(self.request_record(intent, peer));
        if self.parts.signals.stopping() {
            return Err(self.refuse_for(attempt, Refusal::new(Reason::ShuttingDown)).await);
        }
        if self.parts.signals.audit_failed() {
            // Known beforehand: no need to look up or dial for it.
            return Err(self.refuse_for(attempt, Refusal::new(Reason::AuditUnavailable)).await);
        }
        let (policy, registered) = (self.policy.load_full(), self.registered());
        if !self.parts.identities.still_hold(&intent.client)
            || live::still_identified(&policy, &registered.registered, &intent.client).is_none()
        {
            // It has changed since its client was identified, which in SOCKS is a message earlier.
            let refusal = Refusal::new(Reason::IdentityRejected);
            return Err(self.refuse_for(attempt, refusal.with_detail("the identity no longer holds")).await);
        }
        let basis = Basis::of(&policy, &registered);
        let outcome = attempt.outcome_mut();
        outcome.generation = Some(policy.generation);
        outcome.policy = Some(Text::from(&intent.client.policy));
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
        self.parts.metrics.dns_seconds.observe(started.elapsed().as_secs_f64());
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
        if let Some(original) = peer.original {
            // For people to look at: names whose answers rotate do this, and so does a lie.
            attempt.outcome_mut().original_differs = !resolution.addresses.contains(&original.ip());
        }
        let pinned = match grant.pin(&resolution, crate::dial::is_local) {
            Ok(route) => self.keep_off_parent(&intent.destination, route).await,
            refused => refused,
        };
        match pinned {
            Ok(route) => {
                let outcome = attempt.outcome_mut();
                outcome.reason = Reason::Allowed.code();
                outcome.rule = route.rule.as_ref().map(Text::from);
                if let Some(held_back) = &route.would_deny {
                    outcome.verdict = audit::Verdict::WouldDeny;
                    outcome.reason = held_back.reason.code();
                    outcome.rule = held_back.rule.as_ref().map(Text::from);
                }
                Ok(Admitted { attempt, route, permit, basis })
            }
            Err(refusal) => {
                attempt.outcome_mut().verdict = audit::Verdict::Deny;
                Err(self.refuse_for(attempt, refusal).await)
            }
        }
    }

    /// Looks a granted host up. What is not known yet waits for one of the sandbox's own turns, so
    /// that slow names of one sandbox leave the servers to the others.
    pub(super) async fn look_up(&self, intent: &Intent, grant: &Grant) -> Result<Resolution, ResolveError> {
        if let Some(known) = self.parts.resolver.known(grant) {
            return known.map(Resolution::from);
        }
        let Some(_turn) = self.turns.take(&intent.client.sandbox, self.parts.resolver.timeout()).await else {
            return Err(ResolveError::Timeout);
        };
        self.parts.resolver.resolve(grant).await.map(Resolution::from)
    }

    async fn permit(&self, attempt: Attempt) -> Result<audit::Flow, Refused> {
        let id = attempt.id();
        let observed = attempt.verdict() == audit::Verdict::WouldDeny;
        match attempt.permit().await {
            Ok(flow) => {
                let verdict = if observed { "would_deny" } else { "allow" };
                self.parts.metrics.decided(verdict, Reason::Allowed);
                Ok(flow)
            }
            Err(error) => {
                self.parts.metrics.decided("deny", Reason::AuditUnavailable);
                Err(unrecorded(&error, id.to_string()))
            }
        }
    }

    fn take_in(&self, policy: &Policy, intent: &Intent) -> Result<Permit, Exceeded> {
        self.parts.limiter.admit(accounts(policy, &intent.client))
    }

    /// Counts a request that becomes no intent: against the rate alone, as it opens nothing.
    pub(super) fn count_request(&self, client: &Client) -> Result<(), Exceeded> {
        let rate = |limits: Arc<Limits>| Arc::new(Limits { requests: limits.requests, ..Limits::NONE });
        let accounts = accounts(&self.policy.load(), client);
        let rates = accounts.into_iter().map(|(account, limits)| (account, rate(limits)));
        self.parts.limiter.admit(rates).map(drop)
    }
}

/// Whose limits hold for a client's request.
pub(super) fn accounts(policy: &Policy, client: &Client) -> Vec<(Account, Arc<Limits>)> {
    let limits = policy.effective(client).map(|effective| Arc::clone(&effective.limits));
    let mut accounts = vec![(Account::of_sandbox(client), limits.unwrap_or_default())];
    accounts.extend(Account::of_own_limits(client));
    accounts
}

/// What holds of a grant if nothing comes of it.
fn note_grant(attempt: &mut Attempt, grant: &Grant) {
    let outcome = attempt.outcome_mut();
    outcome.verdict = audit::Verdict::Allow;
    if let Some(held_back) = grant.would_deny() {
        outcome.verdict = audit::Verdict::WouldDeny;
        outcome.rule = held_back.rule.as_ref().map(Text::from);
    }
}

/// Notes where the connection goes and how.
fn note_way(attempt: &mut Attempt, address: PinnedAddr, way: &Way) {
    let outcome = attempt.outcome_mut();
    outcome.dialed = Some(address.socket_addr().ip());
    if let Way::Through(parent) = way {
        note_parent(attempt, parent);
    }
}

pub(super) fn note_parent(attempt: &mut Attempt, parent: &Parent) {
    attempt.outcome_mut().via_parent = Some(Text::from(parent.to_string()));
}

fn note_opened(attempt: &mut Attempt, opened: &Opened) {
    note_way(attempt, opened.peer, &opened.way);
    if !opened.failed.is_empty() {
        attempt.outcome_mut().detail = Some(Text::from(opened.failed.join("; ")));
    }
}
