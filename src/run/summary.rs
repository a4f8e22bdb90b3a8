//! What the command asked for, and what became of it: counted while the audit's records are written,
//! told when the command has ended.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::audit::{Tap, Written};

/// Destinations that are counted each by itself.
const MOST: usize = 10_000;
/// Requests whose end is awaited at once.
const MOST_OPEN: usize = 100_000;
/// Stands for the rest.
const OTHERS: &str = "(others)";
/// Stands for what was no destination.
const NONE: &str = "(none)";
/// Destinations that are told one by one to a person.
const TOLD: usize = 40;

/// What was counted for one destination.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// The canonical host.
    pub host: String,
    /// The port, where the request named one.
    pub port: Option<u16>,
    /// Requests that passed.
    pub allowed: u64,
    /// Requests that passed because the policy only observed.
    pub observed: u64,
    /// Requests that the policy refused.
    pub refused: u64,
    /// Requests that it let pass, and that failed, as a name that does not exist.
    pub failed: u64,
    /// Octets towards the destination.
    pub bytes_up: u64,
    /// Octets from it.
    pub bytes_down: u64,
    /// Why requests did not just pass: reason codes, with how often.
    pub reasons: BTreeMap<String, u64>,
}

/// Hears of every record of a run.
#[derive(Debug, Default)]
pub struct Summary {
    tally: Mutex<Tally>,
}

type Place = (String, Option<u16>);

#[derive(Debug, Default)]
struct Tally {
    places: BTreeMap<Place, Traffic>,
    open: HashMap<String, Place>,
}

#[derive(Deserialize)]
struct Record<'a> {
    event: &'a str,
    protocol: Option<&'a str>,
    id: Option<&'a str>,
    host: Option<String>,
    port: Option<u16>,
    verdict: Option<&'a str>,
    reason: Option<&'a str>,
    status: Option<u16>,
    bytes_up: Option<u64>,
    bytes_down: Option<u64>,
}

impl Tap for Summary {
    fn written(&self, written: &Written<'_>) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        for line in written.lines.split(|octet| *octet == b'\n').filter(|line| !line.is_empty()) {
            // Our own writer's, so nothing is lost here.
            if let Ok(record) = serde_json::from_slice::<Record<'_>>(line) {
                tally.add(&record);
            }
        }
    }
}

impl Tally {
    fn add(&mut self, record: &Record<'_>) {
        match record.event {
            "decision" => self.decided(record),
            "close" => {
                let place = record.id.and_then(|id| self.open.remove(id));
                let Some(traffic) = place.and_then(|place| self.places.get_mut(&place)) else { return };
                traffic.bytes_up = traffic.bytes_up.saturating_add(record.bytes_up.unwrap_or_default());
                traffic.bytes_down = traffic.bytes_down.saturating_add(record.bytes_down.unwrap_or_default());
                if let Some(reason) = record.reason.filter(|reason| !ORDINARY.contains(reason)) {
                    traffic.note(reason);
                }
            }
            _ => {}
        }
    }

    fn decided(&mut self, record: &Record<'_>) {
        let reason = record.reason.unwrap_or_default();
        let asks_name = record.protocol == Some("dns");
        let refused = record.verdict == Some("deny");
        // Who was told an address goes on to connect.
        if asks_name && !refused && record.status == Some(0) && reason != "dns_not_found" {
            return;
        }
        // Without a port, what stands there is a name, or a target that nobody understood.
        let host = record.host.as_ref().filter(|_| asks_name || record.port.is_some());
        let mut place = (host.map_or(NONE, String::as_str).to_owned(), record.port);
        if self.places.len() >= MOST && !self.places.contains_key(&place) {
            place = (OTHERS.to_owned(), None);
        }
        let (host, port) = place.clone();
        let traffic =
            self.places.entry(place.clone()).or_insert_with(|| Traffic { host, port, ..Traffic::default() });
        let failed = record.status.is_some();
        let count = match record.verdict {
            _ if refused => &mut traffic.refused,
            _ if failed => &mut traffic.failed,
            Some("would_deny") => &mut traffic.observed,
            _ => &mut traffic.allowed,
        };
        *count = count.saturating_add(1);
        if !ORDINARY.contains(&reason) {
            traffic.note(reason);
        }
        if let (Some(id), false) = (record.id, failed || self.open.len() >= MOST_OPEN) {
            self.open.insert(id.to_owned(), place);
        }
    }
}

/// Reasons that say nothing went wrong.
const ORDINARY: [&str; 3] = ["allowed", "client_cancel", ""];

impl Traffic {
    fn note(&mut self, reason: &str) {
        let count = self.reasons.entry(reason.to_owned()).or_default();
        *count = count.saturating_add(1);
    }

