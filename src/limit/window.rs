//! A quota's window: how much was used since its first use.

use std::time::{Duration, Instant};

use egret_policy::units::Quota;

/// Starts at the first use and ends a period later.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Window {
    start: Option<Instant>,
    used: u64,
}

impl Window {
    /// What is left of the quota.
    pub(super) fn left(&mut self, quota: Quota, now: Instant) -> u64 {
        self.roll(quota, now);
        quota.amount.saturating_sub(self.used)
    }

    /// Uses some of it up; the caller has looked whether it is left.
    pub(super) fn take(&mut self, amount: u64, quota: Quota, now: Instant) {
        self.roll(quota, now);
        self.start.get_or_insert(now);
        self.used = self.used.saturating_add(amount);
    }

    /// Gives back what was taken in vain.
    pub(super) fn give_back(&mut self, amount: u64) {
        self.used = self.used.saturating_sub(amount);
    }

    /// How long until it starts anew.
    pub(super) fn ends_in(&self, quota: Quota, now: Instant) -> Duration {
        let end = self.start.and_then(|start| start.checked_add(quota.period));
        end.map_or(Duration::ZERO, |end| end.saturating_duration_since(now))
    }

    /// Begins anew where the period is over; true if it did.
    pub(super) fn roll(&mut self, quota: Quota, now: Instant) -> bool {
        let over = self.start.is_some_and(|start| now.saturating_duration_since(start) >= quota.period);
        if over {
            *self = Self::default();
        }
        over
    }
}
