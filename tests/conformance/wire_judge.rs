//! What counts as a pass of a wire row: its expected result, or one of those it also accepts.

use serde_json::Value;

use crate::bench::{self, Observation, Problems};
use crate::rows::WireRow;
use crate::support::client::Exchange;
use crate::support::http1;
use crate::token;
use crate::wire::Plan;

/// Octets that a proxy may take from an origin while its client reads nothing.
const FLOW_LIMIT: usize = 64 << 20;

/// One acceptable result.
#[derive(Debug, Clone)]
struct Want {
    statuses: Vec<u16>,
    /// Closed without any answer.
    silent_close: bool,
    sequence: Vec<u16>,
    closes: bool,
    origin: Origin,
    contain: Vec<String>,
    check: Option<fn(&Observation) -> Option<&'static str>>,
}

/// What an origin gets to see.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Origin {
    Nothing,
    /// A dial is in order, an octet is not.
    NothingAfter200,
    /// A part of what must not be complete.
    NothingOrAborted,
    Request,
    /// Refused after the head was read: a part may have gone out.
    RequestOrNothing,
    Tunnel,
}

/// All that is wrong with what was observed.
pub fn judge(plan: &Plan<'_>, got: &Observation) -> Problems {
    let row = plan.row;
    let mut common = bench::strays(got, &bench::p0_places());
    common.extend(content_problems(row, got));
    common.extend(audit_problems(row, got));
    let sent: usize = got.conns.iter().map(|c| c.sent()).sum();
    if row.timing.slow_read && sent > FLOW_LIMIT {
        common.push(format!("took {} MiB while the client read nothing", sent >> 20));
    }
    match row.extra.as_deref() {
        None => {}
        Some("0 DNS queries") => {
            common.extend(got.queries.iter().map(|q| format!("asked DNS for {:?}", q.name)))
        }
        Some(text) if text.starts_with("no dial except to example.com:80") => {
            let others = got.dials.iter().filter(|dial| dial.port() != 80);
            common.extend(others.map(|dial| format!("dialled {dial} because of a response")));
        }
        Some(other) => panic!("no such extra: {other}"),
    }
    let judged = wants(row).into_iter().map(|want| [common.clone(), want.problems(plan, got)].concat());
    bench::best(judged.collect())
}

/// The expected result first, then the others that pass.
fn wants(row: &WireRow) -> Vec<Want> {
    let expected = &row.expected;
    let base = Want {
        statuses: expected.status.clone().unwrap_or_default(),
        silent_close: false,
        sequence: expected.status_sequence.clone(),
        closes: expected.connection.as_deref() == Some("close"),
        origin: match expected.origin_sees.as_str() {
            "nothing" => Origin::Nothing,
            "nothing-after-200" => Origin::NothingAfter200,
            "nothing-or-aborted" => Origin::NothingOrAborted,
            "request" => Origin::Request,
            "tunnel" => Origin::Tunnel,
            other => panic!("no such view of the origin: {other}"),
        },
        contain: expected.origin_must_contain.clone(),
        check: None,
    };
    let others: Vec<Want> = row.also_ok.iter().map(|text| base.other(text)).collect();
    std::iter::once(base).chain(others).collect()
}

impl Want {
    /// What another acceptable result, in the words of the case files, changes.
    fn other(&self, text: &str) -> Self {
        let mut want = self.clone();
        match text {
            "silent close" => {
                (want.statuses, want.sequence) = (Vec::new(), Vec::new());
                (want.silent_close, want.closes) = (true, true);
            }
            "200 with the octet replaced by SP" => {
                want = self.relayed();
                want.check = Some(clean_head);
            }
            "200 from the proxy" => (want.statuses, want.origin) = (vec![200], Origin::Nothing),
            "tunnel" => (want.origin, want.closes) = (Origin::Tunnel, false),
            "429 or 503 on the last" => {} // how the row is run says so
            status => match status.parse().unwrap_or_else(|_| panic!("no such alternative: {text}")) {
                status @ 400.. => {
                    (want.statuses, want.sequence, want.contain) = (vec![status], Vec::new(), Vec::new());
                    if matches!(want.origin, Origin::Request | Origin::Tunnel) {
                        want.origin = Origin::RequestOrNothing;
                    }
                }
                _ => want = self.relayed(),
            },
        }
        want
    }

    fn relayed(&self) -> Self {
        let sequence = Vec::new();
        Self { statuses: vec![200], sequence, closes: false, origin: Origin::Request, ..self.clone() }
    }

    fn problems(&self, plan: &Plan<'_>, got: &Observation) -> Problems {
        let mut out = self.origin_problems(plan, got);
        let received = got.received();
        for text in self.contain.iter().filter(|text| !contains(&received, text)) {
            out.push(format!("the origin did not get {text:?}"));
        }
        if let Some(fault) = self.check.and_then(|check| check(got)) {
            out.push(fault.to_owned());
        }
        out.extend(self.status_problem(&got.seen));
        if self.closes && !got.seen.eof && !plan.row.timing.slow_read {
            out.push("connection left open".to_owned());
        }
        out
    }

