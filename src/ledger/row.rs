//! What is counted for one destination of one sandbox, and for a sandbox as a whole.

use serde::{Deserialize, Serialize};

use super::record::Verdict;

/// Stands for the sandbox of a request that nothing identified. No sandbox ID looks like it.
pub const UNKNOWN: &str = "(unknown)";
/// Stands for the host of a request that named no destination.
pub const NO_HOST: &str = "(none)";
/// Stands for everything beyond the limits of the ledger.
pub const OTHERS: &str = "*";

/// Which row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub sandbox: String,
    pub host: String,
    /// 0 where there is none.
    pub port: u16,
}

impl Key {
    pub(super) fn others(sandbox: &str) -> Self {
        Self { sandbox: sandbox.to_owned(), host: OTHERS.to_owned(), port: 0 }
    }
}

/// Counts. Times are RFC 3339 in UTC with microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Of the earliest record.
    pub first_seen: String,
    /// Of the latest record, closing records included.
    pub last_seen: String,
    /// Decisions, whatever their verdict.
    pub requests: u64,
    /// Decisions with the verdict `allow`.
    pub allow: u64,
    /// Decisions with the verdict `deny`.
    pub deny: u64,
    /// Decisions with the verdict `would_deny`.
    pub would_deny: u64,
    /// Payload towards the destination, of what has ended.
    pub bytes_up: u64,
    /// Payload from the destination, of what has ended.
    pub bytes_down: u64,
    /// Of the last decision in the file.
    pub last_verdict: String,
    /// Of the last record in the file, closing records included.
    pub last_reason: String,
}

impl Counts {
    pub(super) fn decided(&mut self, ts: &str, verdict: Verdict, reason: &str) {
        self.seen(ts, reason);
        self.requests = self.requests.saturating_add(1);
        let count = match verdict {
            Verdict::Allow => &mut self.allow,
            Verdict::Deny => &mut self.deny,
            Verdict::WouldDeny => &mut self.would_deny,
        };
        *count = count.saturating_add(1);
        verdict.word().clone_into(&mut self.last_verdict);
    }

    pub(super) fn closed(&mut self, ts: &str, reason: &str, bytes_up: u64, bytes_down: u64) {
        self.seen(ts, reason);
        self.bytes_up = self.bytes_up.saturating_add(bytes_up);
        self.bytes_down = self.bytes_down.saturating_add(bytes_down);
    }

    /// Records are written in the order of their numbers, but their times are taken before.
    fn seen(&mut self, ts: &str, reason: &str) {
        if self.first_seen.is_empty() || ts < self.first_seen.as_str() {
            ts.clone_into(&mut self.first_seen);
        }
        if ts > self.last_seen.as_str() {
            ts.clone_into(&mut self.last_seen);
        }
        reason.clone_into(&mut self.last_reason);
    }
}

/// A row of the ledger as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DomainRow {
    /// Sandbox ID, [`UNKNOWN`] or [`OTHERS`].
    pub sandbox: String,
    /// Canonical host, [`NO_HOST`] or [`OTHERS`].
    pub host: String,
    /// Port; null where `host` stands for none or for many, and where only the name was asked for.
    pub port: Option<u16>,
    /// What was counted.
    #[serde(flatten)]
    pub counts: Counts,
}

/// A sandbox and what was counted for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxRow {
    /// Rows that the ledger holds for it.
    pub domains: u64,
    /// The sums over them.
    #[serde(flatten)]
    pub counts: Counts,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_span_all_records_whatever_their_order() {
        let mut counts = Counts::default();
        counts.decided("2026-01-01T00:00:00.000002Z", Verdict::Allow, "allowed");
        counts.decided("2026-01-01T00:00:00.000001Z", Verdict::Deny, "rate_limited");
        assert_eq!(counts.first_seen, "2026-01-01T00:00:00.000001Z");
        assert_eq!(counts.last_seen, "2026-01-01T00:00:00.000002Z");
        assert_eq!((counts.requests, counts.allow, counts.deny), (2, 1, 1));
        assert_eq!((counts.last_verdict.as_str(), counts.last_reason.as_str()), ("deny", "rate_limited"));
    }

    #[test]
    fn counts_do_not_wrap() {
        let mut counts = Counts::default();
        counts.closed("2026-01-01T00:00:00.000002Z", "allowed", u64::MAX, 1);
        counts.closed("2026-01-01T00:00:00.000002Z", "allowed", 7, 1);
        assert_eq!((counts.bytes_up, counts.bytes_down), (u64::MAX, 2));
    }
}
