//! Why the rules that look close did not decide, for people.
//!
//! Says nothing that [`Policy::decide`] does not do; it only looks again.

use std::sync::Arc;

use crate::guard::Candidate;
use crate::host::Host;
use crate::intent::{Action, Intent};
use crate::policy::{Fallback, Miss, Mode, Policy, candidates, judge};
use crate::ports::PortSet;
use crate::rules::Rule;

/// A rule that is close to the intent, and why it does not match or what it would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NearMiss {
    /// `file:line` of the rule.
    pub rule: Arc<str>,
    /// What about it.
    pub why: String,
}

impl Policy {
    /// The allow rules on the host or a parent of it, with what they lack for this intent.
    #[must_use]
    pub fn near_misses(&self, intent: &Intent) -> Vec<NearMiss> {
        let mut out = Vec::new();
        let Some(effective) = self.effective(&intent.client) else {
            return out;
        };
        for list in &effective.allow {
            match intent.destination.host() {
                Host::Name(name) => list.each_related(name, |rule, ports, covers| {
                    let why =
                        if covers { lacks(rule, ports, intent) } else { Some(not_covered(name.as_str())) };
                    note(&mut out, rule, why);
                }),
                Host::Address(address) => {
                    for (net, rule) in list.literals() {
                        if net.contains(address) {
                            note(&mut out, rule, lacks(rule, &rule.ports, intent));
                        } else if net.addr().is_ipv4() == address.is_ipv4() {
                            note(&mut out, rule, Some(format!("{address} is not in {net}")));
                        }
                    }
                }
            }
        }
        out.truncate(10);
        out
    }

    /// The allow rules that accept the intent, as `file:line`, in the order in which they count.
    /// Looks at no deny rule and at no address of a name.
    #[must_use]
    pub fn accepting(&self, intent: &Intent) -> Vec<Arc<str>> {
        let Some(effective) = self.effective(&intent.client) else { return Vec::new() };
        let found = candidates(effective, intent, &self.nat64).unwrap_or_default();
        let cite = |candidate: &Candidate| match candidate {
            Candidate::Rule { list, rule } => {
                Some(Arc::clone(&effective.allow.get(*list)?.rule(*rule)?.cite))
            }
            Candidate::Default | Candidate::Observe => None,
        };
        found.iter().filter_map(cite).collect()
    }

    /// One sentence on what holds where no rule matches.
    #[must_use]
    pub fn fallback_text(&self, intent: &Intent) -> Option<String> {
        let effective = self.effective(&intent.client)?;
        let mode = match effective.mode {
            Mode::Enforce => "enforced",
            Mode::Observe => "observed only",
        };
        Some(match effective.default {
            Fallback::Deny => format!("policy {} denies by default, {mode}", effective.name),
            Fallback::Allow => {
                let ports = PortSet::web();
                format!(
                    "policy {} allows public addresses on ports {ports} by default, {mode}",
                    effective.name
                )
            }
        })
    }
}

fn note(out: &mut Vec<NearMiss>, rule: &Rule, why: Option<String>) {
    if let Some(why) = why {
        let miss = NearMiss { rule: Arc::clone(&rule.cite), why };
        if !out.contains(&miss) {
            out.push(miss);
        }
    }
}

fn not_covered(name: &str) -> String {
    format!("names a parent or the apex, but its pattern does not cover {name}")
}

fn lacks(rule: &Rule, ports: &PortSet, intent: &Intent) -> Option<String> {
    let list = |items: &[String]| items.join(", ");
    Some(match (judge(rule, ports, intent), &intent.action) {
        (Err(Miss::Port), _) => format!("allows ports {ports}, not {}", intent.destination.port()),
        (Err(Miss::Method), Action::Request { method, .. }) => {
            format!("allows methods {}, not {method}", rule.methods.join(", "))
        }
        (Err(Miss::Path), Action::Request { .. }) => {
            format!("allows paths {}", list(&rule.paths.iter().map(ToString::to_string).collect::<Vec<_>>()))
        }
        (Err(Miss::Method | Miss::Path), _) => {
            "is limited to methods or paths, which a tunnel does not show".to_owned()
        }
        (Ok(()), _) if !rule.addresses.is_empty() => {
            let nets: Vec<_> = rule.addresses.iter().map(ToString::to_string).collect();
            format!("allows addresses in {}", list(&nets))
        }
        (Ok(()), _) => return None,
    })
}
