//! What was found as rules, and as the text of a rule set. Whatever comes from outside is written so
//! that it can't end a line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use egret_policy::{Destination, Host, SourceFile};
use ipnet::IpNet;
use serde::Serialize;

use super::client::Client;
use super::finding::{Findings, Origin};
use super::place::Place;
use crate::learn::{Base, Rules, doubt};

/// Comments of one rule.
const SOURCES: usize = 20;

/// A place that a registry named when it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The setting that led to the registry.
    pub origin: Origin,
    /// The registry that named it.
    pub by: Place,
    /// What it is there for.
    pub role: &'static str,
    /// Where it is.
    pub place: Place,
}

/// What asking has shown.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// Places that registries named.
    pub named: Vec<Named>,
    /// By `host:port`, how it is reached.
    pub reach: BTreeMap<String, Reach>,
    /// Registries that gave no answer, and why.
    pub silent: Vec<(Origin, Place, String)>,
}

/// Where a name leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// To public addresses.
    Public,
    /// Into these networks, which the operator named.
    Private(BTreeSet<String>),
    /// Nowhere that may be reached, and why.
    Refused(String),
}

/// All that settings and registries say about rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Rules, in the order of their names.
    pub rules: Vec<Rule>,
    /// What needs a person.
    pub not_proposed: Vec<NotProposed>,
    /// Registries that did not say where their files are.
    pub not_asked: Vec<NotProposed>,
    /// Clients with a registry that is built in, which egret does not know.
    pub unknown: Vec<Unknown>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// The host.
    pub domain: String,
    /// Its ports.
    pub ports: BTreeSet<u16>,
    /// Is it spoken to over TLS?
    pub secure: bool,
    /// The private networks that it is in.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub addresses: BTreeSet<String>,
    /// Who uses it, and what a person should know.
    pub sources: Vec<String>,
}

/// A setting that gave no rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotProposed {
    /// Where it stands.
    pub source: String,
    /// Where it leads, if that may be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Why.
    pub why: String,
}

/// A client whose own registry is in use and not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Unknown {
    /// The client.
    pub client: Client,
    /// Is anything else set for it?
    pub beside_others: bool,
}

impl Report {
    /// Puts together what was found and what was answered. `clients` are those that were looked for.
    #[must_use]
    pub fn new(findings: &Findings, answers: &Answers, clients: &[Client]) -> Self {
        let mut report = Self::default();
        let mut rules: BTreeMap<(String, bool), Rule> = BTreeMap::new();
        for found in &findings.found {
            report.take(&mut rules, &found.place, found.origin.to_string(), false);
        }
        for named in &answers.named {
            let source = format!("{}: {} of {}", named.origin, named.role, named.by.destination());
            report.take(&mut rules, &named.place, source, true);
        }
        for rule in rules.into_values() {
            report.finish(rule, answers);
        }
        for note in &findings.notes {
            report.not_proposed.push(NotProposed {
                source: note.origin.to_string(),
                place: None,
                why: note.why.clone(),
            });
        }
        for (origin, place, why) in &answers.silent {
            report.not_asked.push(NotProposed {
                source: origin.to_string(),
                place: Some(place.destination().to_string()),
                why: why.clone(),
            });
        }
        for client in clients.iter().filter(|client| !findings.complete.contains(client)) {
            let beside_others = findings.found.iter().any(|found| found.origin.client == *client);
            report.unknown.push(Unknown { client: *client, beside_others });
        }
        report
    }

    fn take(
        &mut self,
        rules: &mut BTreeMap<(String, bool), Rule>,
        place: &Place,
        source: String,
        stranger: bool,
    ) {
        let (host, port) = (place.destination().host(), place.destination().port());
        let why = match host {
            Host::Address(address) => {
                let net = IpNet::from(*address);
                Some(format!(
                    "an IP address; if it is meant, a rule with addresses = [\"{net}\"], ports = [{port}]"
                ))
            }
            Host::Name(name) if name.is_localhost() => Some(
                "this machine itself, which no sandbox is on; write the name by which it is reached"
                    .to_owned(),
            ),
            // What a registry says is the word of somebody else.
            Host::Name(name) if stranger => doubt(name.as_str()),
            Host::Name(_) => None,
        };
        if let Some(why) = why {
            let place = Some(place.destination().to_string());
            self.not_proposed.push(NotProposed { source, place, why });
            return;
        }
        let (domain, secure) = (host.to_string(), place.secure());
        let rule = rules.entry((domain.clone(), !secure)).or_insert_with(|| Rule {
            domain,
            ports: BTreeSet::new(),
            secure,
            addresses: BTreeSet::new(),
            sources: Vec::new(),
        });
        rule.ports.insert(port);
        if !rule.sources.contains(&source) {
            rule.sources.push(source);
        }
    }

