//! Sorts destinations into those to propose, those that are allowed, and those that a person should
//! look at.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use egret_policy::{Destination, DnsName, Host, NamePattern, Scheme, SourceFile, looks_random};

use super::base::Base;
use super::known::service_of;
use super::objection::Objection;
use super::patterns::wildcards;
use super::report::{AllowedAlready, Complaint, NotProposed, Proposal, Report};
use super::rules::Rules;
use super::tally::{Place, Seen, Summary, Tally};

/// Ports that are proposed without asking.
const PORTS: [u16; 2] = [80, 443];

/// Why a name that somebody else brought up is no candidate for a rule by its looks alone.
#[must_use]
pub fn doubt(name: &str) -> Option<String> {
    if let Some((objection, entry)) = service_of(name) {
        return Some(format!("{} ({entry})", objection.meaning()));
    }
    looks_random(name).map(|detail| format!("{} ({detail})", Objection::RandomLabel.meaning()))
}

/// What the judgement depends on beside the records.
#[derive(Debug)]
pub struct Settings<'a> {
    /// The configuration in force.
    pub config: &'a Rules,
    /// The rule set to compare with.
    pub base: Option<&'a Base>,
    /// Ports that are proposed beside 80 and 443.
    pub ports: &'a [u16],
    /// Is what the configuration allows proposed as well?
    pub all: bool,
}

/// A destination to propose.
struct Candidate<'a> {
    name: DnsName,
    port: u16,
    summary: &'a Summary,
    /// Does the rule set to compare with accept it?
    covered: bool,
}

/// What becomes of one destination.
enum Fate {
    Proposed { covered: bool },
    Allowed { rule: String, open: bool, doubts: Vec<Complaint> },
    Refused(Vec<Complaint>),
}

/// Names and ports that no wildcard may cover, because they are not proposed.
type Blocked = BTreeMap<u16, BTreeSet<DnsName>>;

/// A pattern on one port with the destinations that it stands for.
type Groups<'a, 'b> = BTreeMap<(bool, String), BTreeMap<u16, Vec<&'b Candidate<'a>>>>;

/// Judges all destinations of a tally.
#[must_use]
pub fn judge(tally: &Tally, settings: &Settings<'_>) -> Report {
    let (mut candidates, mut allowed, mut not_proposed) = (Vec::new(), Vec::new(), Vec::new());
    let mut blocked = Blocked::new();
    let mut wanted = Vec::new();
    let blank = Rules::read(&SourceFile::new("nothing", String::new())).ok();
    for (place, seen) in &tally.places {
        if seen.name_alone && tally.has_port(&place.0) {
            // The question before a connection, which says all that there is to say.
            continue;
        }
        let destination = destination(place);
        if let Some(destination) = destination.as_ref().filter(|_| seen.wanted) {
            wanted.push(destination.clone());
        }
        let fate = settings.fate(destination.as_ref(), seen, blank.as_ref());
        if let (Some(destination), true) = (&destination, fate.blocks())
            && let Host::Name(name) = destination.host()
        {
            blocked.entry(destination.port()).or_default().insert(name.clone());
        }
        let ((host, port), summary) = (place.clone(), seen.summary.clone());
        match (fate, destination.as_ref().map(Destination::host)) {
            (Fate::Proposed { covered }, Some(Host::Name(name))) => {
                let port = port.unwrap_or_default();
                candidates.push(Candidate { name: name.clone(), port, summary: &seen.summary, covered });
            }
            (Fate::Allowed { rule, doubts, .. }, _) => {
                allowed.push(AllowedAlready { host, port: port.unwrap_or_default(), rule, doubts, summary });
            }
            (Fate::Refused(why), _) => not_proposed.push(NotProposed { host, port, why, summary }),
            // Only names are ever proposed.
            (Fate::Proposed { .. }, _) => {}
        }
    }
    let groups = group(&candidates, &blocked);
    let is_new = |candidates: &[&Candidate<'_>]| candidates.iter().any(|candidate| !candidate.covered);
    Report {
        whole: tally.whole.clone(),
        proposed: proposals(&groups, |_| true),
        allowed,
        not_proposed,
        new: settings.base.map(|_| proposals(&groups, is_new)),
        unused: settings.base.map(|base| base.unused(wanted.iter())),
    }
}

impl Settings<'_> {
    fn fate(&self, place: Option<&Destination>, seen: &Seen, blank: Option<&Rules>) -> Fate {
        let objections = self.objections(place, seen, blank);
        let Some(place) = place else { return Fate::Refused(objections) };
        let is = |what: Objection| objections.iter().any(|complaint| complaint.reason == what);
        let allowed = |rule: String, open: bool| {
            let doubts = objections.iter().filter(|complaint| complaint.reason.is_doubt());
            Fate::Allowed { rule, open, doubts: doubts.cloned().collect() }
        };
        if let Some(base) = self.base.filter(|_| !is(Objection::Denied)) {
            match base.rules().accepting_alone(place).first() {
                Some(_) if objections.is_empty() => return Fate::Proposed { covered: true },
                // Whoever wrote it there has looked.
                Some(rule) => return allowed(rule.to_string(), true),
                None => {}
            }
        }
        match self.allowing(place, seen) {
            Some((rule, open)) if !self.all && !is(Objection::RuleLimit) => allowed(rule, open),
            _ if objections.is_empty() => Fate::Proposed { covered: false },
            _ => Fate::Refused(objections),
        }
    }

    /// The rule of the configuration that allows a destination under every policy that saw it, and
    /// whether all of them do so for every request.
    fn allowing(&self, place: &Destination, seen: &Seen) -> Option<(String, bool)> {
        let mut found = None;
        let mut open = true;
        for policy in &seen.policies {
            if self.config.denial(policy, place).is_some() {
                return None;
            }
            let rules = self.config.accepting(policy, place);
            let rule = rules.first()?;
            open &= self.config.opens(policy, place);
            found.get_or_insert_with(|| rule.to_string());
        }
        found.map(|rule| (rule, open))
    }

    /// Everything that speaks against proposing a destination.
    fn objections(&self, place: Option<&Destination>, seen: &Seen, blank: Option<&Rules>) -> Vec<Complaint> {
        let mut found: BTreeMap<Objection, String> = seen
            .objections
            .iter()
            .filter(|(objection, _)| !(objection.is_weak() && seen.wanted))
            .map(|(objection, detail)| (*objection, detail.clone()))
            .collect();
        match place {
            // A name alone is no destination, and no bad request.
            None if seen.name_alone => {}
            None => {
                found.entry(Objection::BadRequest).or_default();
            }
            Some(place) => {
                let usual = PORTS.contains(&place.port()) || self.ports.contains(&place.port());
                // Whoever wrote it in a rule has looked.
                if !usual && self.allowing(place, seen).is_none() {
                    found.insert(Objection::OddPort, String::new());
                }
                match place.host() {
                    Host::Address(_) => {
                        found.insert(Objection::IpLiteral, String::new());
                    }
                    Host::Name(name) => object_to_name(name, &mut found),
                }
                let denials = seen.policies.iter().filter_map(|policy| self.config.denial(policy, place));
                let alone = self.base.map(Base::rules).into_iter().chain(blank);
                let mut denials = denials.chain(alone.filter_map(|rules| rules.denial_alone(place)));
                if let Some(denial) = denials.next() {
                    found.insert(Objection::Denied, denial);
                }
            }
        }
        if !seen.wanted && found.is_empty() {
            found.insert(Objection::Undecided, String::new());
        }
        found.into_iter().map(|(reason, detail)| Complaint { reason, detail }).collect()
    }
}

