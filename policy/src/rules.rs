//! Allow and deny rules in a form that can be matched.
//!
//! `read` makes them from `[[allow]]` and `[[deny]]` tables; nothing here knows what a file looks
//! like.

mod destinations;
mod read;

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::host::DnsName;
use crate::names::{NameIndex, NamePattern, Reach};
use crate::networks::{Nat64Prefix, effective};
use crate::paths::PathGlob;
use crate::ports::PortSet;

pub use destinations::{parse_network, strict_network};
pub use read::read_tls;

/// Must a tunnel carry TLS for the host that it was opened to?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsRule {
    /// Its first bytes must be a TLS ClientHello whose server name is the CONNECT host.
    Required,
    /// Anything may flow.
    Any,
}

impl TlsRule {
    /// What holds where nothing is said: required on 443.
    #[must_use]
    pub const fn default_for(port: u16) -> Self {
        if port == 443 { Self::Required } else { Self::Any }
    }
}

/// A rule, checked. Its domains and literals live in the indexes of its [`RuleList`].
#[derive(Debug)]
pub struct Rule {
    /// `file:line`, as audit records cite it.
    pub cite: Arc<str>,
    /// Ports of entries that have none of their own.
    pub ports: PortSet,
    /// Networks in which every resolved address must lie; empty: public addresses.
    pub addresses: Vec<IpNet>,
    /// What a tunnel must carry, where the rule says so.
    pub tls: Option<TlsRule>,
    /// Methods, in upper case; empty: any.
    pub methods: Vec<String>,
    /// Path globs; empty: any.
    pub paths: Vec<PathGlob>,
    /// The operator's words for the client.
    pub reason: Option<Arc<str>>,
    /// Does it have domains? Otherwise it is about addresses alone.
    pub named: bool,
}

impl Rule {
    /// Does one of its networks hold the address, or the IPv4 address that it embeds?
    #[must_use]
    pub fn holds(&self, address: IpAddr, nat64: &[Nat64Prefix]) -> bool {
        let inside = effective(address, nat64);
        self.addresses.iter().any(|net| net.contains(&address) || net.contains(&inside))
    }

    /// Is it limited to requests that can be read?
    #[must_use]
    pub fn needs_request(&self) -> bool {
        !self.methods.is_empty() || !self.paths.is_empty()
    }
}

/// Rules of one kind in file order, with what finds them.
#[derive(Debug, Default)]
pub struct RuleList {
    rules: Vec<Rule>,
    index: NameIndex,
    /// Networks of rules without domains.
    literals: Vec<(IpNet, u32)>,
}

impl RuleList {
    /// A rule by its number.
    #[must_use]
    pub fn rule(&self, number: u32) -> Option<&Rule> {
        self.rules.get(usize::try_from(number).ok()?)
    }

    /// Calls `found` for each rule that names the domain, with the ports that count, in no order.
    pub fn each_named<'a>(&'a self, name: &DnsName, mut found: impl FnMut(u32, &'a Rule, &'a PortSet)) {
        self.index.each_match(name, |matched| {
            if let Some(rule) = self.rule(matched.rule) {
                found(matched.rule, rule, matched.ports.unwrap_or(&rule.ports));
            }
        });
    }

    /// Does a rule name the domain itself, rather than cover it by a wildcard?
    #[must_use]
    pub fn names_exactly(&self, name: &DnsName) -> bool {
        let mut exactly = false;
        self.index.each_match(name, |matched| exactly |= matched.reach == Reach::Exact);
        exactly
    }

    /// Calls `found` for each rule with a pattern on the domain or a parent of it, and whether
    /// one of them covers the domain; for explanations.
    pub fn each_related<'a>(&'a self, name: &DnsName, mut found: impl FnMut(&'a Rule, &'a PortSet, bool)) {
        self.index.each_related(name, |matched, covers| {
            if let Some(rule) = self.rule(matched.rule) {
                found(rule, matched.ports.unwrap_or(&rule.ports), covers);
            }
        });
    }

    /// The rules without domains, with one of their networks each; for explanations.
    pub fn literals(&self) -> impl Iterator<Item = (&IpNet, &Rule)> {
        self.literals.iter().filter_map(|(net, number)| Some((net, self.rule(*number)?)))
    }

    /// Calls `found` for each rule without domains whose networks hold the address, in file order.
    pub fn each_holding<'a>(
        &'a self,
        address: IpAddr,
        nat64: &[Nat64Prefix],
        mut found: impl FnMut(u32, &'a Rule),
    ) {
        let inside = effective(address, nat64);
        let mut last = None;
        for (net, number) in &self.literals {
            if (net.contains(&address) || net.contains(&inside)) && last != Some(*number) {
                last = Some(*number);
                if let Some(rule) = self.rule(*number) {
                    found(*number, rule);
                }
            }
        }
    }

    /// Are there rules whose verdict needs the resolved addresses?
    #[must_use]
    pub fn has_address_rules(&self) -> bool {
        !self.literals.is_empty()
    }

    /// How many rules there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Is there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// A rule that denies every request for the pattern's names on these ports.
    fn denying(&self, pattern: &NamePattern, ports: &PortSet) -> Option<&Rule> {
        let mut denying = None;
        self.index.each_covering(pattern, |matched| {
            let whole = |rule: &&Rule| {
                let denied = matched.ports.unwrap_or(&rule.ports);
                rule.addresses.is_empty() && !rule.needs_request() && denied.holds_all_of(ports)
            };
            denying = denying.or_else(|| self.rule(matched.rule).filter(whole));
        });
        denying
    }
}
