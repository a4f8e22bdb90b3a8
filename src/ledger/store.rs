//! The ledger on disk: rows, sandboxes, what is open, and how far the audit file was folded, all
//! changed in one transaction. Knows nothing of files but its own.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::ops::Bound;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use redb::backends::FileBackend;
use redb::{
    Database, DatabaseError, ReadOnlyTable, ReadableDatabase, ReadableTable, ReadableTableMetadata, Table,
    TableDefinition, WriteTransaction,
};

use super::follow::Position;
use super::record::{Decision, Record, What};
use super::row::{Counts, DomainRow, Key, NO_HOST, OTHERS, SandboxRow, UNKNOWN};
use super::{LedgerError, Limits, Notes};

const FILE: &str = "ledger.redb";
/// Memory for pages of the database.
const CACHE_BYTES: usize = 16 << 20;

/// (sandbox, host, port) → [`Counts`] as JSON.
const ROWS: TableDefinition<'_, RowKey, &[u8]> = TableDefinition::new("rows");
/// Sandbox → [`SandboxRow`] as JSON.
const SANDBOXES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("sandboxes");
/// Audit ID of what is open → its row. IDs sort by time.
const OPEN: TableDefinition<'_, &str, RowKey> = TableDefinition::new("open");
/// `position` and `notes`, as JSON.
const STATE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("state");
const POSITION: &str = "position";
const NOTES: &str = "notes";

type RowKey = (&'static str, &'static str, u16);

/// The store. One process at a time has it.
#[derive(Debug)]
pub(super) struct Store {
    /// Absent if it could not be opened again after an error.
    database: RwLock<Option<Database>>,
    limits: Limits,
    file: PathBuf,
}

impl Store {
    /// Opens the store in the state directory, or makes it.
    pub(super) fn open(state_dir: &Path, limits: Limits) -> Result<Self, LedgerError> {
        let file = state_dir.join(FILE);
        let store = Self { database: RwLock::new(Some(open(&file)?)), limits, file };
        // Readers can then rely on the tables.
        store.write(|transaction| {
            transaction.open_table(ROWS)?;
            transaction.open_table(SANDBOXES)?;
            transaction.open_table(OPEN)?;
            transaction.open_table(STATE)?;
            Ok(())
        })?;
        Ok(store)
    }

