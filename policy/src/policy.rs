//! The compiled policy: immutable, with a generation; one snapshot serves a whole attempt.
//!
//! Decides by rules alone. Never resolves a name: what it grants is leave to do so, and the
//! grant checks the answer.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::guard::{Candidate, Grant};
use crate::host::{DnsName, Host};
use crate::intent::{Action, Client, Intent};
use crate::limits::Limits;
use crate::networks::{self, Class, METADATA_NAMES, Nat64Prefix, classify};
use crate::paths::{AmbiguousPath, normalise};
use crate::ports::PortSet;
use crate::reason::Reason;
use crate::rules::{Rule, RuleList, TlsRule};
use crate::sandbox::Sandboxes;
use crate::verdict::{Refusal, Verdict};

/// What happens to a request that only the allow rules would refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It is refused.
    Enforce,
    /// It passes, with the verdict `would_deny`.
    Observe,
}

/// What holds where no rule says anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    /// Refuse.
    Deny,
    /// Allow public addresses on ports 80 and 443.
    Allow,
}

/// One `[policy.NAME]` with its rule sets.
#[derive(Debug)]
pub struct Effective {
    /// Its name.
    pub name: Arc<str>,
    /// Enforce or observe.
    pub mode: Mode,
    /// What holds where no rule says anything.
    pub default: Fallback,
    /// What a tunnel must carry where only the default allows it.
    pub default_tls: Option<TlsRule>,
    /// Deny rules: its own first, then those of its rule sets in order.
    pub deny: Vec<Arc<RuleList>>,
    /// Allow rules, in the same order.
    pub allow: Vec<Arc<RuleList>>,
    /// Its limits.
    pub limits: Arc<Limits>,
}

/// The proxy's own listeners, which no destination may be.
#[derive(Debug, Clone, Default)]
pub struct Listeners {
    /// Addresses as bound; an unspecified address counts for every local one.
    pub bound: Vec<SocketAddr>,
}

impl Listeners {
    /// Is this one of them? `is_local` tells whether an address is this machine's.
    #[must_use]
    pub fn contain(&self, address: SocketAddr, is_local: impl Fn(IpAddr) -> bool) -> bool {
        self.bound.iter().any(|own| {
            own.port() == address.port()
                && (own.ip() == address.ip()
                    || own.ip().is_unspecified() && (address.ip().is_loopback() || is_local(address.ip())))
        })
    }
}

/// Everything that decides, as one immutable value.
#[derive(Debug)]
pub struct Policy {
    /// Counts successful loads of this process from 1.
    pub generation: u64,
    /// Who is who.
    pub sandboxes: Sandboxes,
    /// The proxy's own listeners.
    pub listeners: Listeners,
    pub(crate) operator_deny: Arc<RuleList>,
    pub(crate) policies: HashMap<Arc<str>, Arc<Effective>>,
    pub(crate) nat64: Vec<Nat64Prefix>,
}

/// How far an allow rule came before it failed; the furthest one gives the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Miss {
    Port,
    Method,
    Path,
}

/// A miss and where its rule stands; of equal misses the first in file order is the nearest.
type Nearness = (Miss, Reverse<(usize, u32)>);

impl Policy {
    /// The policy that holds for a client.
    #[must_use]
    pub fn effective(&self, client: &Client) -> Option<&Arc<Effective>> {
        self.policies.get(&client.policy)
    }

    /// The policies of another one under this one's operator denials, listeners and prefixes.
    #[must_use]
    pub fn with_policies_of(&self, other: Self) -> Self {
        Self {
            listeners: self.listeners.clone(),
            operator_deny: Arc::clone(&self.operator_deny),
            nat64: self.nat64.clone(),
            ..other
        }
    }

    /// The names of the policies, in order.
    #[must_use]
    pub fn names(&self) -> Vec<Arc<str>> {
        let mut names: Vec<_> = self.policies.keys().cloned().collect();
        names.sort();
        names
    }

