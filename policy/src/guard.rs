//! From leave to look up to addresses that may be dialled.
//!
//! [`Grant::pin`] is the only maker of a [`PinnedAddr`], and it consumes the grant: an address
//! that was not checked under a grant has no type that the dialler accepts.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::host::Host;
use crate::intent::Intent;
use crate::limits::Limits;
use crate::networks::{Class, classify, effective};
use crate::policy::{Effective, Policy, deny_applies};
use crate::reason::Reason;
use crate::rules::{Rule, TlsRule};
use crate::verdict::Refusal;

/// An allow rule that accepts the intent, or what stands in for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Candidate {
    /// A rule, by its list and its number there.
    Rule { list: usize, rule: u32 },
    /// The policy's `default = "allow"`.
    Default,
    /// The policy only observes.
    Observe,
}

/// Leave to look a destination up: a rule allows it, subject to its addresses.
#[derive(Debug)]
pub struct Grant {
    policy: Arc<Policy>,
    effective: Arc<Effective>,
    intent: Intent,
    candidates: Vec<Candidate>,
    /// The refusal that the mode `observe` holds back.
    would_deny: Option<Refusal>,
}

/// What DNS, or a literal, said. Not to be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// The addresses of the whole answer, in its order.
    pub addresses: Vec<IpAddr>,
}

/// An address and port that the guard has cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PinnedAddr(SocketAddr);

impl PinnedAddr {
    /// The address to dial.
    #[must_use]
    pub const fn socket_addr(self) -> SocketAddr {
        self.0
    }
}

/// The way to a destination: checked addresses, and what holds for what flows there.
#[derive(Debug)]
pub struct Route {
    addresses: Vec<PinnedAddr>,
    /// `file:line` of the rule that allows it; `None` for a default.
    pub rule: Option<Arc<str>>,
    /// What a tunnel must carry.
    pub tls: TlsRule,
    /// The limits of the policy, with the times of a token that shortens them.
    pub limits: Arc<Limits>,
    /// Does the rule hold for requests alone, so that nothing opaque may follow one?
    pub requests_only: bool,
    /// The refusal that the mode `observe` holds back.
    pub would_deny: Option<Refusal>,
}

impl Route {
    /// The checked addresses, in the order of the answer; at least one.
    #[must_use]
    pub fn addresses(&self) -> &[PinnedAddr] {
        &self.addresses
    }
}

impl Grant {
    pub(crate) fn new(
        policy: Arc<Policy>,
        effective: Arc<Effective>,
        intent: &Intent,
        candidates: Vec<Candidate>,
        would_deny: Option<Refusal>,
    ) -> Self {
        Self { policy, effective, intent: intent.clone(), candidates, would_deny }
    }

    /// The host that may be looked up.
    #[must_use]
    pub const fn host(&self) -> &Host {
        self.intent.destination.host()
    }

    /// The refusal that the mode `observe` holds back, as far as rules alone can tell.
    #[must_use]
    pub const fn would_deny(&self) -> Option<&Refusal> {
        self.would_deny.as_ref()
    }

    /// The policy's limits.
    #[must_use]
    pub fn limits(&self) -> &Arc<Limits> {
        &self.effective.limits
    }

    /// Checks a whole answer and gives the way to go, or refuses it whole.
    ///
    /// `is_local` tells whether an address is this machine's, for listeners bound to every address.
    ///
    /// # Errors
    /// `address_forbidden`, `address_not_allowed` or `mixed_answer`; `dns_not_found` for no address.
    pub fn pin(self, answer: &Resolution, is_local: impl Fn(IpAddr) -> bool) -> Result<Route, Refusal> {
        let port = self.intent.destination.port();
        let classes: Vec<_> = answer.addresses.iter().map(|&a| (a, self.class(a, port, &is_local))).collect();
        if classes.is_empty() {
            return Err(Refusal::new(Reason::DnsNotFound));
        }
        if classes.iter().all(|(_, class)| matches!(class, Standing::Forbidden(_))) {
            return Err(refuse_none(&classes));
        }
        if let Some(refusal) = answer.addresses.iter().find_map(|&a| self.denied(a)) {
            return Err(refusal);
        }
        let mut held_back = self.would_deny.clone();
        let mut most = 0;
        for candidate in &self.candidates {
            let rule = self.rule(*candidate);
            let accepted = classes.iter().filter(|(a, class)| self.accepts(rule, *a, class)).count();
            if accepted < classes.len() {
                most = most.max(accepted);
                continue;
            }
            if *candidate == Candidate::Observe && held_back.is_none() {
                held_back = Some(refuse(&classes, most));
            }
            let addresses = answer.addresses.iter().map(|&a| PinnedAddr(SocketAddr::new(a, port)));
            return Ok(Route {
                addresses: addresses.collect(),
                rule: rule.map(|rule| Arc::clone(&rule.cite)),
                tls: self.tls(rule, port),
                limits: self.limits_of_route(),
                requests_only: rule.is_some_and(Rule::needs_request),
                would_deny: held_back,
            });
        }
        Err(refuse(&classes, most))
    }

