//! Files that commands read and make.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{BAD_INPUT, FAILED, complain, replace, say};

/// The mode of a file that holds a private key.
pub(super) const SECRET: u32 = 0o600;
/// The mode of any other.
pub(super) const PUBLIC: u32 = 0o644;

/// What keeps a command from its work: a message and an exit code.
pub(super) type Failure = (String, u8);

/// Prints what a command made, or complains.
pub(super) fn finish<T: Serialize>(
    made: Result<T, Failure>,
    json: bool,
    text: impl FnOnce(&T) -> String,
) -> u8 {
    match made {
        Ok(made) if json => say(&(serde_json::to_string_pretty(&made).unwrap_or_default() + "\n")),
        Ok(made) => say(&(text(&made) + "\n")),
        Err((message, code)) => {
            complain(&message);
            code
        }
    }
}

pub(super) fn read_file(path: &Path) -> Result<String, Failure> {
    read_made(path, "")
}

/// Reads a file that another command makes; `made_by` helps where there is none.
pub(super) fn read_made(path: &Path, made_by: &str) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| {
        let help = if error.kind() == io::ErrorKind::NotFound { made_by } else { "" };
        (format!("{} can't be read: {error}{help}", path.display()), BAD_INPUT)
    })
}

/// The path with something behind its name, whatever dots are in it.
pub(super) fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Writes files that must not exist yet, and their folder: a key that is replaced by mistake takes
/// with it all that was signed with it.
pub(super) fn write_new(files: &[(&Path, &str, u32)]) -> Result<(), Failure> {
    if let Some((there, ..)) = files.iter().find(|(path, ..)| path.exists()) {
        return Err((format!("{} exists; move it away, or choose another --out", there.display()), FAILED));
    }
    for (path, text, mode) in files {
        if let Some(folder) = path.parent() {
            let created = fs::create_dir_all(folder);
            created.map_err(|error| (format!("{} can't be made: {error}", folder.display()), FAILED))?;
        }
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(*mode)
            .open(path)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
        written.map_err(|error| (format!("{} can't be written: {error}", path.display()), FAILED))?;
    }
    Ok(())
}

/// Puts another text in place of a file in one step.
pub(super) fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    replace::replace(path, text).map_err(|error| {
        let help = if error.kind() == io::ErrorKind::NotFound { "; make its folder first" } else { "" };
        (format!("{} can't be written, and is as it was: {error}{help}", path.display()), FAILED)
    })
}
