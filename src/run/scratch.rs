//! The folder of one run, for its state and its audit file: removed at its end, and by the next run
//! where this one was killed. A lock that dies with the process tells which is which.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::geteuid;

const PREFIX: &str = "egret-run-";
/// Names are tried until one is free.
const TRIES: usize = 16;
/// Octets of a name that nobody guesses.
const RANDOM: usize = 12;
/// Octets that must be free for a run to begin: its limits and the first records.
const ROOM: usize = 1 << 16;

/// A folder for this run alone.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    _locked: File,
}

impl Scratch {
    /// Makes one in the folder for temporary files, and removes those of runs that were killed.
    ///
    /// # Errors
    /// It can't be made.
    pub fn make() -> io::Result<Self> {
        let parent = std::env::temp_dir();
        clean(&parent);
        for _ in 0..TRIES {
            let mut random = [0; RANDOM];
            aws_lc_rs::rand::fill(&mut random).map_err(|_| io::Error::other("no random numbers"))?;
            let name: String = random.iter().map(|octet| char::from(b'a' + octet % 26)).collect();
            let path = parent.join(format!("{PREFIX}{name}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            // Another run that cleans up may have been faster.
            if let Some(locked) = lock(&path)? {
                let scratch = Self { path, _locked: locked };
                scratch.try_room()?;
                return Ok(scratch);
            }
        }
        Err(io::Error::other("no folder could be kept"))
    }

    /// Is there any room? A full disk shows with what is written, not with the file.
    fn try_room(&self) -> io::Result<()> {
        let path = self.path.join("room");
        fs::write(&path, [0; ROOM])?;
        fs::remove_file(path)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left now the next run removes.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the folders of this user's runs that run no more.
fn clean(parent: &Path) {
    let Ok(list) = fs::read_dir(parent) else { return };
    for entry in list.filter_map(Result::ok) {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let path = entry.path();
        if let Ok(Some(locked)) = lock(&path) {
            let _ = fs::remove_dir_all(&path);
            drop(locked);
        }
    }
}

/// The folder of a run, if it is there, this user's, and nobody has it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let file = match File::options().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let own = file.metadata()?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    let Ok(there) = fs::symlink_metadata(path) else { return Ok(None) };
    let same = own.ino() == there.ino() && own.dev() == there.dev();
    Ok((same && own.uid() == geteuid().as_raw()).then_some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_that_nobody_holds_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("audit.ndjson"), "").unwrap();
            path
        };
        let (dead, living) = (folder("egret-run-dead"), folder("egret-run-living"));
        let (other, target) = (folder("another"), folder("target"));
        let link = parent.path().join("egret-run-link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let held = lock(&living).unwrap().unwrap();
        assert!(lock(&living).unwrap().is_none());
        clean(parent.path());
        assert!(!dead.exists());
        assert!(living.exists() && other.exists() && link.exists() && target.join("audit.ndjson").exists());
        drop(held);
        clean(parent.path());
        assert!(!living.exists());
    }
}
