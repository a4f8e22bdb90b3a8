//! The ledger: which destinations each sandbox touched, folded from the audit's records.
//!
//! One thread reads the audit file in its order and keeps the counts in an embedded store, together
//! with the place up to which it read, in one transaction: after a crash it reads on from there,
//! and the two never disagree. Requests never write here and never wait for it. Where the audit
//! goes to a pipe there is no file to read, and what the writer tells is folded as it comes.

mod follow;
mod inbox;
mod recent;
mod record;
mod row;
mod siblings;
mod sighting;
mod since;
mod store;
mod worker;

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::audit::Tap;

pub use recent::{Filter, Listener, Message, RECENT_DECISIONS};
pub use record::Verdict;
pub use row::{Counts, DomainRow, NO_HOST, OTHERS, SandboxRow, UNKNOWN};
pub use sighting::{NotARecord, Sighting};
pub use since::read_since;

use follow::Reach;
use inbox::Inbox;
use recent::Recent;
use store::Store;

/// How long a question waits until what was written before it is folded.
const SETTLING: Duration = Duration::from_secs(2);
/// How long the end of the process waits for the last fold.
const STOPPING: Duration = Duration::from_secs(5);

/// How much the ledger holds. Beyond it, requests count in the row of the others.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Destinations of one sandbox.
    pub rows_per_sandbox: u64,
    /// Sandboxes.
    pub sandboxes: u64,
    /// Requests that are open at once; of older ones the bytes are not counted.
    pub open: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { rows_per_sandbox: 10_000, sandboxes: 100_000, open: 200_000 }
    }
}

/// Where the ledger is and what it reads.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder of the store.
    pub state_dir: PathBuf,
    /// The audit file, a pipe or device, or `-`.
    pub audit_file: PathBuf,
    /// Its size.
    pub limits: Limits,
}

/// The ledger can't be used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Another process has it.
    #[error(
        "the ledger {} is in use by another process; ask a running proxy through its control interface, or give each proxy a state.dir of its own",
        file.display()
    )]
    InUse {
        /// The store.
        file: PathBuf,
    },
    /// It can't be opened or made.
    #[error(
        "the ledger {} can't be opened: {source}; make the state directory writable for egret, or, if the file is damaged, delete it: it begins anew with the audit file",
        file.display()
    )]
    Open {
        /// The store.
        file: PathBuf,
        /// What the store said.
        source: Box<redb::Error>,
    },
    /// It can't be read or written.
    #[error("the ledger {}: {source}; free space or repair the disk", file.display())]
    Store {
        /// The store.
        file: PathBuf,
        /// What the store said.
        source: Box<redb::Error>,
    },
    /// The audit file can't be read.
    #[error("the ledger can't read the audit file {}: {source}; let egret read it", file.display())]
    Audit {
        /// The audit file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system gave no thread.
    #[error("ledger thread: {0}; raise the limit on threads")]
    Thread(io::Error),
}

/// What was found wrong with the audit file, counted since the ledger began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    /// Lines that are no records.
    pub damaged_lines: u64,
    /// Numbers that the records jump over.
    pub missing_records: u64,
    /// Closing records whose decision is not known.
    pub unmatched_closes: u64,
    /// Files that were gone, or had lost their end, before they were read.
    pub gaps: u64,
}

impl Notes {
    fn plus(self, more: &Self) -> Self {
        Self {
            damaged_lines: self.damaged_lines.saturating_add(more.damaged_lines),
            missing_records: self.missing_records.saturating_add(more.missing_records),
            unmatched_closes: self.unmatched_closes.saturating_add(more.unmatched_closes),
            gaps: self.gaps.saturating_add(more.gaps),
        }
    }
}

/// Numbers for metrics.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// Rows in the store.
    pub rows: u64,
    /// Records that were written and are not folded yet.
    pub lag: u64,
}

/// The handle. Clones share one ledger.
#[derive(Clone, Debug)]
pub struct Ledger {
    shared: Arc<Shared>,
}

/// What the handle and the thread share.
#[derive(Debug)]
struct Shared {
    store: Store,
    inbox: Arc<Inbox>,
    recent: Recent,
    audit_file: PathBuf,
    /// Records told of that are folded; `None` until everything older is.
    folded: watch::Sender<Option<u64>>,
    rows: AtomicU64,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

impl Ledger {
    /// Opens the store, or makes it. Call it before the audit is opened: what stands in the file
    /// now is known to be whole.
    ///
    /// # Errors
    /// Another process has the store, or it can't be read.
    pub fn open(settings: Settings) -> Result<Self, LedgerError> {
        let Settings { state_dir, audit_file, limits } = settings;
        let store = Store::open(&state_dir, limits)?;
        let live = is_live(&audit_file);
        if live {
            tracing::warn!(
                file = %audit_file.display(),
                "the audit goes to no file, so the ledger can't catch up: what it misses stays missing"
            );
        }
        let inbox = Arc::new(Inbox::new(live, Reach::now(&audit_file)));
        let rows = AtomicU64::new(store.len()?);
        let folded = watch::Sender::new(None);
        let (recent, thread) = (Recent::default(), Mutex::default());
        Ok(Self { shared: Arc::new(Shared { store, inbox, recent, audit_file, folded, rows, thread }) })
    }

