//! What stands between the counts and their file: a queue of lines, a thread that writes them, and
//! those who wait until theirs is written.
//!
//! Nobody waits for long. A disk that fails, or does not answer, is trouble: the counts then go on
//! in memory alone, the log says so, and everything is written anew as soon as that works.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::line::{What, encode};
use super::{Account, Counted, lock};

/// How long what is granted waits for its line.
const PATIENCE: Duration = Duration::from_millis(500);
/// Most octets in the queue. Only while nobody waits can they become so many.
const MOST_QUEUED: usize = 8 << 20;

/// The queue, shared by the accounts and the thread.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    queue: Mutex<Queue>,
    news: Condvar,
    written: Condvar,
    /// The number of the last line that was written.
    done: AtomicU64,
    /// Are the counts in memory alone?
    trouble: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    lines: Vec<u8>,
    /// The number of the last line that was queued.
    pushed: u64,
    /// Lines are not taken: what they would say is written anew later.
    deaf: bool,
    /// A line was lost since somebody asked.
    lost: bool,
    /// Accounts whose lines say more than was used.
    ahead: Vec<Arc<Counted>>,
    closing: bool,
}

/// What the thread has to write.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub lines: Vec<u8>,
    pub up_to: u64,
    pub closing: bool,
}

impl Keeper {
    /// Queues what an account says; the number to wait for.
    pub(super) fn push(&self, account: &Account, lines: Vec<What>) -> u64 {
        let mut queue = lock(&self.queue);
        if queue.deaf || queue.lines.len() > MOST_QUEUED {
            queue.lost = true;
            return 0;
        }
        encode(account, lines, &mut queue.lines);
        queue.pushed += 1;
        self.news.notify_one();
        queue.pushed
    }

    /// Has its exact use written when it is at rest.
    pub(super) fn list(&self, counted: Arc<Counted>) {
        lock(&self.queue).ahead.push(counted);
    }

    /// Those that were listed since the last call.
    pub(super) fn listed(&self) -> Vec<Arc<Counted>> {
        std::mem::take(&mut lock(&self.queue).ahead)
    }

    /// Waits until a line is written, unless there is trouble.
    pub(super) fn wait(&self, ticket: u64) {
        let waits = || self.done.load(Ordering::Acquire) < ticket && !self.in_trouble();
        if !waits() {
            return;
        }
        let queue = lock(&self.queue);
        let waited = self.written.wait_timeout_while(queue, PATIENCE, |_| waits());
        let (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(queue);
        if waits() {
            self.fail(&format_args!("nothing was written for {PATIENCE:?}"));
        }
    }

    /// Are the counts in memory alone?
    pub(super) fn in_trouble(&self) -> bool {
        self.trouble.load(Ordering::Acquire)
    }

    /// Nobody waits from now on, and nothing is queued.
    pub(super) fn fail(&self, error: &dyn std::fmt::Display) {
        let mut queue = lock(&self.queue);
        (queue.deaf, queue.lost) = (true, true);
        queue.lines = Vec::new();
        if !self.trouble.swap(true, Ordering::AcqRel) {
            tracing::error!(
                %error,
                "what sandboxes use of their limits is counted in memory alone; free space, or make the state directory writable"
            );
        }
        self.written.notify_all();
    }

    /// Takes lines again, though nobody waits for them yet.
    pub(super) fn listen(&self) {
        let mut queue = lock(&self.queue);
        (queue.deaf, queue.lost) = (false, false);
    }

    /// Everything is written, unless a line was lost meanwhile.
    pub(super) fn recover(&self, file: &Path) -> bool {
        let queue = lock(&self.queue);
        if queue.lost {
            return false;
        }
        if self.trouble.swap(false, Ordering::AcqRel) {
            tracing::info!(file = %file.display(), "what sandboxes use of their limits is kept again");
        }
        true
    }

    /// How many octets are queued.
    pub(super) fn queued(&self) -> usize {
        lock(&self.queue).lines.len()
    }

    /// What is queued, waiting until then for the first of it.
    pub(super) fn take(&self, until: Instant) -> Batch {
        let queue = lock(&self.queue);
        let patience = until.saturating_duration_since(Instant::now());
        let none = |queue: &mut Queue| queue.lines.is_empty() && !queue.closing;
        let waited = self.news.wait_timeout_while(queue, patience, none);
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        Batch { lines: std::mem::take(&mut queue.lines), up_to: queue.pushed, closing: queue.closing }
    }

    /// Lines up to this one are written.
    pub(super) fn wrote(&self, up_to: u64) {
        let _queue = lock(&self.queue);
        self.done.store(up_to, Ordering::Release);
        self.written.notify_all();
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        lock(&self.queue).closing = true;
        self.news.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Account {
        serde_json::from_str(r#"{"sandbox":"a","policy":"p"}"#).unwrap()
    }

    #[test]
    fn nobody_waits_for_long_and_only_once() {
        // No thread writes.
        let keeper = Keeper::default();
        let ticket = keeper.push(&account(), Vec::new());
        keeper.wait(ticket);
        assert!(keeper.in_trouble());
        let began = Instant::now();
        for _ in 0..1000 {
            let ticket = keeper.push(&account(), Vec::new());
            keeper.wait(ticket);
        }
        assert!(began.elapsed() < PATIENCE, "they did not wait");
        assert_eq!(keeper.take(Instant::now()).lines, [0; 0], "and left nothing behind");
        assert!(!keeper.recover(Path::new("x")), "their lines are lost");
    }

    #[test]
    fn whoever_waits_goes_on_when_the_line_is_written() {
        let keeper = Keeper::default();
        let ticket = keeper.push(&account(), Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| keeper.wrote(ticket));
            keeper.wait(ticket);
        });
        assert!(!keeper.in_trouble());
    }
}
