//! The one writer of audit records: takes what is queued, writes it in batches, tells the waiters,
//! keeps what must not be lost while the file can't be written.
//!
//! It belongs to whoever has its lock. While the file is a healthy one on a disk that answers at
//! once, that is a caller, who writes for all that are ready with it and is spared two changes of
//! threads; else it is the thread, which may wait.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::line::Line;
use super::queue::{Entry, Load, Lost, Queue, Role, Work};
use super::record::{EventRecord, OwnEvent};
use super::sink::{Progress, Sink};
use super::tap::{Tap, Written};
use super::ticket::Settled;
use super::{OnFailure, Timestamp};

/// A write that takes longer than this shows that the disk does not answer at once.
const SLOW: Duration = Duration::from_millis(10);
/// How long callers then leave the writing to the thread.
const SLOW_FOR: Duration = Duration::from_secs(2);

/// How often the file is looked at, and a broken one tried again, when nothing is queued.
const IDLE_CHECK: Duration = Duration::from_secs(1);
/// Bytes of one write, roughly; bounds the buffer and the work that a failure throws away.
const BATCH_BYTES: usize = 256 << 10;
/// Failures are logged at most this often.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Writer {
    queue: Arc<Queue>,
    sink: Sink,
    health: watch::Sender<bool>,
    on_failure: OnFailure,
    /// How long a pipe may be full.
    patience: Duration,
    /// For messages.
    file: PathBuf,
    /// Sequence number of the last record in the file.
    seq: u64,
    /// Records that nobody waits for, from earlier rounds that failed.
    backlog: VecDeque<Entry>,
    lost: Lost,
    complained: Option<Instant>,
    buffer: Vec<u8>,
    ends: Vec<usize>,
    spare: Vec<Entry>,
    /// When a write last was slow.
    slow: Option<Instant>,
    tap: Option<Arc<dyn Tap>>,
}

impl Writer {
    pub(super) fn new(
        queue: Arc<Queue>,
        sink: Sink,
        health: watch::Sender<bool>,
        on_failure: OnFailure,
        patience: Duration,
        file: PathBuf,
    ) -> Self {
        Self {
            queue,
            sink,
            health,
            on_failure,
            patience,
            file,
            seq: 0,
            backlog: VecDeque::new(),
            lost: Lost::default(),
            complained: None,
            buffer: Vec::new(),
            ends: Vec::new(),
            spare: Vec::new(),
            slow: None,
            tap: None,
        }
    }

    /// Tells somebody of what is written.
    pub(super) fn tapped(self, tap: Option<Arc<dyn Tap>>) -> Self {
        Self { tap, ..self }
    }

    /// Works until the queue is closed; true if nothing that was queued is missing in the file.
    pub(super) fn run(writer: &Mutex<Self>, queue: &Queue) -> bool {
        loop {
            queue.wait(IDLE_CHECK);
            // A writer that panicked is in no known state: whoever waits for it is refused in time.
            let Ok(mut writer) = writer.lock() else { return false };
            let mut work = queue.take(mem::take(&mut writer.spare));
            writer.round(&mut work);
            if work.closed {
                writer.sink.close();
                return writer.backlog.is_empty() && writer.lost.since.is_none();
            }
            writer.spare = work.entries;
        }
    }

    /// Writes what is queued, in a caller's thread.
    pub(super) fn write_now(&mut self) {
        let mut work = self.queue.take(mem::take(&mut self.spare));
        if work.entries.is_empty() && !work.reopen {
            // The thread was faster. What it was not told of is still owed to the file.
            self.lost.add(work.lost);
        } else {
            self.round(&mut work);
        }
        self.spare = work.entries;
    }

    /// One round; leaves `work.entries` empty.
    fn round(&mut self, work: &mut Work) {
        if work.reopen {
            self.sink.close();
        }
        self.lost.add(work.lost);
        let decisions = work.entries.iter().filter(|entry| matches!(entry.role, Role::Awaited(_))).count();
        let mut entries = mem::take(&mut self.backlog);
        if let Some(gap) = self.gap() {
            entries.push_back(gap);
        }
        entries.extend(work.entries.drain(..));
        entries.retain(is_wanted);

        if entries.is_empty() {
            let error = self.sink.ensure().err();
            self.publish(error.as_ref());
        } else {
            let began = Instant::now();
            self.write(&mut entries);
            let ended = Instant::now();
            if ended.duration_since(began) > SLOW {
                self.slow = Some(ended);
            }
            self.keep(entries);
        }
        self.queue.release(decisions);
        self.queue.set_direct(self.answers_at_once());
    }

    /// May a caller's thread be trusted to the file?
    fn answers_at_once(&self) -> bool {
        self.slow.is_none_or(|slow| slow.elapsed() > SLOW_FOR)
            && self.backlog.is_empty()
            && self.sink.is_plain()
            && *self.health.borrow()
    }

