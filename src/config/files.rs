//! Reads the files of a configuration, and notes what was read for telling whether it has changed.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Longest file of a configuration, in bytes.
const MAX_FILE: u64 = 256 << 20;

/// Files as they were just before they were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files(Vec<(PathBuf, Option<Stamp>)>);

/// What tells one state of a file from another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    inode: u64,
    mode: u32,
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|meta| Self::from(&meta))
    }
}

impl From<&Metadata> for Stamp {
    fn from(meta: &Metadata) -> Self {
        Self { modified: meta.modified().ok(), length: meta.len(), inode: meta.ino(), mode: meta.mode() }
    }
}

impl Files {
    /// Reads a text file.
    ///
    /// # Errors
    /// It can't be read, is no regular file (which could block for ever), or is too long.
    pub fn read(&mut self, path: &Path) -> io::Result<String> {
        self.0.push((path.to_path_buf(), Stamp::of(path)));
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let mut text = String::new();
        let read = File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
        if u64::try_from(read).is_ok_and(|read| read > MAX_FILE) {
            return Err(io::Error::other("longer than 256 MiB"));
        }
        Ok(text)
    }

    /// Reads a text file that holds a secret.
    ///
    /// # Errors
    /// As [`Files::read`], or every user of the machine may open it.
    pub fn read_secret(&mut self, path: &Path) -> io::Result<String> {
        let text = self.read(path)?;
        let mode = std::fs::metadata(path)?.mode() & 0o777;
        if mode & 0o007 != 0 {
            let cause = format!("every user of this machine has access to it (mode {mode:04o})");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, cause));
        }
        Ok(text)
    }

    /// The same files as they are now.
    #[must_use]
    pub fn now(&self) -> Self {
        Self(self.0.iter().map(|(path, _)| (path.clone(), Stamp::of(path))).collect())
    }
}

/// What helps where a file can't be read: `absent` where it is not there.
pub fn unreadable_help(cause: &io::Error, absent: &str) -> String {
    match (cause.kind(), cause.raw_os_error()) {
        (io::ErrorKind::NotFound, _) => absent.to_owned(),
        // Only where the system says so: a secret that all may read has a cause of its own.
        (io::ErrorKind::PermissionDenied, Some(_)) => {
            "let this user read it, or run this as the user that egret runs as".to_owned()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_shows_and_odd_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "a").unwrap();
        let mut files = Files::default();
        assert_eq!(files.read(&path).unwrap(), "a");
        assert_eq!(files.now(), files);
        std::fs::write(&path, "ab").unwrap();
        assert_ne!(files.now(), files);
        assert!(files.read(dir.path()).is_err());
        assert!(files.read(&dir.path().join("missing")).is_err());
        assert_eq!(files.0.len(), 3);
    }
}