    /// Makes every client one sandbox under one policy, which may be told to observe only. False,
    /// and nothing has changed, where there is no such policy.
    #[must_use]
    pub fn hold_to(&mut self, sandbox: &str, policy: &str, observe: bool) -> bool {
        let Some(effective) = self.policies.get_mut(policy) else { return false };
        if observe && effective.mode != Mode::Observe {
            // Nobody else can have it yet.
            let Some(effective) = Arc::get_mut(effective) else { return false };
            effective.mode = Mode::Observe;
        }
        self.sandboxes = Sandboxes::one(sandbox, policy);
        true
    }

    /// Is there a policy of this name?
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.policies.contains_key(name)
    }

    /// The address that is reached at this one: behind a NAT64 translator, the IPv4 address inside.
    #[must_use]
    pub fn reached(&self, address: IpAddr) -> IpAddr {
        networks::effective(address, &self.nat64)
    }

    /// Decides by name, port, method and path; what is granted still has to be resolved and pinned.
    pub fn decide(self: &Arc<Self>, intent: &Intent) -> Verdict {
        let Some(effective) = self.effective(&intent.client) else {
            return Verdict::Deny(Refusal::new(Reason::IdentityRejected).with_detail("the policy is gone"));
        };
        if let Some(refusal) = self.hard_denial(intent).or_else(|| self.denied(effective, intent)) {
            return Verdict::Deny(refusal);
        }
        match candidates(effective, intent, &self.nat64) {
            Ok(candidates) => {
                Verdict::Allow(Grant::new(Arc::clone(self), Arc::clone(effective), intent, candidates, None))
            }
            Err(refusal) if effective.mode == Mode::Observe => {
                let candidates = vec![Candidate::Observe];
                let policy = Arc::clone(self);
                Verdict::Allow(Grant::new(policy, Arc::clone(effective), intent, candidates, Some(refusal)))
            }
            Err(refusal) => Verdict::Deny(refusal),
        }
    }

    /// For a literal, as far as it can be known without asking the machine; pinning asks.
    fn is_own_listener(&self, address: IpAddr, port: u16) -> bool {
        self.listeners.contain(SocketAddr::new(address, port), |_| false)
    }

    /// Denials that no rule and no mode can lift.
    fn hard_denial(&self, intent: &Intent) -> Option<Refusal> {
        match intent.destination.host() {
            Host::Name(name) => METADATA_NAMES
                .contains(&name.as_str())
                .then(|| Refusal::new(Reason::DomainDenied).with_detail("a cloud metadata service")),
            Host::Address(address) if self.is_own_listener(*address, intent.destination.port()) => {
                Some(Refusal::new(Reason::AddressForbidden).with_detail("a listener of the proxy itself"))
            }
            Host::Address(address) => match classify(*address, &self.nat64) {
                Class::Forbidden(range) => {
                    Some(Refusal::new(Reason::AddressForbidden).with_detail(range.name))
                }
                Class::Private(_) | Class::Public => None,
            },
        }
    }

    /// Deny rules that need no resolved address.
    fn denied(&self, effective: &Effective, intent: &Intent) -> Option<Refusal> {
        let mut lists = std::iter::once(&self.operator_deny).chain(&effective.deny);
        lists.find_map(|list| match intent.destination.host() {
            Host::Name(name) => denied_name(list, name, intent),
            Host::Address(address) => self.denied_address(list, *address, intent),
        })
    }

    /// A deny rule without domains that holds the address.
    pub(crate) fn denied_address(
        &self,
        list: &RuleList,
        address: IpAddr,
        intent: &Intent,
    ) -> Option<Refusal> {
        let mut refusal = None;
        list.each_holding(address, &self.nat64, |_, rule| {
            if refusal.is_none() && deny_applies(rule, &rule.ports, intent) {
                refusal = Some(Refusal::by(Reason::AddressNotAllowed, rule));
            }
        });
        refusal
    }
}

fn denied_name(list: &RuleList, name: &DnsName, intent: &Intent) -> Option<Refusal> {
    let mut first: Option<(u32, &Rule)> = None;
    list.each_named(name, |number, rule, ports| {
        // With networks as well, the resolved addresses decide later.
        let applies = rule.addresses.is_empty() && deny_applies(rule, ports, intent);
        if applies && first.is_none_or(|(lowest, _)| number < lowest) {
            first = Some((number, rule));
        }
    });
    first.map(|(_, rule)| Refusal::by(Reason::DomainDenied, rule))
}

