//! May a client know where a name leads? Yes where it may reach the name on some port.
//!
//! Asks the one matcher, once for each port at which its answer may change, and has the grants of
//! those ports judge the addresses. Knows no rule of its own.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use crate::destination::{Destination, Scheme};
use crate::guard::{Grant, Resolution, Route};
use crate::host::{DnsName, Host};
use crate::intent::{Action, Client, Entry, Intent};
use crate::policy::{Effective, Policy};
use crate::ports::PortSet;
use crate::reason::Reason;
use crate::verdict::{Refusal, Verdict};

/// The answer to a question for a name.
#[derive(Debug)]
#[must_use = "a verdict that nobody looks at decides nothing"]
pub enum NameVerdict {
    /// It may be looked up; its addresses are still to be checked.
    Allow(Box<NameGrant>),
    /// It may not.
    Deny(Refusal),
}

/// Leave to look a name up: some port of it is allowed, subject to its addresses.
#[derive(Debug)]
pub struct NameGrant {
    first: Grant,
    /// Of the other ports, in the order in which they are tried.
    rest: Vec<Grant>,
    named: bool,
}

/// What a name leads to, by the first port that may be reached there.
#[derive(Debug)]
pub struct NameRoute {
    /// The way to that port.
    pub route: Route,
}

impl NameRoute {
    /// The addresses that may be told.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.route.addresses().iter().map(|address| address.socket_addr().ip())
    }
}

impl NameGrant {
    /// The grant under which the name is looked up.
    #[must_use]
    pub const fn lookup(&self) -> &Grant {
        &self.first
    }

    /// Does a rule name it itself, so that its client had no choice of labels?
    #[must_use]
    pub const fn is_named(&self) -> bool {
        self.named
    }

    /// The refusal that the mode `observe` holds back, as far as rules alone can tell.
    #[must_use]
    pub const fn would_deny(&self) -> Option<&Refusal> {
        self.first.would_deny()
    }

    /// Checks a whole answer as [`Grant::pin`] does, for each port until one may be reached.
    ///
    /// # Errors
    /// The refusal for the first of them.
    pub fn pin(
        self,
        answer: &Resolution,
        is_local: impl Fn(IpAddr) -> bool + Copy,
    ) -> Result<NameRoute, Refusal> {
        let (mut observed, mut refused) = (None, None);
        for grant in std::iter::once(self.first).chain(self.rest) {
            match grant.pin(answer, is_local) {
                Ok(route) if route.would_deny.is_none() => return Ok(NameRoute { route }),
                Ok(route) => observed = observed.or(Some(route)),
                Err(refusal) => refused = refused.or(Some(refusal)),
            }
        }
        match (observed, refused) {
            (Some(route), _) => Ok(NameRoute { route }),
            (None, Some(refusal)) => Err(refusal),
            (None, None) => Err(Refusal::new(Reason::DnsNotFound)),
        }
    }
}

impl Policy {
    /// Decides whether a client may know the addresses of a name.
    pub fn decide_name(self: &Arc<Self>, client: &Client, name: &DnsName) -> NameVerdict {
        let Some(effective) = self.effective(client) else {
            return NameVerdict::Deny(
                Refusal::new(Reason::IdentityRejected).with_detail("the policy is gone"),
            );
        };
        let (mut granted, mut observed, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for port in self.telling_ports(effective, name) {
            match self.decide(&name_intent(client, name, port)) {
                Verdict::Allow(grant) if grant.would_deny().is_none() => granted.push(grant),
                Verdict::Allow(grant) => observed.push(grant),
                Verdict::Deny(refusal) => refused.push(refusal),
            }
        }
        granted.append(&mut observed);
        if granted.is_empty() {
            return NameVerdict::Deny(most_telling(refused));
        }
        let first = granted.remove(0);
        let named = effective.allow.iter().any(|list| list.names_exactly(name));
        NameVerdict::Allow(Box::new(NameGrant { first, rest: granted, named }))
    }

    /// Ports at which the verdict on a name may differ: the usual ones, then where a range of a rule
    /// that is about it begins, or behind its end.
    fn telling_ports(&self, effective: &Effective, name: &DnsName) -> impl Iterator<Item = u16> + use<> {
        let mut edges = BTreeSet::new();
        let mut add = |ports: &PortSet| {
            for (low, high) in ports.ranges() {
                edges.insert(low);
                edges.extend(high.checked_add(1));
            }
        };
        for list in &effective.allow {
            list.each_named(name, |_, _, ports| add(ports));
        }
        for list in std::iter::once(&self.operator_deny).chain(&effective.deny) {
            list.each_named(name, |_, _, ports| add(ports));
            list.literals().for_each(|(_, rule)| add(&rule.ports));
        }
        for own in &self.listeners.bound {
            add(&PortSet::one(own.port()));
        }
        let usual = [443, 80];
        let others = edges.into_iter().filter(move |port| *port != 0 && !usual.contains(port));
        usual.into_iter().chain(others)
    }
}

/// The question whether a client may reach a name on a port by any means.
fn name_intent(client: &Client, name: &DnsName, port: u16) -> Intent {
    let destination = Destination::new(Scheme::Tunnel, Host::Name(name.clone()), port);
    Intent { client: client.clone(), entry: Entry::Dns, destination, action: Action::Place }
}

/// A denial says more than that nothing allows it; that a port is wrong says nothing about a name.
fn most_telling(refused: Vec<Refusal>) -> Refusal {
    let rank = |refusal: &Refusal| match refusal.reason {
        Reason::DomainDenied => 0,
        Reason::DomainNotAllowed => 1,
        _ => 2,
    };
    let first = refused.into_iter().min_by_key(rank);
    first.unwrap_or_else(|| Refusal::new(Reason::DomainNotAllowed))
}
