//! The audit as a whole, against real files.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod attempts;
mod failures;
mod groups;
mod hangs;
mod processes;
mod records;
mod rotation;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::*;

fn start() -> Start {
    Start { version: "1.2.3", generation: 1, policy_digest: None }
}

fn open(file: impl Into<PathBuf>) -> Audit {
    Audit::open(Settings::new(file), start()).unwrap()
}

fn open_hasty(file: impl Into<PathBuf>, on_failure: OnFailure) -> Audit {
    let patience = Duration::from_millis(300);
    Audit::open(Settings { on_failure, patience, ..Settings::new(file) }, start()).unwrap()
}

/// An attempt that is ready to be permitted.
fn attempt(audit: &Audit) -> Attempt {
    let mut attempt = audit.begin(Request { sandbox: Some("s".into()), ..Request::default() });
    attempt.outcome_mut().verdict = Verdict::Allow;
    attempt.outcome_mut().reason = "allowed";
    attempt
}

/// Every record of a file; panics unless all lines are records.
fn records(file: &Path) -> Vec<Value> {
    let content = fs::read_to_string(file).unwrap();
    assert!(content.is_empty() || content.ends_with('\n'), "the last line is torn");
    content.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

fn assert_numbered<'a>(records: impl IntoIterator<Item = &'a Value>) {
    for (expected, record) in (1_u64..).zip(records) {
        assert_eq!(record["seq"], expected, "{record}");
    }
}

fn of_event<'a>(records: &'a [Value], event: &str) -> Vec<&'a Value> {
    records.iter().filter(|record| record["event"] == event).collect()
}

/// The events that tell of one attempt, in order.
fn events_of(records: &[Value], id: AttemptId) -> Vec<(&str, &str)> {
    let of_id = records.iter().filter(|record| record["id"] == id.as_str());
    of_id.map(|record| (record["event"].as_str().unwrap(), record["reason"].as_str().unwrap())).collect()
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(20), "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