    /// Closes and opens the file: after an error of the disk redb serves nobody until then.
    pub(super) fn reopen(&self) -> Result<(), LedgerError> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        // It can't be opened twice, so the old one goes first.
        *database = None;
        *database = Some(open(&self.file)?);
        Ok(())
    }

    /// Folds records, in order, and notes that the file was read up to `position`.
    pub(super) fn fold<'a>(
        &self,
        records: impl Iterator<Item = &'a Record>,
        notes: &Notes,
        position: Option<&Position>,
    ) -> Result<(), LedgerError> {
        self.write(|transaction| {
            let mut batch = Batch {
                rows: transaction.open_table(ROWS)?,
                sandboxes: transaction.open_table(SANDBOXES)?,
                open: transaction.open_table(OPEN)?,
                limits: self.limits,
                changed_rows: HashMap::new(),
                changed_sandboxes: HashMap::new(),
                opened: HashMap::new(),
                unmatched: 0,
            };
            for record in records {
                batch.fold(record)?;
            }
            let unmatched = batch.finish()?;
            let mut state = transaction.open_table(STATE)?;
            let total: Notes = state.get(NOTES)?.map(|found| decode(found.value())).unwrap_or_default();
            let total = total.plus(notes).plus(&Notes { unmatched_closes: unmatched, ..Notes::default() });
            state.insert(NOTES, encode(&total).as_slice())?;
            if let Some(position) = position {
                state.insert(POSITION, encode(position).as_slice())?;
            }
            Ok(())
        })
    }

    /// How far the audit file was folded.
    pub(super) fn position(&self) -> Result<Option<Position>, LedgerError> {
        self.read(|transaction| {
            let found = transaction.open_table(STATE)?.get(POSITION)?;
            Ok(found.and_then(|found| serde_json::from_slice(found.value()).ok()))
        })
    }

    /// What was found wrong with the audit so far.
    pub(super) fn notes(&self) -> Result<Notes, LedgerError> {
        self.read(|transaction| {
            let found = transaction.open_table(STATE)?.get(NOTES)?;
            Ok(found.map(|found| decode(found.value())).unwrap_or_default())
        })
    }

    /// Number of rows.
    pub(super) fn len(&self) -> Result<u64, LedgerError> {
        self.read(|transaction| Ok(transaction.open_table(ROWS)?.len()?))
    }

    /// Sandboxes seen whose ID comes after this one, in order; so many at most.
    pub(super) fn sandboxes(
        &self,
        after: &str,
        most: usize,
    ) -> Result<Vec<(String, SandboxRow)>, LedgerError> {
        self.read(|transaction| {
            let table = transaction.open_table(SANDBOXES)?;
            let mut out = Vec::new();
            for entry in table.range::<&str>((Bound::Excluded(after), Bound::Unbounded))?.take(most) {
                let (id, row) = entry?;
                out.push((id.value().to_owned(), decode(row.value())));
            }
            Ok(out)
        })
    }

    /// A sandbox, if it was seen.
    pub(super) fn sandbox(&self, id: &str) -> Result<Option<SandboxRow>, LedgerError> {
        self.read(|transaction| {
            let found = transaction.open_table(SANDBOXES)?.get(id)?;
            Ok(found.map(|found| decode(found.value())))
        })
    }

    /// The rows of a sandbox, in order of host and port; `None` if it was never seen.
    pub(super) fn domains(&self, sandbox: &str) -> Result<Option<Vec<DomainRow>>, LedgerError> {
        self.read(|transaction| {
            if transaction.open_table(SANDBOXES)?.get(sandbox)?.is_none() {
                return Ok(None);
            }
            let table: ReadOnlyTable<RowKey, &[u8]> = transaction.open_table(ROWS)?;
            let mut out = Vec::new();
            for entry in table.range((sandbox, "", 0)..)? {
                let (key, counts) = entry?;
                let (of, host, port) = key.value();
                if of != sandbox {
                    break;
                }
                let port = (port != 0).then_some(port);
                let (sandbox, host) = (of.to_owned(), host.to_owned());
                out.push(DomainRow { sandbox, host, port, counts: decode(counts.value()) });
            }
            Ok(Some(out))
        })
    }

    fn write(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), LedgerError> {
        self.with(|database| {
            let transaction = database.begin_write()?;
            change(&transaction)?;
            transaction.commit()?;
            Ok(())
        })
    }

    fn read<T>(
        &self,
        look: impl FnOnce(&redb::ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, LedgerError> {
        self.with(|database| look(&database.begin_read()?))
    }

    fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, LedgerError> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let result = database.as_ref().map_or(Err(redb::Error::DatabaseClosed), work);
        result.map_err(|error| self.failed(error))
    }

    fn failed(&self, source: redb::Error) -> LedgerError {
        LedgerError::Store { file: self.file.clone(), source: Box::new(source) }
    }
}

fn open(file: &Path) -> Result<Database, LedgerError> {
    let create = || {
        // As private as the audit file that it is made from.
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o640).open(file)?;
        Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(FileBackend::new(open)?)
    };
    match create() {
        Ok(database) => Ok(database),
        Err(DatabaseError::DatabaseAlreadyOpen) => Err(LedgerError::InUse { file: file.to_owned() }),
        Err(error) => Err(LedgerError::Open { file: file.to_owned(), source: Box::new(error.into()) }),
    }
}

/// One transaction's work: rows that change are read once and written once.
struct Batch<'a> {
    rows: Table<'a, RowKey, &'static [u8]>,
    sandboxes: Table<'a, &'static str, &'static [u8]>,
    open: Table<'a, &'static str, RowKey>,
    limits: Limits,
    changed_rows: HashMap<Key, Counts>,
    changed_sandboxes: HashMap<String, SandboxRow>,
    /// What was opened and not closed within the batch: most never reaches the disk.
    opened: HashMap<String, Key>,
    unmatched: u64,
}

