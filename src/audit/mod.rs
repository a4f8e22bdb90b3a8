//! The audit file: the only writer of audit events (NDJSON, schema `egret.audit/1`).
//!
//! Callers encode their record to a line and queue it; the first of them appends whatever is queued
//! with one write and then wakes the waiters (group commit), or a thread does, where the file may
//! keep it waiting. A decision is only reported as recorded after the system accepted its bytes, so
//! that killing the process loses none that was acted upon. Memory is bounded everywhere. `seq` counts
//! the records of one process, from 1, in the order of the file: a gap is a record that somebody took
//! out.
//!
//! Never written: query strings, header values, bodies, tokens, userinfo. There is no field for
//! them. Text from outside is bounded ([`Text`]) and escaped to printable ASCII.

mod attempt;
mod counters;
mod id;
mod line;
mod path;
mod queue;
mod record;
mod sink;
mod tap;
mod text;
mod ticket;
mod time;
mod writer;

#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::{oneshot, watch};

pub use attempt::{Attempt, Flow};
pub use counters::{Counter, Counters};
pub use id::AttemptId;
pub use path::{PathKey, PathKeyError, PathRecord, PathRecorder};
pub use record::{
    ADDRESS_LIMIT, Addresses, Closing, Endpoint, Event, IdentitySource, Limit, Outcome, Protocol, Redirect,
    Reload, Request, Revoke, SCHEMA, Sandbox, Start, Verdict,
};
pub use tap::{FileEnd, Tap, Written};
pub use text::{TEXT_LIMIT, Text};
pub use time::Timestamp;

use id::IdSource;
use line::Line;
use queue::{Lead, Lost, Queue};
use record::{EventRecord, OwnEvent};
use sink::Sink;
use writer::Writer;

/// What happens to traffic whose record can't be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// It is refused.
    #[default]
    Deny,
    /// It flows; its records are kept as far as there is room.
    Allow,
}

/// How the audit file is written.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The file, a pipe or device, or `-` for the standard output.
    pub file: PathBuf,
    /// What happens to traffic meanwhile when it can't be written.
    pub on_failure: OnFailure,
    /// Whether every batch is forced to the disk (fdatasync): survives a crash of the machine,
    /// at the price of a disk write per batch.
    pub sync: bool,
    /// How long a decision may wait for its record.
    pub patience: Duration,
    /// Who hears of what was written.
    pub tap: Option<Arc<dyn Tap>>,
}

impl Settings {
    /// The defaults for a file.
    #[must_use]
    pub fn new(file: impl Into<PathBuf>) -> Self {
        let (file, patience) = (file.into(), Duration::from_secs(5));
        Self { file, on_failure: OnFailure::Deny, sync: false, patience, tap: None }
    }
}

/// The audit could not begin.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file can't be opened for appending.
    #[error("audit file {}: {source}; create its directory and let egret write there, or change audit.file", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system gave no thread.
    #[error("audit writer thread: {0}; raise the limit on threads")]
    Thread(io::Error),
    /// The first record could not be encoded.
    #[error("audit start record: {0}")]
    Encoding(#[from] serde_json::Error),
}