    fn origin_problems(&self, plan: &Plan<'_>, got: &Observation) -> Problems {
        let received = got.received();
        let mut out = Vec::new();
        match self.origin {
            Origin::Nothing | Origin::NothingAfter200 if !received.is_empty() => {
                out.push(format!("{} octets reached an origin", received.len()));
            }
            Origin::Nothing if !got.dials.is_empty() => {
                out.push("dialled, though no octet followed".to_owned())
            }
            Origin::Request if received.is_empty() => out.push("no request reached the origin".to_owned()),
            Origin::Tunnel => {
                let inside = plan.inside();
                let drips = plan.row.timing.drip.is_some() || plan.row.timing.until_lifetime;
                if got.dials.is_empty() {
                    out.push("nothing dialled".to_owned());
                } else if !received.starts_with(inside) || (!drips && received.len() != inside.len()) {
                    out.push(format!(
                        "the tunnel carried {} of {} octets, or others",
                        received.len(),
                        inside.len()
                    ));
                }
                if !plan.reply().is_empty() && http1::find(&got.seen.tail, &plan.reply()).is_none() {
                    out.push("the origin's octets did not come back".to_owned());
                }
            }
            Origin::Nothing | Origin::NothingAfter200 | Origin::NothingOrAborted => {}
            Origin::Request | Origin::RequestOrNothing => {}
        }
        out
    }

    fn status_problem(&self, seen: &Exchange) -> Option<String> {
        if !self.sequence.is_empty() {
            let same = seen.statuses() == self.sequence;
            return (!same).then(|| format!("statuses {:?}, expected {:?}", seen.statuses(), self.sequence));
        }
        if self.silent_close {
            let silent = seen.status().is_none() && seen.eof;
            return (!silent).then(|| format!("{}, expected a silent close", bench::describe(seen)));
        }
        let fits = self.statuses.is_empty() || seen.status().is_some_and(|s| self.statuses.contains(&s));
        (!fits).then(|| format!("{}, expected {:?}", bench::describe(seen), self.statuses))
    }
}

/// What must not get through in either direction, whatever the result.
fn content_problems(row: &WireRow, got: &Observation) -> Problems {
    let received = got.received();
    let mut out = Vec::new();
    for text in &row.expected.origin_must_not_contain {
        if if text == "*" { !received.is_empty() } else { contains(&received, &token::fill_in(text)) } {
            out.push(format!("the origin got {text:?}"));
        }
    }
    for text in &row.expected.client_must_not_contain {
        if contains(&got.seen.data, text) {
            out.push(format!("the client got {text:?}"));
        }
    }
    out
}

/// Without regard to case. A whole header name counts at the start of a line only; anything else anywhere.
fn contains(data: &[u8], text: &str) -> bool {
    let name = text.trim_end_matches(' ').strip_suffix(':');
    let is_name = name.is_some_and(|n| {
        n.starts_with(|c: char| c.is_ascii_uppercase())
            && n.chars().all(|c| c.is_ascii_alphabetic() || c == '-')
    });
    let mut needle = crate::corpus::octets(text).to_ascii_lowercase();
    if is_name {
        needle = [b"\n", needle.trim_ascii_end()].concat();
    }
    http1::find(&data.to_ascii_lowercase(), &needle).is_some()
}

/// A repaired head has no control octets, lone line ends or folded lines.
fn clean_head(got: &Observation) -> Option<&'static str> {
    let received = got.received();
    let (head, _) = http1::split_head(&received)?;
    let text = http1::latin1(head);
    let clean = text.split("\r\n").all(|line| {
        !line.starts_with([' ', '\t']) && !line.chars().any(|c| c != '\t' && c.is_ascii_control())
    });
    (!clean).then_some("the faulty octet went on to the origin")
}

fn audit_problems(row: &WireRow, got: &Observation) -> Problems {
    let Some(want) = &row.expected.audit else { return Vec::new() };
    let (mut out, mut decisions) = (Vec::new(), Vec::new());
    for line in got.audit.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice::<Value>(line) {
            Ok(record) if record["event"] == "decision" => decisions.push(record),
            Ok(_) => {}
            Err(error) => out.push(format!("audit line is no JSON ({error}): {}", http1::latin1(line))),
        }
    }
    if want.lines.is_some_and(|lines| lines != decisions.len()) {
        out.push(format!("{} decision records, expected {:?}", decisions.len(), want.lines));
    }
    for text in &want.must_not_contain_raw {
        if http1::find(&got.audit, text.as_bytes()).is_some() {
            out.push(format!("the audit file holds {text:?}"));
        }
    }
    if let Some(sandbox) = &want.identity
        && decisions.iter().any(|d| d["sandbox"].as_str() != Some(sandbox))
    {
        out.push(format!("the audit file names another sandbox than {sandbox}"));
    }
    out
}
