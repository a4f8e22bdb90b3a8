//! What the audit writer did, for metrics. Only the writer and the queue count.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The present value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, number: usize) {
        self.0.fetch_add(u64::try_from(number).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// Counted since the start of the process.
#[derive(Debug, Default)]
pub struct Counters {
    /// Records in the file.
    pub records: Counter,
    /// Bytes in the file.
    pub bytes: Counter,
    /// Batches tried, each one write in the regular case.
    pub batches: Counter,
    /// Batches that failed.
    pub failures: Counter,
    /// Decisions that could not be recorded, whose requests were refused.
    pub refused: Counter,
    /// Other records that were given up.
    pub dropped: Counter,
}
