//! A quota's window: how much was used since its first use, and how much of that is on the disk.

use std::time::{Duration, Instant};

use egret_policy::units::Quota;
use serde::{Deserialize, Serialize};

use super::clock::{Now, micros};

/// Most that is written down as used before it is. A crash costs a sandbox at most this.
const MOST_AHEAD: u64 = 4 << 20;
/// What is written down ahead is at most this part of the quota.
const PART_AHEAD: u64 = 64;

/// Starts at the first use and ends a period later.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Window {
    start: Option<Instant>,
    /// Of the quota that it was used under last.
    period: Duration,
    /// How much to write down ahead.
    ahead: u64,
    used: u64,
    /// What the disk says, or will once what was queued is written: never less than `used`, but
    /// between a use and the line about it.
    kept: u64,
}

/// A window as the disk has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptWindow {
    /// Its beginning, in microseconds since 1970.
    pub since: u64,
    /// In microseconds.
    pub period: u64,
    pub used: u64,
}

impl Window {
    /// A window of an earlier process, if it is not over. Where the clock went back since, it begins
    /// now: with what was used, and no longer than a period.
    pub(super) fn restored(kept: KeptWindow, now: Now) -> Self {
        let KeptWindow { since, period, used } = kept;
        let (age, period) = (now.since(since), Duration::from_micros(period));
        if age >= period {
            return Self::default();
        }
        Self { start: Some(now.back(age)), period, ahead: 0, used, kept: used }
    }

    /// What is left of the quota.
    pub(super) fn left(&mut self, quota: Quota, now: Now) -> u64 {
        self.roll(quota, now);
        quota.amount.saturating_sub(self.used)
    }

    /// Uses some of it up; the caller has looked whether it is left.
    pub(super) fn take(&mut self, amount: u64, quota: Quota, now: Now) {
        self.roll(quota, now);
        self.start.get_or_insert(now.instant);
        self.period = quota.period;
        self.ahead = (quota.amount / PART_AHEAD).min(MOST_AHEAD);
        self.used = self.used.saturating_add(amount);
    }

    /// Gives back what was taken in vain.
    pub(super) fn give_back(&mut self, amount: u64) {
        self.used = self.used.saturating_sub(amount);
    }

    /// How long until it starts anew.
    pub(super) fn ends_in(&self, quota: Quota, now: Now) -> Duration {
        let end = self.start.and_then(|start| start.checked_add(quota.period));
        end.map_or(Duration::ZERO, |end| end.saturating_duration_since(now.instant))
    }

    /// When it ends, if it runs. `None` is also an end too far away to be told.
    pub(super) fn end(&self) -> Option<Instant> {
        self.start?.checked_add(self.period)
    }

    /// Begins anew where the period is over; true if it did.
    pub(super) fn roll(&mut self, quota: Quota, now: Now) -> bool {
        let over =
            self.start.is_some_and(|start| now.instant.saturating_duration_since(start) >= quota.period);
        if over {
            *self = Self::default();
        }
        over
    }

    /// What the disk must say before what was used may pass; `None` if it says enough.
    pub(super) fn unkept(&mut self, now: Now) -> Option<KeptWindow> {
        if self.used <= self.kept {
            return None;
        }
        self.kept = self.used.saturating_add(self.ahead);
        self.running(now)
    }

    /// The window with what was used and nothing ahead, if it runs.
    pub(super) fn settled(&mut self, now: Now) -> Option<KeptWindow> {
        self.kept = self.used;
        self.running(now)
    }

    /// Does the disk say more than was used?
    pub(super) const fn is_ahead(&self) -> bool {
        self.kept > self.used
    }

