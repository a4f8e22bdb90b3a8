//! A request rate that is known again after a restart. The algorithm is governor's; the state is
//! ours, because theirs can't be read.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use egret_policy::units::Rate;
use governor::clock::MonotonicClock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{NotKeyed, StateStore};
use governor::{Quota, RateLimiter};
use serde::{Deserialize, Serialize};

use super::clock::{Now, micros};

/// What is written down ahead. With a request in longer than this, nothing is.
const AHEAD: Duration = Duration::from_millis(250);

/// Requests of one account under one rate.
#[derive(Debug)]
pub(super) struct Pace {
    rate: Rate,
    limiter: RateLimiter<NotKeyed, Arrival, MonotonicClock, NoOpMiddleware<Instant>>,
    arrival: Arrival,
    /// When `arrival` was zero.
    start: Instant,
    /// What the disk says, or will.
    kept: u64,
}

/// When the next request would come if requests were spread evenly, in nanoseconds since the
/// limiter began; 0 before the first.
#[derive(Debug, Clone, Default)]
struct Arrival(Arc<AtomicU64>);

impl StateStore for Arrival {
    type Key = NotKeyed;

    fn measure_and_replace<T, F, E>(&self, _: &NotKeyed, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        // Whoever gets here holds the account's lock.
        let before = Some(self.get()).filter(|nanos| *nanos > 0).map(Nanos::new);
        let (outcome, next) = decide(before)?;
        self.0.store(next.into(), Ordering::Relaxed);
        Ok(outcome)
    }
}

impl Arrival {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A rate as the disk has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptPace {
    pub amount: NonZeroU32,
    /// In microseconds.
    pub period: u64,
    pub burst: NonZeroU32,
    /// When the whole burst is there again, in microseconds since 1970.
    pub rested: u64,
}

impl Pace {
    pub(super) fn new(rate: Rate) -> Self {
        let arrival = Arrival::default();
        let limiter = RateLimiter::new(governor_quota(rate), arrival.clone(), MonotonicClock);
        Self { rate, limiter, arrival, start: Instant::now(), kept: 0 }
    }

    /// A rate of an earlier process. It is rested after a whole burst at the latest, also where the
    /// clock went back since.
    pub(super) fn restored(kept: KeptPace, now: Now) -> Self {
        let KeptPace { amount, period, burst, rested } = kept;
        let rate = Rate { amount, period: Duration::from_micros(period), burst };
        let mut pace = Self::new(rate);
        let rest = nanos(now.until(rested).min(longest_rest(rate)));
        pace.arrival.0.store(rest, Ordering::Relaxed);
        pace.kept = rest;
        pace
    }

    pub(super) const fn rate(&self) -> Rate {
        self.rate
    }

    /// Takes a request in, or says how long it has to wait.
    pub(super) fn check(&self) -> Result<(), Duration> {
        self.limiter.check().map_err(|not_until| not_until.wait_time_from(Instant::now()))
    }

    /// When the whole burst is there again. `None` is never.
    pub(super) fn rested(&self) -> Option<Instant> {
        self.start.checked_add(Duration::from_nanos(self.arrival.get()))
    }

    /// What the disk must say before the request may pass; `None` if it says enough.
    pub(super) fn unkept(&mut self, now: Now) -> Option<KeptPace> {
        let arrival = self.arrival.get();
        if arrival <= self.kept {
            return None;
        }
        let ahead = if each(self.rate) >= AHEAD { Duration::ZERO } else { AHEAD };
        self.kept = arrival.saturating_add(nanos(ahead));
        self.resting(now)
    }

    /// The rate with nothing ahead, if it is not rested.
    pub(super) fn settled(&mut self, now: Now) -> Option<KeptPace> {
        self.kept = self.arrival.get();
        self.resting(now)
    }

    /// Does the disk say more than was used?
    pub(super) fn is_ahead(&self) -> bool {
        self.kept > self.arrival.get()
    }

    fn resting(&self, now: Now) -> Option<KeptPace> {
        let rested = self.start.checked_add(Duration::from_nanos(self.kept))?;
        let rest = rested.checked_duration_since(now.instant).filter(|rest| !rest.is_zero())?;
        let Rate { amount, period, burst } = self.rate;
        // Rounded up: the next process must not be early.
        let rested = now.wall_in(rest).saturating_add(1);
        Some(KeptPace { amount, period: micros(period), burst, rested })
    }
}

/// How long it takes until a whole burst is there again.
pub(super) fn longest_rest(rate: Rate) -> Duration {
    each(rate).saturating_mul(rate.burst.get())
}

/// The time that one request takes.
fn each(rate: Rate) -> Duration {
    let each = rate.period.checked_div(rate.amount.get()).filter(|each| !each.is_zero());
    each.unwrap_or(Duration::from_nanos(1))
}

/// One cell each `period / amount`, and `burst` of them at once.
fn governor_quota(rate: Rate) -> Quota {
    Quota::with_period(each(rate)).unwrap_or(Quota::per_second(NonZeroU32::MIN)).allow_burst(rate.burst)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(amount: u32, period: u64, burst: u32) -> Rate {
        let count = |n| NonZeroU32::new(n).unwrap();
        Rate { amount: count(amount), period: Duration::from_secs(period), burst: count(burst) }
    }

    #[test]
    fn a_burst_that_was_used_is_not_there_again() {
        let mut pace = Pace::new(rate(60, 3600, 3));
        let now = Now::read();
        assert_eq!((0..3).filter(|_| pace.check().is_ok()).count(), 3);
        let kept = pace.unkept(now).unwrap();
        assert_eq!(pace.unkept(now), None);
        let again = Pace::restored(kept, now);
        let wait = again.check().unwrap_err();
        assert!(wait > Duration::from_secs(59) && wait <= Duration::from_secs(61), "{wait:?}");
        // Two of the three have come back.
        let later = Now { wall: now.wall + 121_000_000, ..now };
        let again = Pace::restored(kept, later);
        assert_eq!((0..3).filter(|_| again.check().is_ok()).count(), 2);
    }

    #[test]
    fn a_clock_that_went_back_costs_one_burst_at_most() {
        let now = Now::read();
        let mut pace = Pace::new(rate(1, 10, 1));
        pace.check().unwrap();
        let kept = KeptPace { rested: now.wall + 3_600_000_000, ..pace.unkept(now).unwrap() };
        let again = Pace::restored(kept, now);
        let wait = again.check().unwrap_err();
        assert!(wait <= Duration::from_secs(10), "{wait:?}");
    }

    #[test]
    fn fast_rates_are_written_down_seldom() {
        let mut pace = Pace::new(rate(1000, 1, 1000));
        let written = (0..1000).filter(|_| {
            pace.check().unwrap();
            pace.unkept(Now::read()).is_some()
        });
        assert!(written.count() <= 5);
        assert!(pace.is_ahead());
        pace.settled(Now::read());
        assert!(!pace.is_ahead());
    }
}
