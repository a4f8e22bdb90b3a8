//! Finds the files that log rotation made of the audit file. Reads their first line at most.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirEntryExt, FileExt};
use std::path::{Path, PathBuf};

use super::follow::{Confirmed, FileId};
use super::record::Record;

/// Bytes of a file's beginning that tell it from others: number and time of its first record.
pub(super) const HEAD: usize = 48;
/// Bytes in which the first record must end.
const FIRST_LINE: usize = 16 << 10;
/// Files of the directory that are looked at.
const ENTRIES: usize = 10_000;

/// A file that begins with `head`, whatever its name is now.
pub(super) fn find(path: &Path, id: FileId, head: &str) -> Option<File> {
    let holds = |file: &File| {
        let same = file.metadata().is_ok_and(|meta| FileId::of(&meta) == id);
        same && head_of(file).is_ok_and(|(found, _)| found.starts_with(head))
    };
    let named = File::open(path).ok().filter(&holds);
    named.or_else(|| {
        let same_inode = |entry: &fs::DirEntry| entry.ino() == id.inode;
        entries(path).filter(same_inode).filter_map(|entry| open_file(&entry.path())).find(holds)
    })
}

/// The file that was begun next after one that began at `began`; the one that the path names if
/// that can't be told. A file that the writer has not confirmed yet is left alone.
pub(super) fn successor_of(path: &Path, began: &str, confirmed: Option<Confirmed>) -> Option<File> {
    let named = open_file(path).filter(|file| {
        let id = file.metadata().map(|meta| FileId::of(&meta));
        id.is_ok_and(|id| confirmed.is_some_and(|confirmed| confirmed.file == id))
    });
    if began.is_empty() {
        return named;
    }
    let stem = path.file_stem()?.as_encoded_bytes();
    let rotated = entries(path)
        .filter(|entry| {
            entry.file_name().as_encoded_bytes().starts_with(stem) && entry.path() != named_entry(path)
        })
        .filter_map(|entry| open_file(&entry.path()))
        .filter_map(|file| Some((head_of(&file).ok()?.1, file)))
        .filter(|(later, _)| later.as_str() > began)
        .min_by(|(one, _), (other, _)| one.cmp(other));
    match (rotated, named) {
        (Some((began, rotated)), Some(named)) => {
            let of_named = head_of(&named).map(|(_, began)| began).unwrap_or_default();
            Some(if of_named > began || of_named.is_empty() { rotated } else { named })
        }
        (rotated, named) => rotated.map(|(_, file)| file).or(named),
    }
}

/// The first bytes of a file, and the time of its first record; both empty if there is none yet.
pub(super) fn head_of(file: &File) -> io::Result<(String, String)> {
    let mut bytes = vec![0; FIRST_LINE];
    let length = file.read_at(&mut bytes, 0)?;
    bytes.truncate(length);
    let began = bytes.split(|&byte| byte == b'\n').find_map(Record::parse);
    let began = began.map(|record| record.ts).unwrap_or_default();
    let head = bytes.get(..HEAD).unwrap_or(&bytes);
    Ok((head.escape_ascii().to_string(), began))
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The path as reading its directory gives it.
fn named_entry(path: &Path) -> PathBuf {
    directory(path).join(path.file_name().unwrap_or_default())
}

fn entries(path: &Path) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(directory(path)).into_iter().flatten().take(ENTRIES).flatten()
}

/// Opens a regular file; opening a pipe would wait for its other end.
fn open_file(path: &Path) -> Option<File> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    File::open(path).ok()
}
