//! Reads the audit file from where the ledger left off, through renaming, cutting and damage.
//! Never reads what the writer has not confirmed, and never changes a file.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Notes;
use super::record::Record;
use super::siblings::{HEAD, find, find_id, head_of, successor_of};

/// Bytes of one read; a longer line is damage.
const READ_BYTES: u64 = 1 << 20;
/// Records of one batch.
const BATCH_RECORDS: usize = 4096;

/// Names a file whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileId {
    pub device: u64,
    pub inode: u64,
}

impl FileId {
    pub(super) fn of(meta: &fs::Metadata) -> Self {
        Self { device: meta.dev(), inode: meta.ino() }
    }
}

/// Up to where a file holds whole records that the writer stands by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Confirmed {
    pub file: FileId,
    pub end: u64,
}

/// What of the audit may be read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reach {
    /// The file that this process found or wrote first: where a new ledger begins.
    pub first: Option<FileId>,
    /// The file that is written, and how far. Earlier files are complete.
    pub confirmed: Option<Confirmed>,
}

impl Reach {
    /// Up to the end of what the path names now, while nobody writes to it.
    pub(super) fn now(path: &Path) -> Self {
        let mut reach = Self::default();
        if let Some(meta) = fs::metadata(path).ok().filter(fs::Metadata::is_file) {
            reach.extend(Confirmed { file: FileId::of(&meta), end: meta.len() });
        }
        reach
    }

    /// The writer has come so far.
    pub(super) fn extend(&mut self, confirmed: Confirmed) {
        self.first = self.first.or(Some(confirmed.file));
        self.confirmed = Some(confirmed);
    }
}

/// How far the audit was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    pub file: FileId,
    /// The first bytes of the file, by which it is known again: inodes are given out again, and
    /// device numbers change when the machine starts.
    pub head: String,
    /// Time of the file's first record, by which the next file is found.
    pub began: String,
    /// Bytes that were read.
    pub offset: u64,
    /// Lines that were read.
    pub line: u64,
    /// Number of the last record.
    pub seq: u64,
}

/// What one read gave.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// Records with their lines as they stand in the file.
    pub records: Vec<(Record, String)>,
    pub notes: Notes,
    /// There may be more.
    pub more: bool,
}

/// Reads one file after the other.
#[derive(Debug)]
pub(super) struct Follower {
    path: PathBuf,
    open: Option<File>,
    position: Option<Position>,
    /// Damage in the present file was told.
    told: bool,
    /// The file of the position is gone, and that was told.
    gone: bool,
}

impl Follower {
    /// Goes on from a stored position, or begins with the file that the path names.
    pub(super) fn new(path: PathBuf, position: Option<Position>) -> Self {
        // A file without a beginning can't be known again, and nothing of it was read.
        let position = position.filter(|position| !position.head.is_empty());
        Self { path, open: None, position, told: false, gone: false }
    }

    /// Up to where everything was read.
    pub(super) const fn position(&self) -> Option<&Position> {
        self.position.as_ref()
    }

    /// The next records within reach.
    pub(super) fn read(&mut self, reach: Reach) -> io::Result<Read> {
        let mut read = Read::default();
        if self.open.is_none() && !self.locate(reach, &mut read.notes)? {
            return Ok(read);
        }
        self.verify(&mut read.notes)?;
        let (Some(file), Some(position)) = (&self.open, &mut self.position) else { return Ok(read) };
        let current = reach.confirmed.filter(|confirmed| confirmed.file == position.file);
        let end = match current {
            Some(confirmed) => confirmed.end,
            None => file.metadata()?.len(),
        };
        let before = position.offset;
        let length = end.saturating_sub(before).min(READ_BYTES);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let length = read_up_to(file, &mut bytes, before)?;
        bytes.truncate(length);
        // Nothing will follow, so that a rest without line end is damage.
        let complete = current.is_none() && before + length as u64 >= end;
        take_lines(&bytes, complete, position, &mut read, &mut self.told, &self.path);
        let left = position.offset < end;
        read.more = if current.is_none() && !left {
            self.next_file(reach.confirmed)
        } else {
            left && position.offset > before
        };
        Ok(read)
    }