    fn finish(&mut self, mut rule: Rule, answers: &Answers) {
        for port in &rule.ports {
            match answers.reach.get(&format!("{}:{port}", rule.domain)) {
                Some(Reach::Private(networks)) => rule.addresses.extend(networks.iter().cloned()),
                Some(Reach::Refused(why)) => rule.sources.push(format!("port {port}: {why}")),
                Some(Reach::Public) | None => {}
            }
        }
        if !rule.secure {
            rule.sources.push("plain HTTP: whoever is on the way can read and change it".to_owned());
        }
        let source = SourceFile::new("a rule", rule.to_text());
        if Rules::read(&source).is_ok() {
            self.rules.push(rule);
            return;
        }
        self.not_proposed.push(NotProposed {
            source: rule.sources.into_iter().next().unwrap_or_default(),
            place: Some(rule.domain),
            why: "a rule can't be written for it".to_owned(),
        });
    }

    /// A whole rule set, with the rest as comments.
    #[must_use]
    pub fn to_rule_set(&self) -> String {
        let mut out = opening();
        for rule in &self.rules {
            out.push('\n');
            out.push_str(&rule.to_text());
        }
        let lines = |list: &[NotProposed]| list.iter().map(NotProposed::to_line).collect::<Vec<_>>();
        list(&mut out, "Not proposed; write a rule by hand for what is meant:", &lines(&self.not_proposed));
        list(&mut out, "Where these keep their files is not known:", &lines(&self.not_asked));
        let unknown: Vec<_> = self.unknown.iter().map(Unknown::to_line).collect();
        list(&mut out, "Registries that are built into clients:", &unknown);
        out
    }

    /// What has to stand behind a text so that it has these rules too.
    #[must_use]
    pub fn to_addition(rules: &[&Rule], present: &str) -> String {
        let mut out = String::new();
        if rules.is_empty() {
            return out;
        }
        if present.is_empty() {
            out.push_str(&opening());
        } else if !present.ends_with('\n') {
            out.push('\n');
        }
        for rule in rules {
            out.push('\n');
            out.push_str(&rule.to_text());
        }
        out
    }
}

fn opening() -> String {
    "# From what package managers are set to, and what their registries answered.\n\
     # The rules are for whole hosts: inside TLS egret sees neither method nor path.\n"
        .to_owned()
}

fn list(out: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n# {title}\n#");
    for line in lines {
        let _ = writeln!(out, "#   {line}");
    }
}

impl Rule {
    /// As a rule set has it.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for source in self.sources.iter().take(SOURCES) {
            let _ = writeln!(out, "# {}", super::text::plain(source));
        }
        if let Some(more) = self.sources.len().checked_sub(SOURCES).filter(|more| *more > 0) {
            let _ = writeln!(out, "# and {more} more");
        }
        let ports: Vec<_> = self.ports.iter().map(u16::to_string).collect();
        let _ = write!(out, "[[allow]]\ndomains = [\"{}\"]\nports = [{}]\n", self.domain, ports.join(", "));
        if self.secure && self.ports.iter().any(|port| *port != 443) {
            out.push_str("tls = \"required\"\n");
        } else if !self.secure && self.ports.contains(&443) {
            out.push_str("tls = \"any\"\n");
        }
        if !self.addresses.is_empty() {
            let networks: Vec<_> = self.addresses.iter().map(|net| format!("\"{net}\"")).collect();
            let _ = writeln!(out, "addresses = [{}]", networks.join(", "));
        }
        out
    }

    /// Where it lets requests pass.
    pub fn destinations(&self) -> impl Iterator<Item = Destination> {
        let place =
            |port: &u16| Destination::parse_authority(format!("{}:{port}", self.domain).as_bytes()).ok();
        self.ports.iter().filter_map(place)
    }

    /// Does a rule set have all of it?
    #[must_use]
    pub fn is_in(&self, base: &Base) -> bool {
        self.destinations().all(|place| base.accepts(&place))
    }

    /// The rule on one line.
    #[must_use]
    pub fn to_line(&self) -> String {
        let ports: Vec<_> = self.ports.iter().map(u16::to_string).collect();
        let source = self.sources.first().map(|source| super::text::plain(source)).unwrap_or_default();
        format!("{}  ports {}  # {source}", self.domain, ports.join(", "))
    }
}

impl NotProposed {
    /// On one line.
    #[must_use]
    pub fn to_line(&self) -> String {
        let place = self.place.as_ref().map(|place| format!("{place}, ")).unwrap_or_default();
        super::text::plain(&format!("{place}{}: {}", self.source, self.why))
    }
}

impl Unknown {
    /// On one line.
    #[must_use]
    pub fn to_line(&self) -> String {
        let name = self.client.name();
        let state = if self.beside_others {
            "may use its own registry beside what is set"
        } else {
            "has nothing set"
        };
        let ways = self.client.other_ways();
        format!(
            "{name} {state}, and egret does not know its own: {ways}; or observe one run of it and learn (`egret learn`)"
        )
    }
}