/// Does a deny rule that holds the host apply to the rest of the intent?
///
/// A path that servers read differently counts as matching, and so does a method in another case:
/// a denial must not be dodged by an odd spelling.
pub(crate) fn deny_applies(rule: &Rule, ports: &PortSet, intent: &Intent) -> bool {
    ports.contains(intent.destination.port())
        && match &intent.action {
            // A rule on methods or paths leaves a way to the place.
            Action::Tunnel | Action::Place => !rule.needs_request(),
            Action::Request { method, path } => {
                let same = |m: &String| m.eq_ignore_ascii_case(method);
                let method_fits = rule.methods.is_empty() || rule.methods.iter().any(same);
                let path_fits = || match normalise(path) {
                    Ok(path) => rule.paths.iter().any(|glob| glob.matches(&path)),
                    Err(AmbiguousPath) => true,
                };
                method_fits && (rule.paths.is_empty() || path_fits())
            }
        }
}

/// The allow rules that accept the intent so far, in order; the answer of DNS decides between them.
pub(crate) fn candidates<'a>(
    effective: &'a Effective,
    intent: &Intent,
    nat64: &[Nat64Prefix],
) -> Result<Vec<Candidate>, Refusal> {
    let mut found = Vec::new();
    let mut nearest: Option<(Nearness, &Rule)> = None;
    for (number, list) in effective.allow.iter().enumerate() {
        let mut consider = |rule_number: u32, rule: &'a Rule, ports: &PortSet| {
            let place = (number, rule_number);
            match judge(rule, ports, intent) {
                Ok(()) => found.push(place),
                Err(miss) => {
                    let rank = (miss, Reverse(place));
                    if nearest.is_none_or(|(best, _)| rank > best) {
                        nearest = Some((rank, rule));
                    }
                }
            }
        };
        match intent.destination.host() {
            Host::Name(name) => list.each_named(name, &mut consider),
            Host::Address(address) => {
                list.each_holding(*address, nat64, |n, rule| consider(n, rule, &rule.ports));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    let mut candidates: Vec<_> =
        found.into_iter().map(|(list, rule)| Candidate::Rule { list, rule }).collect();
    let port_by_default = PortSet::web().contains(intent.destination.port());
    if effective.default == Fallback::Allow && port_by_default {
        candidates.push(Candidate::Default);
    }
    if effective.mode == Mode::Observe && !candidates.is_empty() {
        candidates.push(Candidate::Observe);
    }
    if !candidates.is_empty() {
        return Ok(candidates);
    }
    Err(match nearest {
        Some(((miss, _), rule)) => Refusal::by(miss.reason(), rule),
        None if effective.default == Fallback::Allow => Refusal::new(Reason::PortNotAllowed),
        None => Refusal::new(match intent.destination.host() {
            Host::Name(_) => Reason::DomainNotAllowed,
            Host::Address(_) => Reason::AddressNotAllowed,
        }),
    })
}

/// Does an allow rule that names the host accept the rest of the intent?
pub(crate) fn judge(rule: &Rule, ports: &PortSet, intent: &Intent) -> Result<(), Miss> {
    if !ports.contains(intent.destination.port()) {
        return Err(Miss::Port);
    }
    match &intent.action {
        Action::Tunnel if !rule.methods.is_empty() => Err(Miss::Method),
        Action::Tunnel if !rule.paths.is_empty() => Err(Miss::Path),
        Action::Tunnel | Action::Place => Ok(()),
        Action::Request { method, path } => {
            if !rule.methods.is_empty() && !rule.methods.iter().any(|m| **m == **method) {
                return Err(Miss::Method);
            }
            let fits = || normalise(path).is_ok_and(|path| rule.paths.iter().any(|glob| glob.matches(&path)));
            if rule.paths.is_empty() || fits() { Ok(()) } else { Err(Miss::Path) }
        }
    }
}

impl Miss {
    const fn reason(self) -> Reason {
        match self {
            Self::Port => Reason::PortNotAllowed,
            Self::Method => Reason::MethodNotAllowed,
            Self::Path => Reason::PathNotAllowed,
        }
    }
}
