//! The counts of one sandbox.

use std::collections::{HashSet, VecDeque};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use egret_policy::units::{Quota, Rate};
use egret_policy::{Host, Limits, Reason};
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, RateLimiter};

use super::Exceeded;
use super::window::Window;
use crate::relay::Direction;

/// When to come back where a slot may become free at any time.
const SOON: Duration = Duration::from_secs(1);

/// Most rates that are counted for one sandbox at a time.
const MOST_RATES: usize = 16;

/// One sandbox.
#[derive(Debug, Default)]
pub(super) struct Sandbox {
    /// One for each rate that was asked for lately: a reload takes effect, and going back and
    /// forth between two rates refills neither.
    rates: VecDeque<(Rate, DefaultDirectRateLimiter)>,
    open: u32,
    hosts: HashSet<Host>,
    host_window: Window,
    both: Window,
    up: Window,
    down: Window,
    /// When the last window that may run is over.
    busy_until: Option<Instant>,
}

impl Sandbox {
    pub(super) fn admit(&mut self, limits: &Limits, now: Instant) -> Result<(), Exceeded> {
        if limits.connections.is_some_and(|most| self.open >= most) {
            return Err(Exceeded {
                reason: Reason::TooManyConnections,
                limit: "connections",
                retry_after: SOON,
            });
        }
        for (limit, quota, window) in [
            ("bytes", limits.bytes, &mut self.both),
            ("bytes_up", limits.bytes_up, &mut self.up),
            ("bytes_down", limits.bytes_down, &mut self.down),
        ] {
            if let Some(quota) = quota
                && window.left(quota, now) == 0
            {
                return Err(used_up(limit, window.ends_in(quota, now)));
            }
        }
        if let Some(rate) = limits.requests {
            self.check_rate(rate, now)?;
        }
        self.open = self.open.saturating_add(1);
        Ok(())
    }

    pub(super) fn release(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    pub(super) fn count_host(&mut self, host: &Host, quota: Quota, now: Instant) -> Result<(), Exceeded> {
        if self.host_window.roll(quota, now) {
            self.hosts.clear();
        }
        if self.hosts.contains(host) {
            return Ok(());
        }
        if self.host_window.left(quota, now) == 0 {
            return Err(used_up("domains", self.host_window.ends_in(quota, now)));
        }
        self.host_window.take(1, quota, now);
        self.hosts.insert(host.clone());
        self.busy_for(quota.period, now);
        Ok(())
    }

    /// How many of `want` bytes may pass now.
    pub(super) fn take_bytes(
        &mut self,
        direction: Direction,
        want: usize,
        limits: &Limits,
        now: Instant,
    ) -> usize {
        let (own, own_quota) = match direction {
            Direction::Up => (&mut self.up, limits.bytes_up),
            Direction::Down => (&mut self.down, limits.bytes_down),
        };
        let mut granted = u64::try_from(want).unwrap_or(u64::MAX);
        let mut longest = Duration::ZERO;
        for (window, quota) in [(&mut self.both, limits.bytes), (&mut *own, own_quota)] {
            if let Some(quota) = quota {
                granted = granted.min(window.left(quota, now));
                longest = longest.max(quota.period);
            }
        }
        for (window, quota) in [(&mut self.both, limits.bytes), (own, own_quota)] {
            if let Some(quota) = quota {
                window.take(granted, quota, now);
            }
        }
        self.busy_for(longest, now);
        usize::try_from(granted).unwrap_or(want)
    }

    pub(super) fn give_back(&mut self, direction: Direction, unused: usize, limits: &Limits) {
        let unused = u64::try_from(unused).unwrap_or(u64::MAX);
        let (own, own_quota) = match direction {
            Direction::Up => (&mut self.up, limits.bytes_up),
            Direction::Down => (&mut self.down, limits.bytes_down),
        };
        for (window, quota) in [(&mut self.both, limits.bytes), (own, own_quota)] {
            if quota.is_some() {
                window.give_back(unused);
            }
        }
    }

    /// Has it nothing open and no window running?
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        self.open == 0 && self.busy_until.is_none_or(|until| until <= now)
    }

    fn check_rate(&mut self, rate: Rate, now: Instant) -> Result<(), Exceeded> {
        if !self.rates.iter().any(|(known, _)| *known == rate) {
            if self.rates.len() >= MOST_RATES {
                self.rates.pop_front();
            }
            self.rates.push_back((rate, RateLimiter::direct(governor_quota(rate))));
        }
        self.busy_for(rate.period.saturating_mul(rate.burst.get()), now);
        let Some((_, limiter)) = self.rates.iter().find(|(known, _)| *known == rate) else {
            return Ok(());
        };
        limiter.check().map_err(|not_until| {
            let retry_after = not_until.wait_time_from(DefaultClock::default().now());
            Exceeded { reason: Reason::RateLimited, limit: "requests", retry_after }
        })
    }

    fn busy_for(&mut self, period: Duration, now: Instant) {
        // A window too long to be added up is never over.
        let until = now.checked_add(period);
        self.busy_until = self.busy_until.max(until);
    }
}

fn used_up(limit: &'static str, retry_after: Duration) -> Exceeded {
    Exceeded { reason: Reason::QuotaExceeded, limit, retry_after }
}

/// One cell each `period / amount`, and `burst` of them at once.
fn governor_quota(rate: Rate) -> governor::Quota {
    let each = rate.period.checked_div(rate.amount.get()).filter(|each| !each.is_zero());
    let quota = governor::Quota::with_period(each.unwrap_or(Duration::from_nanos(1)));
    quota.unwrap_or(governor::Quota::per_second(NonZeroU32::MIN)).allow_burst(rate.burst)
}