impl Fate {
    /// Must no wildcard cover the destination?
    const fn blocks(&self) -> bool {
        match self {
            Self::Refused(_) => true,
            // A wildcard would lift the limits of the rule that allows it.
            Self::Allowed { open, .. } => !*open,
            Self::Proposed { .. } => false,
        }
    }
}

fn object_to_name(name: &DnsName, found: &mut BTreeMap<Objection, String>) {
    if let Some((objection, entry)) = service_of(name.as_str()) {
        found.insert(objection, entry.to_owned());
    }
    if let Some(what) = looks_random(name.as_str()) {
        found.insert(Objection::RandomLabel, what);
    }
    if let Err(error) = NamePattern::parse(name.as_str()) {
        found.insert(Objection::NoRule, error.to_string());
    }
    if name.is_localhost() || !name.as_str().contains('.') {
        found.insert(Objection::LocalName, String::new());
    }
}

/// What the records call a destination, if it is one.
fn destination((host, port): &Place) -> Option<Destination> {
    let host = match host.parse::<IpAddr>() {
        Ok(address) => Host::Address(address),
        Err(_) => Host::parse(host.as_bytes()).ok()?,
    };
    let port = port.filter(|port| *port > 0)?;
    Some(Destination::new(Scheme::Http, host, port))
}

fn group<'a, 'b>(candidates: &'b [Candidate<'a>], blocked: &Blocked) -> Groups<'a, 'b> {
    let mut by_port: BTreeMap<u16, BTreeMap<&str, &Candidate<'_>>> = BTreeMap::new();
    for candidate in candidates {
        by_port.entry(candidate.port).or_default().insert(candidate.name.as_str(), candidate);
    }
    let mut groups = Groups::new();
    for (port, mut names) in by_port {
        let blocked = blocked.get(&port).into_iter().flatten().map(DnsName::as_str).collect();
        // The loader knows on which suffixes strangers can register names.
        let may = |suffix: &str| Rules::loads(rule(&format!("*.{suffix}"), [port].iter()));
        for (suffix, below) in wildcards(&names.keys().copied().collect(), &blocked, may) {
            let below = below.into_iter().filter_map(|name| names.remove(name)).collect();
            groups.entry((true, format!("*.{suffix}"))).or_default().insert(port, below);
        }
        for (name, candidate) in names {
            groups.entry((false, name.to_owned())).or_default().insert(port, vec![candidate]);
        }
    }
    groups
}

fn proposals(groups: &Groups<'_, '_>, is_wanted: impl Fn(&[&Candidate<'_>]) -> bool) -> Vec<Proposal> {
    let proposal = |((wildcard, domain), ports): (&(bool, String), &BTreeMap<u16, Vec<&Candidate<'_>>>)| {
        let mut proposal = Proposal {
            domain: domain.clone(),
            ports: BTreeSet::new(),
            stands_for: BTreeSet::new(),
            summary: Summary::default(),
        };
        for (port, candidates) in ports.iter().filter(|(_, candidates)| is_wanted(candidates)) {
            proposal.ports.insert(*port);
            for candidate in candidates {
                proposal.summary.merge(candidate.summary);
                if *wildcard {
                    proposal.stands_for.insert(candidate.name.as_str().to_owned());
                }
            }
        }
        proposal
    };
    groups.iter().map(proposal).filter(|proposal| !proposal.ports.is_empty()).collect()
}

/// A rule as a rule set writes it.
pub(super) fn rule<'a>(domain: &str, ports: impl Iterator<Item = &'a u16>) -> String {
    let ports: Vec<_> = ports.map(u16::to_string).collect();
    format!("[[allow]]\ndomains = [\"{domain}\"]\nports = [{}]\n", ports.join(", "))
}
