//! The ledger against files that are written, renamed, cut and damaged, and ledgers that are
//! dropped half-way as a crash would.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod laws;
mod live;
mod rotation;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use super::*;

/// A folder with an audit file and a ledger's store.
struct Place {
    dir: TempDir,
    limits: Limits,
    seq: u64,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), limits: Limits::default(), seq: 0 }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("audit.ndjson")
    }

    fn ledger(&self) -> Ledger {
        let state_dir = self.dir.path().to_owned();
        Ledger::open(Settings { state_dir, audit_file: self.file(), limits: self.limits }).unwrap()
    }

    /// A ledger that has read everything, and is gone again.
    fn fold(&self) -> Folded {
        let ledger = self.ledger();
        ledger.catch_up().unwrap();
        Folded::of(&ledger)
    }

    fn append(&self, text: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.file()).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Appends a record with the next number; its time is that number of microseconds.
    fn record(&mut self, rest: &str) {
        self.seq += 1;
        let line = line(self.seq, self.seq, rest);
        self.append(&line);
    }

    fn decision(&mut self, id: &str, sandbox: &str, host: &str) {
        self.record(&decision(id, sandbox, host, "allow", "allowed", "null"));
    }

    fn close(&mut self, id: &str, up: u64, down: u64) {
        self.record(&close(id, up, down));
    }
}

fn line(seq: u64, time: u64, rest: &str) -> String {
    format!("{{\"seq\":{seq},\"ts\":\"{}\",{rest}}}\n", ts(time))
}

fn ts(time: u64) -> String {
    format!("2026-01-01T00:{:02}:{:02}.{:06}Z", time / 60_000_000, time / 1_000_000 % 60, time % 1_000_000)
}

fn decision(id: &str, sandbox: &str, host: &str, verdict: &str, reason: &str, status: &str) -> String {
    let dialed = if status == "null" { "\"192.0.2.1\"" } else { "null" };
    format!(
        "\"event\":\"decision\",\"id\":\"{id}\",\"sandbox\":\"{sandbox}\",\"host\":\"{host}\",\"port\":443,\"verdict\":\"{verdict}\",\"reason\":\"{reason}\",\"dialed\":{dialed},\"status\":{status}"
    )
}

fn close(id: &str, up: u64, down: u64) -> String {
    format!(
        "\"event\":\"close\",\"id\":\"{id}\",\"bytes_up\":{up},\"bytes_down\":{down},\"reason\":\"allowed\""
    )
}

/// All that a ledger says.
#[derive(Debug, PartialEq)]
struct Folded {
    rows: Vec<DomainRow>,
    sandboxes: Vec<(String, SandboxRow)>,
    notes: Notes,
}

impl Folded {
    fn of(ledger: &Ledger) -> Self {
        let sandboxes = ledger.sandboxes().unwrap();
        let rows = sandboxes.iter().flat_map(|(id, _)| ledger.domains(id).unwrap().unwrap()).collect();
        Self { rows, sandboxes, notes: ledger.notes().unwrap() }
    }

    /// Requests and bytes of each row, in order.
    fn short(&self) -> Vec<(&str, &str, u64, u64, u64)> {
        let short = |row: &'_ DomainRow| (row.counts.requests, row.counts.bytes_up, row.counts.bytes_down);
        let named = self.rows.iter().map(|row| (row.sandbox.as_str(), row.host.as_str(), short(row)));
        named.map(|(sandbox, host, (requests, up, down))| (sandbox, host, requests, up, down)).collect()
    }
}

#[test]
fn a_request_and_its_end() {
    let mut place = Place::new();
    place.decision("a", "box", "one.test");
    place.close("a", 5, 7);
    place.record(&decision("b", "box", "one.test", "deny", "domain_denied", "403"));
    let folded = place.fold();
    let expected = Counts {
        first_seen: ts(1),
        last_seen: ts(3),
        requests: 2,
        allow: 1,
        deny: 1,
        would_deny: 0,
        bytes_up: 5,
        bytes_down: 7,
        last_verdict: "deny".to_owned(),
        last_reason: "domain_denied".to_owned(),
    };
    let (sandbox, host) = ("box".to_owned(), "one.test".to_owned());
    assert_eq!(folded.rows, [DomainRow { sandbox, host, port: Some(443), counts: expected.clone() }]);
    assert_eq!(folded.sandboxes, [("box".to_owned(), SandboxRow { domains: 1, counts: expected })]);
    assert_eq!(folded.notes, Notes::default());
}

#[test]
fn an_end_is_matched_in_a_later_batch_and_after_a_crash() {
    let mut place = Place::new();
    place.decision("a", "box", "one.test");
    assert_eq!(place.fold().short(), [("box", "one.test", 1, 0, 0)]);
    place.close("a", 5, 7);
    assert_eq!(place.fold().short(), [("box", "one.test", 1, 5, 7)]);
    // Twice can't be: it belongs to nothing any more.
    place.close("a", 5, 7);
    let folded = place.fold();
    assert_eq!(folded.short(), [("box", "one.test", 1, 5, 7)]);
    assert_eq!(folded.notes, Notes { unmatched_closes: 1, ..Notes::default() });
}