    fn limits_of_route(&self) -> Arc<Limits> {
        let own = &self.effective.limits;
        match self.intent.client.limits() {
            Some(token) => Arc::new(own.with_shorter_tunnels(token)),
            None => Arc::clone(own),
        }
    }

    fn class(&self, address: IpAddr, port: u16, is_local: impl Fn(IpAddr) -> bool) -> Standing {
        // A translator sends what it gets for `address` to the IPv4 address inside.
        let reached = [address, effective(address, &self.policy.nat64)];
        if reached.iter().any(|&a| self.policy.listeners.contain(SocketAddr::new(a, port), &is_local)) {
            return Standing::Forbidden("a listener of the proxy itself");
        }
        match classify(address, &self.policy.nat64) {
            Class::Forbidden(range) => Standing::Forbidden(range.name),
            Class::Private(range) => Standing::Private(range.name),
            Class::Public => Standing::Public,
        }
    }

    fn accepts(&self, rule: Option<&Rule>, address: IpAddr, standing: &Standing) -> bool {
        let held = || rule.is_some_and(|rule| rule.holds(address, &self.policy.nat64));
        match standing {
            Standing::Forbidden(_) => false,
            Standing::Private(_) => held(),
            Standing::Public => rule.is_none_or(|rule| rule.addresses.is_empty()) || held(),
        }
    }

    /// Deny rules that look at the resolved addresses.
    fn denied(&self, address: IpAddr) -> Option<Refusal> {
        let mut lists = std::iter::once(&self.policy.operator_deny).chain(&self.effective.deny);
        lists.find_map(|list| {
            if let Some(refusal) = self.policy.denied_address(list, address, &self.intent) {
                return Some(refusal);
            }
            let name = self.host().name()?;
            let mut first: Option<(u32, &Rule)> = None;
            list.each_named(name, |number, rule, ports| {
                let applies =
                    rule.holds(address, &self.policy.nat64) && deny_applies(rule, ports, &self.intent);
                if applies && first.is_none_or(|(lowest, _)| number < lowest) {
                    first = Some((number, rule));
                }
            });
            first.map(|(_, rule)| Refusal::by(Reason::AddressNotAllowed, rule))
        })
    }

    fn rule(&self, candidate: Candidate) -> Option<&Rule> {
        match candidate {
            Candidate::Rule { list, rule } => self.effective.allow.get(list)?.rule(rule),
            Candidate::Default | Candidate::Observe => None,
        }
    }

    fn tls(&self, rule: Option<&Rule>, port: u16) -> TlsRule {
        let said = match rule {
            Some(rule) => rule.tls,
            None => self.effective.default_tls,
        };
        said.unwrap_or_else(|| TlsRule::default_for(port))
    }
}

/// What an address is under this grant's policy, with its range.
#[derive(Debug)]
enum Standing {
    Public,
    Private(&'static str),
    Forbidden(&'static str),
}

/// The refusal of an answer of which the best candidate accepts `most` addresses.
fn refuse(classes: &[(IpAddr, Standing)], most: usize) -> Refusal {
    if most == 0 {
        return refuse_none(classes);
    }
    Refusal::new(Reason::MixedAnswer).with_detail(describe(classes))
}

fn refuse_none(classes: &[(IpAddr, Standing)]) -> Refusal {
    let forbidden = classes.iter().any(|(_, class)| matches!(class, Standing::Forbidden(_)));
    let reason = if forbidden { Reason::AddressForbidden } else { Reason::AddressNotAllowed };
    Refusal::new(reason).with_detail(describe(classes))
}

/// The first addresses that stand in the way, for the audit record.
fn describe(classes: &[(IpAddr, Standing)]) -> String {
    let special = classes.iter().filter_map(|(address, class)| match class {
        Standing::Forbidden(name) | Standing::Private(name) => Some(format!("{address}: {name}")),
        Standing::Public => None,
    });
    let text: Vec<_> = special.take(3).collect();
    if text.is_empty() { "outside the rule's networks".to_owned() } else { text.join("; ") }
}
