//! When a tunnel has lived long enough. Pure: time is an argument.

use std::time::Duration;

use tokio::time::Instant;

use super::{End, Limits};

/// Where a timer goes that has nothing to wait for.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The limits of one tunnel, with the instants they count from.
#[derive(Debug)]
pub(super) struct Clock {
    limits: Limits,
    started: Instant,
    last_progress: Instant,
    half_closed: bool,
}

/// A limit that can end a tunnel.
#[derive(Debug, Clone, Copy)]
enum Limit {
    Idle,
    HalfClosed,
    Lifetime,
}

impl Clock {
    pub(super) fn start(limits: Limits, now: Instant) -> Self {
        Self { limits, started: now, last_progress: now, half_closed: false }
    }

    /// Bytes were passed on at `now`.
    pub(super) fn progress(&mut self, now: Instant) {
        self.last_progress = now;
    }

    /// One side has ended or failed, for good.
    pub(super) fn half_close(&mut self) {
        self.half_closed = true;
    }

    /// The next instant at which a limit may be reached.
    pub(super) fn wake_at(&self) -> Instant {
        self.next().map_or(self.started + FAR, |(at, _)| at)
    }

    /// The end, if a limit is reached at `now`.
    pub(super) fn expired<T>(&self, now: Instant) -> Option<End<T>> {
        let (_, limit) = self.next().filter(|(at, _)| *at <= now)?;
        Some(match limit {
            Limit::Idle => End::Idle,
            Limit::HalfClosed => End::HalfClosed,
            Limit::Lifetime => End::Lifetime,
        })
    }

    /// The limit that is reached first. One beyond the end of time is none.
    fn next(&self) -> Option<(Instant, Limit)> {
        let linger = self.half_closed.then_some(self.limits.half_closed);
        [
            (self.started, self.limits.lifetime, Limit::Lifetime),
            (self.last_progress, linger, Limit::HalfClosed),
            (self.last_progress, self.limits.idle, Limit::Idle),
        ]
        .into_iter()
        .filter_map(|(since, limit, name)| Some((since.checked_add(limit?)?, name)))
        .min_by_key(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits() -> Limits {
        Limits { idle: Some(SECOND * 10), lifetime: Some(SECOND * 100), half_closed: SECOND * 5 }
    }

    #[test]
    fn progress_puts_off_the_idle_limit_only() {
        let start = Instant::now();
        let mut clock = Clock::start(limits(), start);
        assert_eq!(clock.wake_at(), start + SECOND * 10);
        assert!(clock.expired::<()>(start + SECOND * 9).is_none());
        assert!(matches!(clock.expired::<()>(start + SECOND * 10), Some(End::Idle)));
        clock.progress(start + SECOND * 95);
        assert_eq!(clock.wake_at(), start + SECOND * 100);
        assert!(matches!(clock.expired::<()>(start + SECOND * 100), Some(End::Lifetime)));
    }

    #[test]
    fn the_linger_counts_from_the_last_byte() {
        let start = Instant::now();
        let mut clock = Clock::start(limits(), start);
        clock.half_close();
        clock.progress(start + SECOND * 3);
        assert_eq!(clock.wake_at(), start + SECOND * 8);
        assert!(matches!(clock.expired::<()>(start + SECOND * 8), Some(End::HalfClosed)));
    }

    #[test]
    fn no_limit_and_an_absurd_one_never_expire() {
        let start = Instant::now();
        for idle in [None, Some(Duration::MAX)] {
            let limits = Limits { idle, lifetime: idle, half_closed: Duration::MAX };
            let mut clock = Clock::start(limits, start);
            clock.half_close();
            assert!(clock.wake_at() >= start + FAR);
            assert!(clock.expired::<()>(start + FAR).is_none());
        }
    }
}