    /// Writes entries batch by batch, taking out what is in the file, until one fails.
    fn write(&mut self, entries: &mut VecDeque<Entry>) {
        // While the sink is broken one look at it must do, or every round would take that long.
        let patience = if *self.health.borrow() { self.patience } else { Duration::ZERO };
        while !entries.is_empty() {
            self.compose(entries);
            let progress = self.sink.append(&self.buffer, &self.ends, patience);
            self.count(&progress);
            self.tell(&progress);
            // Before anybody is woken: who is refused finds the audit unhealthy, and who is
            // permitted after a failure finds it healthy again.
            self.publish(progress.error.as_ref());
            self.seq = self.seq.saturating_add(progress.lines as u64);
            for entry in entries.drain(..progress.lines) {
                match entry.role {
                    Role::Awaited(ticket) => ticket.settle(Settled::Recorded),
                    Role::Kept(_) => {}
                    Role::Gap => self.lost = Lost::default(),
                }
            }
            if progress.error.is_some() {
                return;
            }
        }
    }

    fn count(&self, progress: &Progress) {
        let counters = &self.queue.counters;
        counters.batches.add(1);
        counters.failures.add(usize::from(progress.error.is_some()));
        counters.records.add(progress.lines);
        let last = progress.lines.checked_sub(1).and_then(|last| self.ends.get(last));
        counters.bytes.add(last.copied().unwrap_or(0));
    }

    fn tell(&self, progress: &Progress) {
        let last = progress.lines.checked_sub(1).and_then(|last| self.ends.get(last));
        if let (Some(tap), Some(lines)) = (&self.tap, last.and_then(|&end| self.buffer.get(..end))) {
            tap.written(&Written { lines, records: progress.lines, end: progress.end });
        }
    }

    /// Fills the buffer with the first lines, numbered.
    fn compose(&mut self, entries: &VecDeque<Entry>) {
        self.buffer.clear();
        self.buffer.shrink_to(2 * BATCH_BYTES);
        self.ends.clear();
        let mut seq = self.seq;
        for entry in entries {
            seq = seq.saturating_add(1);
            entry.line.write_to(&mut self.buffer, seq);
            self.ends.push(self.buffer.len());
            if self.buffer.len() >= BATCH_BYTES {
                break;
            }
        }
    }

    /// Decides about entries that could not be written.
    fn keep(&mut self, failed: VecDeque<Entry>) {
        let mut load = Load::default();
        for Entry { line, role } in failed {
            let after = match (role, self.on_failure) {
                (Role::Gap, _) => continue,
                (Role::Awaited(ticket), OnFailure::Deny) => {
                    self.lose(Lost::one_refused());
                    ticket.settle(Settled::Lost);
                    continue;
                }
                (Role::Awaited(ticket), OnFailure::Allow) => {
                    ticket.settle(Settled::Recorded);
                    None
                }
                (Role::Kept(after), _) => after,
            };
            if load.admit(&line) {
                self.backlog.push_back(Entry { line, role: Role::Kept(after) });
            } else {
                self.lose(Lost::one_record());
            }
        }
    }

    fn lose(&mut self, lost: Lost) {
        self.lost.add(lost);
        self.queue.count_lost(lost);
    }

    /// The record that accounts for what is missing, if anything is.
    fn gap(&self) -> Option<Entry> {
        let Lost { count, refused, since } = self.lost;
        let event = OwnEvent::Dropped { count, refused, since: since? };
        let line = Line::encode(&EventRecord { ts: Timestamp::now(), event: &event }).ok()?;
        Some(Entry { line, role: Role::Gap })
    }

    /// Publishes the state of the sink and tells the operator of changes.
    fn publish(&mut self, error: Option<&io::Error>) {
        let healthy = error.is_none();
        let changed = self.health.send_if_modified(|state| mem::replace(state, healthy) != healthy);
        let file = self.file.display();
        let Some(error) = error else {
            if changed {
                tracing::info!(%file, "the audit file can be written again");
            }
            return;
        };
        let now = Instant::now();
        if self.complained.is_none_or(|last| now.duration_since(last) >= COMPLAINT_INTERVAL) {
            self.complained = Some(now);
            tracing::error!(
                %file,
                %error,
                "the audit file can't be written: free space or repair it; it is tried again every second"
            );
        }
    }
}

/// False for records that their owner gave up, and for what would follow a lost record.
fn is_wanted(entry: &Entry) -> bool {
    match &entry.role {
        Role::Awaited(ticket) => ticket.take(),
        Role::Kept(Some(ticket)) => !ticket.is_lost(),
        Role::Kept(None) | Role::Gap => true,
    }
}
