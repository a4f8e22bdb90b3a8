//! Finds the files that log rotation made of the audit file. Reads their first line at most.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::follow::{Confirmed, FileId};
use super::record::Record;

/// Bytes of a file's beginning that tell it from others: number and time of its first record.
pub(super) const HEAD: usize = 48;
/// Bytes in which the first record must end.
const FIRST_LINE: usize = 16 << 10;
/// Files of the directory that are looked at.
const ENTRIES: usize = 10_000;

/// The file that begins with `head`, whatever its name is now.
pub(super) fn find(path: &Path, head: &str) -> Option<File> {
    let named = open_file(path).into_iter();
    named.chain(siblings(path)).find(|file| head_of(file).is_ok_and(|(found, _)| found.starts_with(head)))
}

/// The file with this inode, whatever its name is now.
pub(super) fn find_id(path: &Path, id: FileId) -> Option<File> {
    let named = open_file(path).into_iter();
    named.chain(siblings(path)).find(|file| file.metadata().is_ok_and(|meta| FileId::of(&meta) == id))
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
    let rotated = siblings(path)
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

/// The other files of the directory whose names begin as that of the audit file does.
fn siblings(path: &Path) -> impl Iterator<Item = File> {
    let stem = path.file_stem().unwrap_or_default().as_encoded_bytes();
    let named = named_entry(path);
    let entries = fs::read_dir(directory(path)).into_iter().flatten().take(ENTRIES).flatten();
    let others = entries
        .filter(move |entry| entry.file_name().as_encoded_bytes().starts_with(stem) && entry.path() != named);
    others.filter_map(|entry| open_file(&entry.path()))
}

/// Opens a regular file; opening a pipe would wait for its other end.
fn open_file(path: &Path) -> Option<File> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    File::open(path).ok()
}
