//! One look at both clocks. Windows run by the monotonic one, which nobody can set; only what the
//! disk says is in wall-clock time, since the other has no meaning for the next process.

use std::time::{Duration, Instant, SystemTime};

/// The same moment on both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) instant: Instant,
    /// In microseconds since 1970.
    pub(super) wall: u64,
}

impl Now {
    pub(super) fn read() -> Self {
        // A clock before 1970 counts as 1970.
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { instant: Instant::now(), wall: micros(wall) }
    }

    /// How long ago that was; nothing if the clock was set back since.
    pub(super) const fn since(self, wall: u64) -> Duration {
        Duration::from_micros(self.wall.saturating_sub(wall))
    }

    /// How long until then; nothing if it has passed.
    pub(super) const fn until(self, wall: u64) -> Duration {
        Duration::from_micros(wall.saturating_sub(self.wall))
    }

    /// So long ago by the monotonic clock; now, where that can't be told.
    pub(super) fn back(self, age: Duration) -> Instant {
        self.instant.checked_sub(age).unwrap_or(self.instant)
    }

    /// So long ago by the wall clock.
    pub(super) fn wall_at(self, age: Duration) -> u64 {
        self.wall.saturating_sub(micros(age))
    }

    /// In so long by the wall clock.
    pub(super) fn wall_in(self, ahead: Duration) -> u64 {
        self.wall.saturating_add(micros(ahead))
    }
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