    /// Begins to fold, in a thread of its own.
    ///
    /// # Errors
    /// The system gave no thread.
    pub fn start(&self) -> Result<(), LedgerError> {
        let shared = Arc::clone(&self.shared);
        let spawned = thread::Builder::new().name("ledger".to_owned()).spawn(move || worker::run(&shared));
        let handle = spawned.map_err(LedgerError::Thread)?;
        *self.shared.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
        Ok(())
    }

    /// Folds what the audit file holds now, without a thread, for a program that is no proxy.
    ///
    /// # Errors
    /// The audit file or the store can't be read.
    pub fn catch_up(&self) -> Result<(), LedgerError> {
        worker::catch_up(&self.shared)
    }

    /// What the audit's writer is to tell of its records.
    #[must_use]
    pub fn tap(&self) -> Arc<dyn Tap> {
        Arc::<Inbox>::clone(&self.shared.inbox)
    }

    /// Waits until everything that was written before is folded, but not for long.
    pub async fn settle(&self) {
        let told = self.shared.inbox.told();
        let mut folded = self.shared.folded.subscribe();
        self.shared.inbox.hurry();
        let settled = folded.wait_for(|folded| folded.is_some_and(|folded| folded >= told));
        // Whoever asked gets what there is; the lag is a number of its own.
        let _ = tokio::time::timeout(SETTLING, settled).await;
    }

    /// Every sandbox seen, in order of its ID. Reads the disk.
    ///
    /// # Errors
    /// The store can't be read.
    pub fn sandboxes(&self) -> Result<Vec<(String, SandboxRow)>, LedgerError> {
        self.shared.store.sandboxes("", usize::MAX)
    }

    /// Sandboxes seen whose ID comes after this one, in order; so many at most. Reads the disk.
    ///
    /// # Errors
    /// The store can't be read.
    pub fn sandboxes_after(
        &self,
        after: &str,
        most: usize,
    ) -> Result<Vec<(String, SandboxRow)>, LedgerError> {
        self.shared.store.sandboxes(after, most)
    }

    /// A sandbox, if it was seen. Reads the disk.
    ///
    /// # Errors
    /// The store can't be read.
    pub fn sandbox(&self, id: &str) -> Result<Option<SandboxRow>, LedgerError> {
        self.shared.store.sandbox(id)
    }

    /// The rows of a sandbox; `None` if it was never seen. Reads the disk.
    ///
    /// # Errors
    /// The store can't be read.
    pub fn domains(&self, sandbox: &str) -> Result<Option<Vec<DomainRow>>, LedgerError> {
        self.shared.store.domains(sandbox)
    }

    /// What was found wrong with the audit file. Reads the disk.
    ///
    /// # Errors
    /// The store can't be read.
    pub fn notes(&self) -> Result<Notes, LedgerError> {
        self.shared.store.notes()
    }

    /// The latest decisions that fit, newest first, as JSON; at most [`RECENT_DECISIONS`].
    #[must_use]
    pub fn decisions(&self, filter: &Filter) -> Vec<Arc<str>> {
        self.shared.recent.decisions(filter)
    }

    /// Listens to records as they are folded; `None` if too many do.
    #[must_use]
    pub fn listen(&self) -> Option<Listener> {
        let listener = self.shared.recent.listen();
        // The thread may be gathering at the pace of nobody listening.
        self.shared.inbox.hurry();
        listener
    }

    /// Numbers for metrics.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        let folded = self.shared.folded.borrow().unwrap_or(0);
        let lag = self.shared.inbox.told().saturating_sub(folded);
        Numbers { rows: self.shared.rows.load(Ordering::Relaxed), lag }
    }

    /// Folds what was written and ends the thread. What it does not manage in time is folded at the
    /// next start.
    pub async fn shutdown(&self) {
        self.shared.inbox.close();
        let thread = self.shared.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        let joined = tokio::task::spawn_blocking(move || thread.join());
        if tokio::time::timeout(STOPPING, joined).await.is_err() {
            tracing::warn!("the ledger is behind; it catches up at the next start");
        }
    }
}

/// Is there no file that could be read again?
fn is_live(audit_file: &Path) -> bool {
    audit_file == Path::new("-") || std::fs::metadata(audit_file).is_ok_and(|meta| !meta.is_file())
}
