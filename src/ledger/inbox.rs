//! The way from the audit's writer to the ledger's thread: a few numbers where the ledger can read
//! the file, the lines themselves where it can't. The writer never waits here.

use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::follow::{Confirmed, FileId, Reach};
use crate::audit::{Tap, Written};

/// How long news are gathered, so that there are few commits.
const GATHER: Duration = Duration::from_millis(250);
/// The same while somebody listens.
const GATHER_FOR_LISTENERS: Duration = Duration::from_millis(20);
/// Lines of a pipe that wait, in bytes; beyond half of it they are folded at once.
const LIVE_BYTES: usize = 8 << 20;

/// What there is to do.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Records that the writer told of since the start.
    pub told: u64,
    pub reach: Reach,
    /// Whole lines, where there is no file to read.
    pub lines: Vec<u8>,
    /// Is there anything new at all?
    pub news: bool,
    /// Nothing has happened for as long as it was waited.
    pub idle: bool,
    /// Nothing will follow.
    pub closed: bool,
}

#[derive(Debug)]
pub(super) struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
    /// Must lines be kept, for want of a file?
    live: bool,
}

#[derive(Debug, Default)]
struct State {
    work: Work,
    hurry: bool,
    sleeps: bool,
}

impl State {
    fn is_urgent(&self) -> bool {
        self.hurry || self.work.closed || self.work.lines.len() > LIVE_BYTES / 2
    }
}

impl Inbox {
    /// `reach` is what is there before the writer begins; it is news.
    pub(super) fn new(live: bool, reach: Reach) -> Self {
        let work = Work { reach, news: true, ..Work::default() };
        Self { state: Mutex::new(State { work, hurry: true, sleeps: false }), changed: Condvar::new(), live }
    }

    /// Waits for something to do, at most `idle`.
    pub(super) fn take(&self, idle: Duration, has_listeners: bool) -> Work {
        let mut state = self.lock();
        state.sleeps = true;
        let nothing = |state: &mut State| !state.work.news && !state.is_urgent();
        state =
            self.changed.wait_timeout_while(state, idle, nothing).unwrap_or_else(PoisonError::into_inner).0;
        state.sleeps = false;
        if state.work.news {
            let gather = if has_listeners { GATHER_FOR_LISTENERS } else { GATHER };
            let wait = self.changed.wait_timeout_while(state, gather, |state| !state.is_urgent());
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        let idle = !state.work.news && !state.is_urgent();
        state.hurry = false;
        let Work { told, reach, closed, .. } = state.work;
        let work = mem::replace(&mut state.work, Work { told, reach, closed, ..Work::default() });
        Work { idle, ..work }
    }

    /// Records told of since the start.
    pub(super) fn told(&self) -> u64 {
        self.lock().work.told
    }

    /// Has what there is folded at once.
    pub(super) fn hurry(&self) {
        self.lock().hurry = true;
        self.changed.notify_one();
    }

    /// Has what there is folded, and then ends the thread.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.work.closed = true;
        state.work.news = true;
        drop(state);
        self.changed.notify_one();
    }

    /// Has everything looked at again: the last attempt failed.
    pub(super) fn again(&self) {
        self.lock().work.news = true;
    }

    /// Plain data that is whole between any two statements.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tap for Inbox {
    fn written(&self, written: &Written<'_>) {
        let mut state = self.lock();
        state.work.told = state.work.told.saturating_add(written.records as u64);
        state.work.news = true;
        if let Some(end) = written.end {
            let file = FileId { device: end.device, inode: end.inode };
            state.work.reach.extend(Confirmed { file, end: end.offset });
        }
        // What finds no room is missed: its numbers tell.
        if self.live && state.work.lines.len() + written.lines.len() <= LIVE_BYTES {
            state.work.lines.extend_from_slice(written.lines);
        }
        // A thread that gathers wakes by itself: a system call saved for nearly every batch.
        let wake = mem::take(&mut state.sleeps) || state.is_urgent();
        drop(state);
        if wake {
            self.changed.notify_one();
        }
    }
}