    /// What would let pass what was refused, where one option can say it.
    fn hint(&self) -> Option<String> {
        let can = |reason: &str| self.reasons.contains_key(reason);
        // A name that looks like an option must not become one when the hint is typed in.
        let option = if self.host.starts_with('-') { "--allow=" } else { "--allow " };
        match self.port {
            None | Some(80 | 443) if can("domain_not_allowed") => Some(format!("{option}{}", self.host)),
            Some(port) if can("domain_not_allowed") || can("port_not_allowed") => {
                Some(format!("{option}{}:{port}", self.host))
            }
            _ => None,
        }
    }

    fn line(&self, hints: bool) -> String {
        let (word, count) = [("refused", self.refused), ("failed", self.failed), ("observed", self.observed)]
            .into_iter()
            .find(|(_, count)| *count > 0)
            .unwrap_or(("allowed", self.allowed));
        let place = match self.port {
            Some(port) if self.host.contains(':') => format!("[{}]:{port}", self.host),
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.clone(),
        };
        let mut line = format!("{word:<8} {place:<40} {count:>6}");
        if self.bytes_up + self.bytes_down > 0 {
            let (up, down) = (octets(self.bytes_up), octets(self.bytes_down));
            let _ = write!(line, "  {up} up, {down} down");
        }
        for (reason, times) in &self.reasons {
            let _ = write!(line, "  {reason}");
            if *times > 1 && self.reasons.len() > 1 {
                let _ = write!(line, " ({times})");
            }
        }
        let others = [("allowed", self.allowed), ("observed", self.observed), ("failed", self.failed)];
        for (other, count) in others.into_iter().filter(|(other, count)| *other != word && *count > 0) {
            let _ = write!(line, "  {other} {count}");
        }
        if let (Some(hint), true) = (self.hint(), hints && self.refused > 0) {
            let _ = write!(line, "  {hint}");
        }
        line
    }
}

impl Summary {
    /// What was counted, what was refused first.
    #[must_use]
    pub fn traffic(&self) -> Vec<Traffic> {
        let tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rows: Vec<_> = tally.places.values().cloned().collect();
        rows.sort_by_key(|row| (row.refused == 0, row.failed == 0, row.observed == 0));
        rows
    }

    /// For a person, a line a destination; with the options that would permit what was refused,
    /// where there are such `hints`.
    #[must_use]
    pub fn text(&self, hints: bool) -> String {
        let rows = self.traffic();
        let sum = |of: fn(&Traffic) -> u64| rows.iter().map(of).fold(0, u64::saturating_add);
        let all = sum(|row| row.allowed + row.observed + row.refused + row.failed);
        if rows.is_empty() {
            return "egret: no request came to the proxy\n".to_owned();
        }
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let mut text = format!("egret: {all} request{} to ", plural(usize::try_from(all).unwrap_or(2)));
        let _ = write!(text, "{} destination{}: ", rows.len(), plural(rows.len()));
        let counts = [
            ("allowed", sum(|row| row.allowed)),
            ("observed", sum(|row| row.observed)),
            ("failed", sum(|row| row.failed)),
            ("refused", sum(|row| row.refused)),
        ];
        let counts = counts.into_iter().filter(|(word, count)| *count > 0 || *word == "allowed");
        let counts: Vec<_> = counts.map(|(word, count)| format!("{count} {word}")).collect();
        let _ = writeln!(text, "{}", counts.join(", "));
        for row in rows.iter().take(TOLD) {
            let _ = writeln!(text, "egret: {}", row.line(hints));
        }
        if let Some(more) = rows.len().checked_sub(TOLD).filter(|more| *more > 0) {
            let _ = writeln!(text, "egret: and {more} more, which --json shows");
        }
        text
    }
}