/// A record is not in the audit file.
#[derive(Debug, thiserror::Error)]
pub enum AuditUnavailable {
    /// Writing failed.
    #[error("the audit file can't be written; see the log for the cause")]
    NotWritten,
    /// The writer did not answer in time.
    #[error("the audit file did not take the record in time; see whether its disk or reader hangs")]
    TimedOut,
    /// The audit was shut down.
    #[error("the audit is shut down")]
    Stopped,
    /// The record could not be encoded.
    #[error("the audit record can't be encoded: {0}")]
    Encoding(#[from] serde_json::Error),
    /// The attempt's verdict is `deny`: nothing to permit.
    #[error("an attempt whose verdict is deny was to be permitted; this is a defect of the program")]
    Denied,
    /// Some records that were queued at the shutdown are missing.
    #[error("some audit records could not be written before the shutdown")]
    Incomplete,
}

/// The handle by which the rest of the program records events. Clones share one writer.
#[derive(Clone, Debug)]
pub struct Audit {
    shared: Arc<Shared>,
}

/// What the handle and every attempt share.
#[derive(Debug)]
struct Shared {
    queue: Arc<Queue>,
    ids: IdSource,
    health: watch::Sender<bool>,
    on_failure: OnFailure,
    patience: Duration,
    writer: Arc<Mutex<Writer>>,
    thread: Mutex<Option<Thread>>,
}

#[derive(Debug)]
struct Thread {
    handle: thread::JoinHandle<()>,
    /// Sent at its end: whether everything queued was written.
    complete: oneshot::Receiver<bool>,
}

impl Audit {
    /// Opens the file, starts the writer thread and queues the `start` record.
    ///
    /// # Errors
    /// The file can't be opened. A pipe without a reader is no error: the audit is unhealthy
    /// until there is one.
    pub fn open(settings: Settings, start: Start) -> Result<Self, OpenError> {
        let Settings { file, on_failure, sync, patience, tap } = settings;
        let mut sink = Sink::new(&file, sync);
        let healthy = match sink.ensure() {
            Ok(()) => true,
            Err(error) if rustix::io::Errno::from_io_error(&error) == Some(rustix::io::Errno::NXIO) => false,
            Err(source) => return Err(OpenError::File { file, source }),
        };
        let first = OwnEvent::Start { schema: SCHEMA, pid: std::process::id(), start };
        let first = Line::encode(&EventRecord { ts: Timestamp::now(), event: &first })?;

        let queue = Arc::new(Queue::new());
        queue.push_kept(first, None);
        let health = watch::Sender::new(healthy);
        let writer =
            Writer::new(Arc::clone(&queue), sink, health.clone(), on_failure, patience, file).tapped(tap);
        let writer = Arc::new(Mutex::new(writer));
        let (ended, complete) = oneshot::channel();
        let (threads_writer, threads_queue) = (Arc::clone(&writer), Arc::clone(&queue));
        let handle = thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || {
                // Nobody listens if every handle was dropped without a shutdown.
                let _ = ended.send(Writer::run(&threads_writer, &threads_queue));
            })
            .map_err(OpenError::Thread)?;
        let thread = Mutex::new(Some(Thread { handle, complete }));
        let shared = Shared { queue, ids: IdSource::new(), health, on_failure, patience, writer, thread };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Begins an attempt.
    pub fn begin(&self, request: Request) -> Attempt {
        Attempt::new(Arc::clone(&self.shared), request)
    }

    /// Records an event. Does not wait: the record is kept until it can be written.
    pub fn event(&self, event: &Event) {
        match Line::encode(&EventRecord { ts: Timestamp::now(), event }) {
            Ok(line) => self.shared.queue.push_kept(line, None),
            Err(_) => self.shared.queue.lose(Lost::one_record()),
        }
    }

    /// Opens the file anew by its name, after logrotate renamed it.
    pub fn reopen(&self) {
        self.shared.queue.reopen();
    }

    /// Whether the last attempt to write, at most about a second ago, was successful.
    #[must_use]
    pub fn healthy(&self) -> bool {
        *self.shared.health.borrow()
    }

    /// Follows [`healthy`](Self::healthy).
    #[must_use]
    pub fn health(&self) -> watch::Receiver<bool> {
        self.shared.health.subscribe()
    }

    /// Numbers for metrics.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.shared.queue.counters
    }

    /// Writes what is queued and the `stop` record, and ends the writer thread. Later decisions
    /// are [`AuditUnavailable::Stopped`]; a second call does nothing.
    ///
    /// # Errors
    /// Not everything could be written, or the file hung for twice the patience.
    pub async fn shutdown(&self) -> Result<(), AuditUnavailable> {
        let stop = OwnEvent::Stop { pid: std::process::id() };
        let stop = Line::encode(&EventRecord { ts: Timestamp::now(), event: &stop })?;
        self.shared.queue.close(Some(stop));
        let thread = self.shared.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Thread { handle, complete }) = thread else { return Ok(()) };
        // Twice, for the writer may just have begun to wait for a full pipe. A thread that hangs
        // in a system call is left to the end of the process.
        let complete = tokio::time::timeout(self.shared.patience.saturating_mul(2), complete).await;
        let complete = complete.map_err(|_| AuditUnavailable::TimedOut)?;
        let joined = handle.join();
        if complete == Ok(true) && joined.is_ok() { Ok(()) } else { Err(AuditUnavailable::Incomplete) }
    }
}

impl Shared {
    /// How long a decision waits. Where failures are allowed, a sink that is known to be broken
    /// isn't waited for.
    fn patience(&self) -> Duration {
        match self.on_failure {
            OnFailure::Allow if !*self.health.borrow() => Duration::ZERO,
            _ => self.patience,
        }
    }

    /// Writes for all callers whose records are queued by the time that everything else which is
    /// ready has run.
    async fn write(&self, lead: Lead<'_>) {
        tokio::task::yield_now().await;
        // Who else has the writer may be waiting for the disk: the thread waits along.
        if let Ok(mut writer) = self.writer.try_lock() {
            writer.write_now();
            lead.done();
        }
    }

    /// A decision waited in vain; the writer itself says when it is well again.
    fn stalled(&self) {
        if self.health.send_if_modified(|healthy| std::mem::replace(healthy, false)) {
            tracing::error!("the audit writer hangs: see whether the audit file's disk or reader does");
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.queue.close(None);
    }
}