impl Batch<'_> {
    fn fold(&mut self, record: &Record) -> Result<(), redb::Error> {
        match &record.what {
            What::Decision(decision) => self.decided(&record.ts, decision),
            What::Close { id, bytes_up, bytes_down, reason } => {
                let Some(key) = self.take_open(id)? else {
                    self.unmatched += 1;
                    return Ok(());
                };
                let count = |counts: &mut Counts| counts.closed(&record.ts, reason, *bytes_up, *bytes_down);
                self.change(&key, count)
            }
            What::Start => {
                self.opened.clear();
                self.open.retain(|_, _| false)?;
                Ok(())
            }
            What::Other => Ok(()),
        }
    }

    fn decided(&mut self, ts: &str, decision: &Decision) -> Result<(), redb::Error> {
        let key = self.key_for(decision)?;
        if decision.opens {
            self.opened.insert(decision.id.clone(), key.clone());
        }
        self.change(&key, |counts| counts.decided(ts, decision.verdict, &decision.reason))
    }

    /// The row that a decision counts in: its own, or that of the others beyond the limits.
    fn key_for(&mut self, decision: &Decision) -> Result<Key, redb::Error> {
        let sandbox = decision.sandbox.as_deref().unwrap_or(UNKNOWN);
        let (host, port) = match &decision.destination {
            Some((host, port)) => (host.as_str(), *port),
            None => (NO_HOST, 0),
        };
        let known = self.sandbox(sandbox)?;
        let domains = known.domains;
        if domains == 0 && self.sandboxes.len()? >= self.limits.sandboxes {
            return Ok(Key::others(OTHERS));
        }
        let key = Key { sandbox: sandbox.to_owned(), host: host.to_owned(), port };
        let full = domains >= self.limits.rows_per_sandbox;
        if full && !self.changed_rows.contains_key(&key) && self.stored_row(&key)?.is_none() {
            return Ok(Key::others(sandbox));
        }
        Ok(key)
    }

    fn change(&mut self, key: &Key, count: impl Fn(&mut Counts)) -> Result<(), redb::Error> {
        match self.changed_rows.get_mut(key) {
            Some(row) => count(row),
            None => {
                let found = self.stored_row(key)?;
                if found.is_none() {
                    self.add_row(&key.sandbox)?;
                }
                count(self.changed_rows.entry(key.clone()).or_insert(found.unwrap_or_default()));
            }
        }
        count(&mut self.sandbox(&key.sandbox)?.counts);
        Ok(())
    }

    fn stored_row(&self, key: &Key) -> Result<Option<Counts>, redb::Error> {
        let found = self.rows.get((key.sandbox.as_str(), key.host.as_str(), key.port))?;
        Ok(found.map(|found| decode(found.value())))
    }

    fn add_row(&mut self, id: &str) -> Result<(), redb::Error> {
        let sandbox = self.sandbox(id)?;
        sandbox.domains += 1;
        if sandbox.domains == 1 {
            // At once, so that the table's length is the number of sandboxes.
            self.sandboxes.insert(id, [].as_slice())?;
        }
        Ok(())
    }

    /// A sandbox as it stands now; without domains if it is new.
    fn sandbox(&mut self, id: &str) -> Result<&mut SandboxRow, redb::Error> {
        if !self.changed_sandboxes.contains_key(id) {
            let found = self.sandboxes.get(id)?.map(|found| decode(found.value())).unwrap_or_default();
            self.changed_sandboxes.insert(id.to_owned(), found);
        }
        Ok(self.changed_sandboxes.entry(id.to_owned()).or_default())
    }

    fn take_open(&mut self, id: &str) -> Result<Option<Key>, redb::Error> {
        if let Some(key) = self.opened.remove(id) {
            return Ok(Some(key));
        }
        let found = self.open.remove(id)?;
        Ok(found.map(|found| {
            let (sandbox, host, port) = found.value();
            Key { sandbox: sandbox.to_owned(), host: host.to_owned(), port }
        }))
    }

    /// Writes what has changed; the number of closes that belong to no known decision.
    fn finish(mut self) -> Result<u64, redb::Error> {
        for (key, counts) in &self.changed_rows {
            let bytes = encode(counts);
            self.rows.insert((key.sandbox.as_str(), key.host.as_str(), key.port), bytes.as_slice())?;
        }
        for (id, row) in self.changed_sandboxes.iter().filter(|(_, row)| row.domains > 0) {
            self.sandboxes.insert(id.as_str(), encode(row).as_slice())?;
        }
        for (id, key) in &self.opened {
            self.open.insert(id.as_str(), (key.sandbox.as_str(), key.host.as_str(), key.port))?;
        }
        while self.open.len()? > self.limits.open {
            self.open.pop_first()?;
        }
        Ok(self.unmatched)
    }
}

/// Structs of numbers and texts always have a JSON form.
fn encode(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// What can't be read counts as nothing: redb's checksums find damage before this does.
fn decode<T: Default + serde::de::DeserializeOwned>(bytes: &[u8]) -> T {
    serde_json::from_slice(bytes).unwrap_or_default()
}