/// As people read sizes.
fn octets(count: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "kB")];
    match UNITS.into_iter().find(|(size, _)| count >= *size) {
        Some((size, unit)) => format!("{}.{} {unit}", count / size, count % size * 10 / size),
        None => format!("{count} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lines: &str) -> Summary {
        let summary = Summary::default();
        let records = lines.lines().count();
        summary.written(&Written { lines: lines.as_bytes(), records, end: None });
        summary
    }

    #[test]
    fn requests_bytes_and_reasons_are_counted_by_destination() {
        let summary = told(concat!(
            "{\"seq\":1,\"event\":\"start\"}\n",
            "{\"event\":\"decision\",\"id\":\"a\",\"host\":\"ok.test\",\"port\":443,\"verdict\":\"allow\",\"reason\":\"allowed\",\"status\":null}\n",
            "{\"event\":\"decision\",\"id\":\"b\",\"host\":\"no.test\",\"port\":8443,\"verdict\":\"deny\",\"reason\":\"domain_not_allowed\",\"status\":403}\n",
            "{\"event\":\"decision\",\"id\":\"c\",\"host\":\"gone.test\",\"port\":80,\"verdict\":\"allow\",\"reason\":\"dns_not_found\",\"status\":502}\n",
            "{\"event\":\"decision\",\"id\":\"d\",\"host\":\"seen.test\",\"port\":80,\"verdict\":\"would_deny\",\"reason\":\"domain_not_allowed\",\"status\":null}\n",
            "{\"event\":\"decision\",\"id\":\"e\",\"host\":\"http://x y\",\"verdict\":\"deny\",\"reason\":\"bad_request\",\"status\":400}\n",
            "{\"event\":\"close\",\"id\":\"a\",\"bytes_up\":17,\"bytes_down\":2345678,\"reason\":\"allowed\"}\n",
        ));
        assert_eq!(
            summary.text(true),
            concat!(
                "egret: 5 requests to 5 destinations: 1 allowed, 1 observed, 1 failed, 2 refused\n",
                "egret: refused  (none)                                        1  bad_request\n",
                "egret: refused  no.test:8443                                  1  domain_not_allowed  --allow no.test:8443\n",
                "egret: failed   gone.test:80                                  1  dns_not_found\n",
                "egret: observed seen.test:80                                  1  domain_not_allowed\n",
                "egret: allowed  ok.test:443                                   1  17 B up, 2.3 MB down\n",
            )
        );
        assert!(!summary.text(false).contains("--allow"));
        assert_eq!(told("").text(true), "egret: no request came to the proxy\n");
    }

    #[test]
    fn a_name_that_was_asked_for_counts_where_nobody_goes_on_to_connect() {
        let summary = told(concat!(
            "{\"event\":\"decision\",\"id\":\"a\",\"protocol\":\"dns\",\"host\":\"ok.test\",\"verdict\":\"allow\",\"reason\":\"allowed\",\"status\":0}\n",
            "{\"event\":\"decision\",\"id\":\"b\",\"protocol\":\"dns\",\"host\":\"seen.test\",\"verdict\":\"would_deny\",\"reason\":\"domain_not_allowed\",\"status\":0}\n",
            "{\"event\":\"decision\",\"id\":\"c\",\"protocol\":\"dns\",\"host\":\"gone.test\",\"verdict\":\"allow\",\"reason\":\"dns_not_found\",\"status\":3}\n",
            "{\"event\":\"decision\",\"id\":\"d\",\"protocol\":\"dns\",\"host\":\"no.test\",\"verdict\":\"deny\",\"reason\":\"domain_not_allowed\",\"status\":5}\n",
        ));
        assert_eq!(
            summary.text(true),
            concat!(
                "egret: 2 requests to 2 destinations: 0 allowed, 1 failed, 1 refused\n",
                "egret: refused  no.test                                       1  domain_not_allowed  --allow no.test\n",
                "egret: failed   gone.test                                     1  dns_not_found\n",
            )
        );
    }

    #[test]
    fn a_tunnel_that_was_closed_for_a_reason_says_so() {
        let summary = told(concat!(
            "{\"event\":\"decision\",\"id\":\"a\",\"host\":\"ok.test\",\"port\":443,\"verdict\":\"allow\",\"reason\":\"allowed\",\"status\":null}\n",
            "{\"event\":\"close\",\"id\":\"a\",\"bytes_up\":1,\"bytes_down\":0,\"reason\":\"sni_mismatch\"}\n",
        ));
        assert_eq!(summary.traffic()[0].reasons["sni_mismatch"], 1);
    }

    #[test]
    fn a_name_like_an_option_is_no_option() {
        let summary = told(
            "{\"event\":\"decision\",\"id\":\"a\",\"host\":\"--observe\",\"port\":443,\"verdict\":\"deny\",\"reason\":\"domain_not_allowed\",\"status\":403}\n",
        );
        assert!(summary.text(true).ends_with("  --allow=--observe\n"), "{}", summary.text(true));
    }

    #[test]
    fn destinations_are_bounded() {
        let mut tally = Tally::default();
        let line = |number: usize| {
            format!(
                "{{\"event\":\"decision\",\"id\":\"{number}\",\"host\":\"h{number}.test\",\"port\":80,\"verdict\":\"deny\",\"reason\":\"domain_not_allowed\",\"status\":403}}"
            )
        };
        for number in 0..MOST + 7 {
            tally.add(&serde_json::from_str(&line(number)).unwrap());
        }
        assert_eq!(tally.places.len(), MOST + 1);
        assert_eq!(tally.places[&(OTHERS.to_owned(), None)].refused, 7);
        assert!(tally.open.is_empty());
    }
}
