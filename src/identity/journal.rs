//! A file of NDJSON lines in the state directory that only grows, and is rewritten whole when much
//! of it has become pointless. A line counts once it is on the disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why a file can't be read.
#[derive(Debug)]
pub(super) enum ReadError {
    Io(io::Error),
    /// The line with this number, from 1, is not one of ours.
    Line(usize),
}

/// The lines of a file, and whether it ends in the middle of one. None if it is not there.
///
/// What follows the last line end was being written when the process ended; nobody was told that it
/// is done.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<(Vec<T>, bool), ReadError> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        bytes => bytes.map_err(ReadError::Io)?,
    };
    // Bytes: what was being written may have been cut within a character.
    let mut lines: Vec<_> = bytes.split(|byte| *byte == b'\n').collect();
    let cut = lines.pop().is_some_and(|rest| !rest.is_empty());
    let numbered = lines.into_iter().enumerate();
    let parsed = numbered.map(|(at, line)| serde_json::from_slice(line).map_err(|_| ReadError::Line(at + 1)));
    Ok((parsed.collect::<Result<_, _>>()?, cut))
}

/// Appends a line, and returns when it is on the disk.
pub(super) fn append(path: &Path, line: &impl Serialize) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let before = file.metadata()?.len();
    let written = file.write_all(&encode(line)?).and_then(|()| file.sync_all());
    if written.is_err() {
        // Half a line would make the next one unreadable.
        file.set_len(before)?;
    }
    written?;
    if before == 0 { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Puts another file in place in one step.
pub(super) fn rewrite<L: Serialize>(path: &Path, lines: impl IntoIterator<Item = L>) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let draft = path.with_extension("ndjson.new");
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&draft)?;
    let mut bytes = Vec::new();
    for line in lines {
        bytes.extend(encode(&line)?);
    }
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

fn encode(line: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    Ok(bytes)
}
