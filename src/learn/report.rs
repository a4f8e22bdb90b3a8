//! What was learned, as a value for scripts and for the texts.

use std::collections::BTreeSet;

use serde::Serialize;

use super::objection::Objection;
use super::tally::Summary;

/// All that records say about rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// All requests that were looked at.
    pub whole: Summary,
    /// Rules, exact names before wildcards, in the order of their names.
    pub proposed: Vec<Proposal>,
    /// What the configuration allows already.
    pub allowed: Vec<AllowedAlready>,
    /// What a person should look at.
    pub not_proposed: Vec<NotProposed>,
    /// What of the proposed is not in the rule set to compare with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Vec<Proposal>>,
    /// What in the rule set to compare with nobody asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unused: Option<Vec<Unused>>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proposal {
    /// A name, or `*.` and a name.
    pub domain: String,
    /// Its ports.
    pub ports: BTreeSet<u16>,
    /// The names that a wildcard stands for.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub stands_for: BTreeSet<String>,
    /// Who asked for them.
    #[serde(flatten)]
    pub summary: Summary,
}

/// A destination that needs no new rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AllowedAlready {
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// `file:line` of the rule that allows it.
    pub rule: String,
    /// What makes it worth a look all the same, as data in the labels below a wildcard.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<Complaint>,
    /// Who asked for it.
    #[serde(flatten)]
    pub summary: Summary,
}

/// A destination that no rule is proposed for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotProposed {
    /// The host, or what stood in its place; empty if nothing did.
    pub host: String,
    /// The port, where there is one.
    pub port: Option<u16>,
    /// Why; at least one.
    pub why: Vec<Complaint>,
    /// Who asked for it.
    #[serde(flatten)]
    pub summary: Summary,
}

/// An objection to one destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Complaint {
    /// Its kind.
    pub reason: Objection,
    /// What about this destination.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// An entry of a rule set that let nothing pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unused {
    /// The entry as a rule writes it.
    pub entry: String,
    /// The ports that it is for, as a rule writes them.
    pub ports: String,
    /// `file:line` of its rule.
    pub rule: String,
}
