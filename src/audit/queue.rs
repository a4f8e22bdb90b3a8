//! The bounded way from the callers to the writer.
//!
//! Decision records wait for room; everything else is kept up to a limit and counted beyond it.
//! Nothing here blocks a caller's thread for longer than a push.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::line::Line;
use super::ticket::Ticket;
use super::{Counters, Timestamp};

/// Decision records between callers and file.
const DECISIONS: usize = 8192;
/// How long kept records wait for a decision to go along with.
const KEPT_PATIENCE: Duration = Duration::from_millis(2);
/// Other records that wait for the file, in number and bytes.
const KEPT_RECORDS: usize = 10_000;
const KEPT_BYTES: usize = 8 << 20;

/// One record on its way.
#[derive(Debug)]
pub(super) struct Entry {
    pub line: Line,
    pub role: Role,
}

/// Who cares for a record, which settles what happens when it can't be written.
#[derive(Debug)]
pub(super) enum Role {
    /// A task waits for it.
    Awaited(Arc<Ticket>),
    /// Nobody waits: kept until it can be written. Pointless if the record that the ticket
    /// belongs to is lost.
    Kept(Option<Arc<Ticket>>),
    /// The account of what the file lacks, made anew for every attempt to write.
    Gap,
}

/// The size of a set of kept records.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    records: usize,
    bytes: usize,
}

impl Load {
    /// Makes room for one more record if there is any.
    pub(super) fn admit(&mut self, line: &Line) -> bool {
        let room = self.records < KEPT_RECORDS && self.bytes + line.len() <= KEPT_BYTES;
        if room {
            self.records += 1;
            self.bytes += line.len();
        }
        room
    }
}

/// Records that the file lacks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lost {
    pub count: u64,
    pub refused: u64,
    pub since: Option<Timestamp>,
}

impl Lost {
    pub(super) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.refused += other.refused;
        self.since = self.since.or(other.since);
    }

    pub(super) fn one_record() -> Self {
        Self { count: 1, refused: 0, since: Some(Timestamp::now()) }
    }

    pub(super) fn one_refused() -> Self {
        Self { count: 0, refused: 1, since: Some(Timestamp::now()) }
    }
}

/// What the writer is asked to do in one round.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub entries: Vec<Entry>,
    /// A task waits for one of the entries.
    awaited: bool,
    pub lost: Lost,
    pub reopen: bool,
    /// No further entries will come.
    pub closed: bool,
}

#[derive(Debug, Default)]
struct Inbox {
    work: Work,
    kept: Load,
    sleep: Sleep,
    /// A caller has taken it upon itself to have this written.
    led: bool,
}

/// What the thread sleeps for.
#[derive(Clone, Copy, Debug, Default)]
enum Sleep {
    #[default]
    Awake,
    UntilAnything,
    /// It knows of kept records.
    UntilUrgent,
}

/// Shut down: nothing is recorded any more.
#[derive(Debug)]
pub(super) struct Closed;

#[derive(Debug)]
pub(super) struct Queue {
    inbox: Mutex<Inbox>,
    filled: Condvar,
    room: Semaphore,
    /// May callers write themselves?
    direct: AtomicBool,
    pub counters: Counters,
}

/// A caller's promise to have what is queued written. Broken, it passes to the thread.
#[derive(Debug)]
pub(super) struct Lead<'a>(Option<&'a Queue>);