    fn running(&self, now: Now) -> Option<KeptWindow> {
        let age = now.instant.saturating_duration_since(self.start?);
        let kept = KeptWindow { since: now.wall_at(age), period: micros(self.period), used: self.kept };
        (age < self.period).then_some(kept)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000;
    const WALL: u64 = 1_700_000_000 * SECOND;

    #[derive(Debug, Clone)]
    enum Step {
        Take(u64),
        GiveBack(u64),
        Pass(u64),
        Settle,
        /// The process is killed and started again while the wall clock jumps by so many seconds.
        Crash(i64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => (1..400_u64).prop_map(Step::Take),
            1 => (1..50_u64).prop_map(Step::GiveBack),
            2 => (0..40_u64).prop_map(Step::Pass),
            1 => Just(Step::Settle),
            2 => prop_oneof![Just(0_i64), -200..0_i64].prop_map(Step::Crash),
        ]
    }

    proptest! {
        /// Whatever happens, a window never admits more than the quota within a period, a crash
        /// never gives anything back, and never takes more than what was written ahead.
        #[test]
        fn a_crash_gives_nothing_back(steps in prop::collection::vec(step(), 1..60)) {
            let quota = Quota { amount: 1280, period: Duration::from_secs(60) };
            let base = Instant::now();
            let (mut monotonic, mut wall) = (0_u64, WALL);
            let now = |monotonic: u64, wall: u64| Now { instant: base + Duration::from_micros(monotonic), wall };
            let mut window = Window::default();
            let mut disk: Option<KeptWindow> = None;
            // What passed since the window began, and when it did.
            let (mut passed, mut begun) = (0_u64, None::<u64>);
            for step in steps {
                let at = now(monotonic, wall);
                match step {
                    Step::Take(want) => {
                        let granted = window.left(quota, at).min(want);
                        if granted == 0 { continue; }
                        if begun.is_none_or(|begun| monotonic - begun >= 60 * SECOND) && window.used == 0 {
                            (passed, begun) = (0, Some(monotonic));
                        }
                        window.take(granted, quota, at);
                        if let Some(line) = window.unkept(at) { disk = Some(line); }
                        passed += granted;
                        prop_assert!(passed <= quota.amount, "{} passed", passed);
                        prop_assert!(disk.is_some_and(|disk| disk.used >= window.used));
                    }
                    Step::GiveBack(amount) => {
                        let amount = amount.min(passed).min(window.used);
                        window.give_back(amount);
                        passed -= amount;
                    }
                    Step::Pass(seconds) => { monotonic += seconds * SECOND; wall += seconds * SECOND; }
                    Step::Settle => if let Some(line) = window.settled(at) { disk = Some(line); },
                    Step::Crash(jump) => {
                        wall = wall.saturating_add_signed(jump * SECOND.cast_signed());
                        let (before, ahead) = (window, window.ahead);
                        let at = now(monotonic, wall);
                        window = disk.map_or_else(Window::default, |kept| Window::restored(kept, at));
                        let ran = before.start.is_some_and(|start| at.instant - start < before.period);
                        if ran && before.used > 0 {
                            prop_assert!(window.used >= before.used);
                            prop_assert!(window.used <= before.kept.max(before.used + ahead));
                        }
                        if let Some(end) = window.end() {
                            prop_assert!(end - at.instant <= quota.period, "a window is never prolonged beyond a period");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_written_ahead_is_a_small_part() {
        let now = Now::read();
        for (amount, most) in [(63, 0), (6400, 100), (1 << 40, MOST_AHEAD)] {
            let quota = Quota { amount, period: Duration::from_secs(1) };
            let mut window = Window::default();
            window.take(1, quota, now);
            assert_eq!(window.unkept(now).unwrap().used, 1 + most);
            assert_eq!(window.unkept(now), None);
            assert_eq!(window.is_ahead(), most > 0);
            assert_eq!(window.settled(now).unwrap().used, 1);
            assert!(!window.is_ahead());
        }
    }

    #[test]
    fn a_window_that_is_over_is_not_restored() {
        let now = Now { instant: Instant::now(), wall: WALL };
        let restore = |since| {
            let kept = KeptWindow { since, period: 60 * SECOND, used: 7 };
            Window::restored(kept, now).end().map(|end| end - now.instant)
        };
        assert_eq!(restore(WALL - 60 * SECOND), None);
        assert_eq!(restore(WALL - 59 * SECOND), Some(Duration::from_secs(1)));
        assert_eq!(
            restore(WALL + 3600 * SECOND),
            Some(Duration::from_secs(60)),
            "from the future: the clock went back"
        );
    }
}