    /// Opens the file that the position is in, or the one to go on with. False if there is none.
    fn locate(&mut self, reach: Reach, notes: &mut Notes) -> io::Result<bool> {
        if let Some(position) = &mut self.position {
            if let Some(file) = find(&self.path, &position.head) {
                position.file = FileId::of(&file.metadata()?);
                self.open = Some(file);
                return Ok(true);
            }
            if !std::mem::replace(&mut self.gone, true) {
                notes.gaps += 1;
                let (file, line) = (self.path.display(), position.line);
                tracing::warn!(%file, line, "the audit file that the ledger was reading is gone; it has nothing after this line of it");
            }
        }
        let next = match &self.position {
            Some(position) => successor_of(&self.path, &position.began, reach.confirmed),
            None => reach.first.and_then(|first| find_id(&self.path, first)),
        };
        match next {
            Some(next) => {
                self.begin(next)?;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Goes on to the file that followed. The present one is complete: its writer has left it.
    fn next_file(&mut self, confirmed: Option<Confirmed>) -> bool {
        let Some(position) = &self.position else { return false };
        let next = successor_of(&self.path, &position.began, confirmed);
        next.is_some_and(|next| self.begin(next).is_ok())
    }

    fn begin(&mut self, file: File) -> io::Result<()> {
        let (head, began) = head_of(&file)?;
        let seq = self.position.as_ref().map_or(0, |position| position.seq);
        let id = FileId::of(&file.metadata()?);
        self.position = Some(Position { file: id, head, began, offset: 0, line: 0, seq });
        self.open = Some(file);
        (self.told, self.gone) = (false, false);
        Ok(())
    }

    /// Notices that the file was cut: by logrotate's `copytruncate`, or by a crash of the machine.
    fn verify(&mut self, notes: &mut Notes) -> io::Result<()> {
        let (Some(file), Some(position)) = (&self.open, &mut self.position) else { return Ok(()) };
        let length = file.metadata()?.len();
        let (head, began) = head_of(file)?;
        if head.starts_with(&position.head) && length >= position.offset {
            if position.head.len() < HEAD {
                (position.head, position.began) = (head, began);
            }
            return Ok(());
        }
        let path = self.path.display();
        if !position.head.is_empty() && head.starts_with(&position.head) {
            notes.gaps += 1;
            tracing::warn!(file = %path, "the audit file has lost its end; the ledger holds what stood there");
            position.offset = length;
        } else {
            tracing::info!(file = %path, "the audit file was cut; the ledger reads it from its beginning");
            (position.head, position.began) = (head, began);
            (position.offset, position.line) = (0, 0);
            self.told = false;
        }
        Ok(())
    }
}

/// Splits what was read. Where it is `complete`, a rest without line end is damage.
fn take_lines(
    bytes: &[u8],
    complete: bool,
    position: &mut Position,
    read: &mut Read,
    told: &mut bool,
    path: &Path,
) {
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        let whole = line.strip_suffix(b"\n");
        // A line that fills a whole read will not be read in one ever.
        let endless = line.len() as u64 >= READ_BYTES;
        if whole.is_none() && !complete && !endless || read.records.len() >= BATCH_RECORDS {
            return;
        }
        position.offset += line.len() as u64;
        position.line += 1;
        if take_line(whole.unwrap_or(b""), &mut position.seq, read) || std::mem::replace(told, true) {
            continue;
        }
        tracing::warn!(
            file = %path.display(),
            line = position.line,
            "this line of the audit file is no record; the ledger skips such lines"
        );
    }
}

/// Reads one line; false if it is damaged. A number that does not follow tells of missing records.
pub(super) fn take_line(line: &[u8], seq: &mut u64, read: &mut Read) -> bool {
    let text = std::str::from_utf8(line).ok();
    let Some((record, text)) = Record::parse(line).zip(text) else {
        read.notes.damaged_lines += 1;
        return false;
    };
    // A new process counts from 1; at the very beginning nobody knows what was before.
    let expected = if record.seq == 1 || *seq == 0 { record.seq } else { seq.saturating_add(1) };
    read.notes.missing_records += record.seq.saturating_sub(expected);
    *seq = record.seq;
    read.records.push((record, text.to_owned()));
    true
}

fn read_up_to(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + done as u64) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