impl Lead<'_> {
    /// It was kept.
    pub(super) fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if let Some(queue) = self.0 {
            let mut inbox = queue.lock();
            inbox.led = false;
            queue.wake(inbox);
        }
    }
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            inbox: Mutex::default(),
            filled: Condvar::new(),
            room: Semaphore::new(DECISIONS),
            direct: AtomicBool::new(false),
            counters: Counters::default(),
        }
    }

    /// Queues a decision record, once there is room. Cancelled before that, it leaves no trace.
    /// The first of several that may write themselves leads the others.
    pub(super) async fn push_awaited(
        &self,
        line: Line,
        ticket: Arc<Ticket>,
    ) -> Result<Option<Lead<'_>>, Closed> {
        self.room.acquire().await.map_err(|_| Closed)?.forget();
        let mut inbox = self.lock();
        if inbox.work.closed {
            return Err(Closed);
        }
        inbox.work.entries.push(Entry { line, role: Role::Awaited(ticket) });
        inbox.work.awaited = true;
        if inbox.led {
            return Ok(None);
        }
        if self.direct.load(Ordering::Relaxed) {
            inbox.led = true;
            return Ok(Some(Lead(Some(self))));
        }
        self.wake(inbox);
        Ok(None)
    }

    /// Queues a record that nobody waits for, or counts it as dropped.
    pub(super) fn push_kept(&self, line: Line, after: Option<Arc<Ticket>>) {
        let mut inbox = self.lock();
        if inbox.work.closed || !inbox.kept.admit(&line) {
            drop(inbox);
            return self.lose(Lost::one_record());
        }
        inbox.work.entries.push(Entry { line, role: Role::Kept(after) });
        self.wake(inbox);
    }

    /// Counts records that never got as far as the queue.
    pub(super) fn lose(&self, lost: Lost) {
        self.lock().work.lost.add(lost);
        self.count_lost(lost);
    }

    pub(super) fn count_lost(&self, lost: Lost) {
        self.counters.dropped.add(usize::try_from(lost.count).unwrap_or(usize::MAX));
        self.counters.refused.add(usize::try_from(lost.refused).unwrap_or(usize::MAX));
    }

    /// Whether callers may write themselves, from the next record on.
    pub(super) fn set_direct(&self, direct: bool) {
        self.direct.store(direct, Ordering::Relaxed);
    }

    /// May callers write themselves?
    #[cfg(test)]
    pub(super) fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    /// Asks the writer to open its file anew.
    pub(super) fn reopen(&self) {
        let mut inbox = self.lock();
        inbox.work.reopen = true;
        self.wake(inbox);
    }

    /// Ends the writer after what is queued now and `last`.
    pub(super) fn close(&self, last: Option<Line>) {
        let mut inbox = self.lock();
        if !inbox.work.closed {
            inbox.work.closed = true;
            inbox.work.entries.extend(last.map(|line| Entry { line, role: Role::Kept(None) }));
            self.room.close();
            self.wake(inbox);
        }
    }

    /// Waits for work that no caller leads, at most `patience`.
    pub(super) fn wait(&self, patience: Duration) {
        let mut inbox = self.lock();
        if inbox.is_idle() {
            inbox.sleep = Sleep::UntilAnything;
            inbox = self.wait_while(inbox, patience, Inbox::is_idle);
        }
        // Nobody waits for kept records: they go with the next decision, if it comes soon.
        if !inbox.is_urgent() && !inbox.work.is_empty() {
            inbox.sleep = Sleep::UntilUrgent;
            inbox = self.wait_while(inbox, KEPT_PATIENCE, |inbox| !inbox.is_urgent());
        }
        inbox.sleep = Sleep::Awake;
    }

    /// Takes all there is; to be called by who has the writer. `spare` lends its memory.
    pub(super) fn take(&self, spare: Vec<Entry>) -> Work {
        let mut inbox = self.lock();
        inbox.led = false;
        inbox.kept = Load::default();
        let closed = inbox.work.closed;
        mem::replace(&mut inbox.work, Work { entries: spare, closed, ..Work::default() })
    }

    /// Gives the room of settled decision records back.
    pub(super) fn release(&self, decisions: usize) {
        self.room.add_permits(decisions);
    }

    /// The lock guards plain data that is whole between any two statements, so a panic elsewhere
    /// while it was held is no reason to stop auditing.
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while<'a>(
        &self,
        inbox: MutexGuard<'a, Inbox>,
        patience: Duration,
        mut condition: impl FnMut(&Inbox) -> bool,
    ) -> MutexGuard<'a, Inbox> {
        let waited = self.filled.wait_timeout_while(inbox, patience, |inbox| condition(inbox));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes the thread if this is what it sleeps for: a system call saved under load.
    fn wake(&self, mut inbox: MutexGuard<'_, Inbox>) {
        let due = match inbox.sleep {
            Sleep::Awake => false,
            Sleep::UntilAnything => !inbox.is_idle(),
            Sleep::UntilUrgent => inbox.is_urgent(),
        };
        if due {
            inbox.sleep = Sleep::Awake;
        }
        drop(inbox);
        if due {
            self.filled.notify_one();
        }
    }
}

impl Inbox {
    /// Is there nothing for the thread to do?
    fn is_idle(&self) -> bool {
        self.work.is_empty() || self.led && !self.is_urgent()
    }

    /// Must the thread do it now?
    fn is_urgent(&self) -> bool {
        self.work.awaited && !self.led || self.work.reopen || self.work.closed
    }
}

impl Work {
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && !self.reopen && !self.closed
    }
}
