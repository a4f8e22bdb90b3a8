//! The case files: their rows by name, and the macros in them.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::rows::{AddressRow, DnsRow, RuleRow, TargetRow, WireRow};
use crate::support::sink::Segment;

/// The rules of policy P0, which a row has unless it says otherwise.
pub const P0: [&str; 3] = ["example.com", "*.allowed.example", "api.example:443"];
/// What every name that P0 allows resolves to.
pub const PUBLIC: Ipv4Addr = Ipv4Addr::new(93, 184, 215, 14);
/// What every other name resolves to, so that a dial tells whose address it was.
pub const STRAY: Ipv4Addr = Ipv4Addr::new(151, 101, 66, 66);

/// What a lower-case name resolves to unless its row says otherwise.
pub fn p0_address(name: &str) -> Ipv4Addr {
    let allowed = matches!(name, "example.com" | "api.example") || name.ends_with(".allowed.example");
    if allowed { PUBLIC } else { STRAY }
}

/// One row with its place in the suite.
#[derive(Debug)]
pub struct Case {
    pub suite: &'static str,
    /// What kind of row it is within its suite.
    pub group: String,
    pub id: String,
    pub row: Row,
}

impl Case {
    pub fn name(&self) -> String {
        format!("{}::{}::{}", self.suite, self.group, self.id)
    }

    /// Roughly how long it takes to run; long ones start first.
    pub fn duration(&self) -> Duration {
        match &self.row {
            Row::Wire(row) => row.duration(),
            Row::Dns(row) => {
                let silent = row.answers.iter().any(|a| a.rcode.as_deref() == Some("TIMEOUT"));
                let last = row.expected.requests_at.iter().copied().fold(0.0, f64::max);
                let window = row.expected.window_s.unwrap_or_default();
                Duration::from_secs_f64(last + window + if silent { 10.0 } else { 0.3 })
            }
            Row::Target(_) | Row::Address(_) | Row::Rule(_) => Duration::from_millis(50),
        }
    }
}

#[derive(Debug)]
pub enum Row {
    Target(TargetRow),
    Wire(Box<WireRow>),
    Dns(Box<DnsRow>),
    Address(AddressRow),
    Rule(RuleRow),
}

/// All rows, in the order of the files.
pub fn load() -> Vec<Case> {
    let mut out = Vec::new();
    for row in lines::<TargetRow>(include_str!("../data/targets.jsonl")) {
        out.push(Case {
            suite: "targets",
            group: row.tag.clone(),
            id: row.id.clone(),
            row: Row::Target(row),
        });
    }
    for row in lines::<WireRow>(include_str!("../data/wire.jsonl")) {
        out.push(Case {
            suite: "wire",
            group: row.tag.clone(),
            id: row.id.clone(),
            row: Row::Wire(Box::new(row)),
        });
    }
    for row in lines::<DnsRow>(include_str!("../data/dns.jsonl")) {
        let group = row.expected.outcome.clone();
        out.push(Case { suite: "dns", group, id: row.id.clone(), row: Row::Dns(Box::new(row)) });
    }
    for (number, mut row) in
        lines::<AddressRow>(include_str!("../data/addresses.jsonl")).into_iter().enumerate()
    {
        row.number = number;
        out.push(Case {
            suite: "addresses",
            group: row.class.clone(),
            id: row.address.clone(),
            row: Row::Address(row),
        });
    }
    for row in lines::<RuleRow>(include_str!("../data/rules.jsonl")) {
        out.push(Case {
            suite: "rules",
            group: row.expected.clone(),
            id: row.id.clone(),
            row: Row::Rule(row),
        });
    }
    out
}

fn lines<T: DeserializeOwned>(text: &str) -> Vec<T> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in the row {line}"));
    text.lines().map(parse).collect()
}

/// Octets of a text in which each char is one.
pub fn octets(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).expect("one octet a char")).collect()
}

/// Expands `{{repeat:TEXT:N}}`; any other `{{` is literal.
pub fn segments(text: &str) -> Vec<Segment> {
    const OPEN: &str = "{{repeat:";
    let (mut out, mut left) = (Vec::new(), text);
    while let Some((before, rest)) = left.split_once(OPEN) {
        let (inside, after) = rest.split_once("}}").expect("an open repeat ends");
        let (repeated, times) = inside.rsplit_once(':').expect("a repeat has a count");
        out.push((octets(before), 1));
        out.push((octets(repeated), times.parse().expect("a repeat's count is a number")));
        left = after;
    }
    out.push((octets(left), 1));
    out.retain(|(bytes, times)| !bytes.is_empty() && *times > 0);
    out
}

pub fn expand(text: &str) -> Vec<u8> {
    segments(text).iter().flat_map(|(bytes, times)| bytes.repeat(*times)).collect()
}

/// The ports that rows ask for, for the sink to listen on.
pub fn ports(cases: &[Case]) -> Vec<u16> {
    let common = [80, 443, 22, 25, 8080, 8443, 3306, 5432, 6379];
    let asked = cases.iter().filter_map(|case| match &case.row {
        Row::Target(row) => row.canonical_port,
        Row::Dns(row) => Some(row.question.port),
        Row::Wire(_) | Row::Address(_) | Row::Rule(_) => None,
    });
    let taken = [0, 53, 3128, 3129];
    let out: BTreeSet<u16> = common.into_iter().chain(asked).filter(|port| !taken.contains(port)).collect();
    out.into_iter().collect()
}