#[test]
fn what_an_earlier_process_left_open_is_forgotten() {
    let mut place = Place::new();
    place.decision("a", "box", "one.test");
    place.fold();
    place.seq = 0;
    place.record("\"event\":\"start\",\"schema\":\"egret.audit/1\"");
    place.close("a", 5, 7);
    let folded = place.fold();
    assert_eq!(folded.short(), [("box", "one.test", 1, 0, 0)]);
    assert_eq!(folded.notes, Notes { unmatched_closes: 1, ..Notes::default() });
}

#[test]
fn requests_without_sandbox_or_destination_are_counted_too() {
    let mut place = Place::new();
    place.record("\"event\":\"decision\",\"id\":\"a\",\"host\":\"x\",\"port\":1,\"verdict\":\"deny\",\"reason\":\"identity_required\"");
    place.record("\"event\":\"decision\",\"id\":\"b\",\"sandbox\":\"box\",\"host\":\"http://\\u0007\",\"verdict\":\"deny\",\"reason\":\"bad_request\"");
    let folded = place.fold();
    assert_eq!(folded.short(), [(UNKNOWN, "x", 1, 0, 0), ("box", NO_HOST, 1, 0, 0)]);
    assert_eq!(folded.rows[1].port, None);
}

#[test]
fn beyond_its_limits_it_counts_the_others_together() {
    let mut place = Place::new();
    place.limits = Limits { rows_per_sandbox: 2, sandboxes: 2, open: 2 };
    for host in ["a.test", "b.test", "c.test", "a.test", "d.test"] {
        place.decision(host, "one", host);
    }
    place.decision("e", "two", "e.test");
    place.decision("f", "three", "f.test");
    place.decision("g", "two", "g.test");
    let expected = [
        (OTHERS, OTHERS, 1, 0, 0),
        ("one", OTHERS, 2, 0, 0),
        ("one", "a.test", 2, 0, 0),
        ("one", "b.test", 1, 0, 0),
        ("two", "e.test", 1, 0, 0),
        ("two", "g.test", 1, 0, 0),
    ];
    assert_eq!(place.fold().short(), expected);
    // Of the open ones the oldest by ID were let go.
    for id in ["a.test", "f", "g"] {
        place.close(id, 1, 2);
    }
    let folded = place.fold();
    assert_eq!(folded.notes.unmatched_closes, 1);
    assert_eq!(folded.rows[0].counts.bytes_down, 2);
}

#[test]
fn damage_is_skipped_and_counted() {
    let mut place = Place::new();
    place.decision("a", "box", "one.test");
    place.append("\u{0}\u{0}\u{0}\n{\"seq\":\n\n");
    place.decision("b", "box", "one.test");
    place.append(&"x".repeat(3 << 20));
    place.append("\n");
    place.seq += 4;
    place.decision("c", "box", "one.test");
    place.append("{\"seq\":9,\"torn");
    let folded = place.fold();
    assert_eq!(folded.short(), [("box", "one.test", 3, 0, 0)]);
    assert!(folded.notes.damaged_lines >= 4, "{:?}", folded.notes);
    assert_eq!(folded.notes.missing_records, 4);
    // The torn line may yet be finished.
    place.append("\"}\n");
    assert_eq!(place.fold().notes.damaged_lines, folded.notes.damaged_lines + 1);
}

#[test]
fn a_store_that_was_opened_again_has_everything() {
    let mut place = Place::new();
    place.decision("a", "box", "one.test");
    let ledger = place.ledger();
    ledger.catch_up().unwrap();
    let before = Folded::of(&ledger);
    ledger.shared.store.reopen().unwrap();
    assert_eq!(Folded::of(&ledger), before);
    place.close("a", 1, 2);
    drop(ledger);
    assert_eq!(place.fold().short(), [("box", "one.test", 1, 1, 2)]);
}

#[test]
fn a_new_store_is_not_for_everybody() {
    let place = Place::new();
    drop(place.ledger());
    let mode = fs::metadata(place.dir.path().join("ledger.redb")).unwrap().permissions().mode();
    assert_eq!(mode & 0o007, 0, "{mode:o}");
}

#[test]
fn only_one_process_has_it() {
    let place = Place::new();
    let _first = place.ledger();
    let (state_dir, audit_file) = (place.dir.path().to_owned(), place.file());
    let second = Ledger::open(Settings { state_dir, audit_file, limits: Limits::default() }).unwrap_err();
    assert!(matches!(second, LedgerError::InUse { .. }), "{second}");
}

#[test]
fn a_store_that_is_none_is_an_error() {
    let place = Place::new();
    fs::write(place.dir.path().join("ledger.redb"), "x".repeat(100_000)).unwrap();
    let (state_dir, audit_file) = (place.dir.path().to_owned(), place.file());
    let error = Ledger::open(Settings { state_dir, audit_file, limits: Limits::default() }).unwrap_err();
    assert!(error.to_string().contains("delete it"), "{error}");
}
