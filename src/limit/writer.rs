//! The thread that writes `limits.ndjson`. It appends; when most of the file is outdated it writes
//! another one and puts that in its place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::clock::Now;
use super::keeper::{Batch, Keeper};
use super::line::{self, Line, ReadError};
use super::{Accounts, Counted, HostKey, LimitsError, lock};

const FILE: &str = "limits.ndjson";
/// How often exact uses are written, and a file in trouble is tried again.
const TICK: Duration = Duration::from_secs(1);
/// How often lines are taken while a file is forced to the disk.
const GLANCE: Duration = Duration::from_millis(5);
/// A file is not replaced before it has grown by this much.
const LEAST_GROWTH: u64 = 1 << 20;
/// Octets about accounts that are written at once, before others get their turn.
const SLICE: usize = 256 << 10;

/// Reads what an earlier process has left.
///
/// # Errors
/// It is there and can't be read: nobody could say what was used.
pub(super) fn load(state_dir: &Path, take: impl FnMut(Line)) -> Result<HostKey, LimitsError> {
    let file = state_dir.join(FILE);
    let opened = match File::open(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return HostKey::random().ok_or(LimitsError::Random);
        }
        opened => opened,
    };
    let read = opened.map_err(ReadError::Io).and_then(|opened| line::read(BufReader::new(opened), take));
    read.map_err(|error| match error {
        ReadError::Io(source) => LimitsError::Io { file, source },
        ReadError::Line(line) => LimitsError::Line { file, line },
    })
}

/// The writer, in its thread.
pub(super) struct Writer {
    keeper: Arc<Keeper>,
    accounts: Weak<Accounts>,
    file: PathBuf,
    /// Absent before the first is complete.
    out: Option<File>,
    size: u64,
    /// The size at which it is replaced.
    replace_at: u64,
    /// The file that is to replace it.
    draft: Option<File>,
    draft_size: u64,
    /// Accounts whose lines say more than was used, and that were open when last looked at.
    ahead: Vec<Arc<Counted>>,
}

impl Writer {
    /// Begins with a file of what was restored.
    ///
    /// # Errors
    /// It can't be written.
    pub(super) fn begin(
        state_dir: &Path,
        keeper: Arc<Keeper>,
        accounts: &Arc<Accounts>,
    ) -> Result<Self, LimitsError> {
        let file = state_dir.join(FILE);
        let failed = |source| LimitsError::Io { file: file.clone(), source };
        let mut writer = Self {
            keeper,
            accounts: Arc::downgrade(accounts),
            file: file.clone(),
            out: None,
            size: 0,
            replace_at: 0,
            draft: None,
            draft_size: 0,
            ahead: Vec::new(),
        };
        writer.replace().map_err(failed)?;
        Ok(writer)
    }

    /// Writes until the keeper is closed.
    pub(super) fn run(mut self) {
        let mut next = Instant::now() + TICK;
        loop {
            let batch = self.keeper.take(next);
            let closing = batch.closing;
            let written = self.append(batch);
            if closing || Instant::now() >= next {
                next = Instant::now() + TICK;
                self.tick(closing);
            } else if written.is_err() {
                // Only a draft says so, and none is being written.
                self.draft = None;
            }
            if closing {
                return;
            }
        }
    }

    fn tick(&mut self, closing: bool) {
        if !self.keeper.in_trouble() {
            self.settle();
        }
        if !closing && !self.keeper.in_trouble() && self.size < self.replace_at {
            return;
        }
        if let Err(error) = self.replace() {
            self.draft = None;
            if closing || self.keeper.in_trouble() {
                self.keeper.fail(&error);
            } else {
                tracing::warn!(%error, file = %self.file.display(), "the file can't be replaced, and grows");
                self.replace_at = self.size.saturating_add(LEAST_GROWTH);
            }
        }
    }

    /// Writes the exact use of accounts that have come to rest.
    fn settle(&mut self) {
        self.ahead.append(&mut self.keeper.listed());
        self.ahead.retain(|counted| !counted.settle());
        let batch = self.keeper.take(Instant::now());
        // Without a draft there is no error that is not known already.
        let _ = self.append(batch);
    }

    /// Appends to the file, and to the one that is to replace it.
    ///
    /// # Errors
    /// The latter can't be written.
    fn append(&mut self, batch: Batch) -> io::Result<()> {
        let length = u64::try_from(batch.lines.len()).unwrap_or(u64::MAX);
        if let Some(out) = self.out.as_mut().filter(|_| !self.keeper.in_trouble() && length > 0) {
            match out.write_all(&batch.lines) {
                Ok(()) => self.size += length,
                Err(error) => self.keeper.fail(&error),
            }
        }
        if let Some(draft) = &mut self.draft {
            draft.write_all(&batch.lines)?;
            self.draft_size += length;
        }
        self.keeper.wrote(batch.up_to);
        Ok(())
    }

    /// Puts a file in place that says everything once. Lines that are queued meanwhile go into both.
    fn replace(&mut self) -> io::Result<()> {
        // A process that is ending by itself has nobody left to ask.
        let Some(accounts) = self.accounts.upgrade() else { return Ok(()) };
        let draft = begin_draft(&self.file, &accounts.key)?;
        let (draft, forced) = (draft.try_clone()?, draft);
        (self.draft, self.draft_size) = (Some(draft), 0);
        self.keeper.listen();
        let all: Vec<Arc<Counted>> = lock(&accounts.counted).values().cloned().collect();
        for counted in all {
            counted.tell_all();
            if self.keeper.queued() >= SLICE {
                self.append(self.keeper.take(Instant::now()))?;
            }
        }
        let with_names = lock(&accounts.names).accounts();
        for account in with_names {
            // Queued before anything newer can be.
            let mut names = lock(&accounts.names);
            let lines = names.all(&account, Now::read());
            self.keeper.push(&account, lines);
            drop(names);
            if self.keeper.queued() >= SLICE {
                self.append(self.keeper.take(Instant::now()))?;
            }
        }
        self.append(self.keeper.take(Instant::now()))?;
        // Before it takes the old one's place, for a crash of the machine; in another thread, since
        // that takes time.
        let forcing = std::thread::Builder::new().spawn(move || forced.sync_all())?;
        while !forcing.is_finished() {
            self.append(self.keeper.take(Instant::now() + GLANCE))?;
        }
        forcing.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
        fs::rename(draft_name(&self.file), &self.file)?;
        (self.out, self.size) = (self.draft.take(), self.draft_size);
        self.replace_at = self.size.saturating_mul(2).saturating_add(LEAST_GROWTH);
        if self.keeper.recover(&self.file) {
            return Ok(());
        }
        Err(io::Error::other("too much was used while the file was written"))
    }
}

fn draft_name(file: &Path) -> PathBuf {
    file.with_extension("ndjson.new")
}

fn begin_draft(file: &Path, key: &HostKey) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let draft = options.create(true).write(true).truncate(true).mode(0o600).open(draft_name(file))?;
    line::write_head(key, &draft)?;
    Ok(draft)
}
