//! The audit file: opening, whole lines or none, following it when it is renamed or deleted.
//! Knows nothing of records.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::tap::FileEnd;

/// How often a full pipe is tried again.
const PIPE_RETRY: Duration = Duration::from_millis(5);

/// Where the lines go.
#[derive(Debug)]
pub(super) struct Sink {
    target: Target,
    open: Option<Open>,
    /// fdatasync after every batch.
    sync: bool,
    /// A pipe or device holds the beginning of a line that could not be finished.
    torn: bool,
}

#[derive(Debug)]
enum Target {
    Stdout,
    Path(PathBuf),
}

#[derive(Debug)]
struct Open {
    file: File,
    regular: Option<Regular>,
}

/// What is known of a regular file.
#[derive(Debug)]
struct Regular {
    device_and_inode: (u64, u64),
    /// Before the batch that is written.
    length: u64,
    /// It ends in the middle of a line.
    torn: bool,
}

/// How far a batch got.
#[derive(Debug)]
pub(super) struct Progress {
    /// Lines that are whole in the file, counted from the batch's first.
    pub lines: usize,
    /// Why not all are.
    pub error: Option<io::Error>,
    /// Where the last of them ends, in a regular file.
    pub end: Option<FileEnd>,
}

impl Sink {
    /// Opens nothing yet. `-` is the standard output.
    pub(super) fn new(file: &Path, sync: bool) -> Self {
        let target = if file == Path::new("-") { Target::Stdout } else { Target::Path(file.to_owned()) };
        Self { target, open: None, sync, torn: false }
    }

    /// Closes the file; the next use opens it by its name.
    pub(super) fn close(&mut self) {
        self.open = None;
    }

    /// Is it an open regular file whose system buffer takes the lines?
    pub(super) fn is_plain(&self) -> bool {
        !self.sync && self.open.as_ref().is_some_and(|open| open.regular.is_some())
    }

    /// Makes sure that the open file is the one that the path names, creating it if need be.
    pub(super) fn ensure(&mut self) -> io::Result<()> {
        self.current().map(|_| ())
    }

    /// Appends a batch with one write. `ends` are the offsets behind each of its lines.
    ///
    /// After an error the file ends with the last whole line, or the next write begins with a
    /// line end. A full pipe is waited for, at most `patience`.
    pub(super) fn append(&mut self, batch: &[u8], ends: &[usize], patience: Duration) -> Progress {
        let torn = self.torn;
        let sync = self.sync;
        let open = match self.current() {
            Ok(open) => open,
            Err(error) => return Progress { lines: 0, error: Some(error), end: None },
        };
        let deadline = Instant::now().checked_add(patience);
        if open.regular.as_ref().map_or(torn, |regular| regular.torn) {
            if let (_, Some(error)) = write_all(&open.file, b"\n", deadline) {
                self.close();
                return Progress { lines: 0, error: Some(error), end: None };
            }
            if let Some(regular) = &mut open.regular {
                regular.length += 1;
                regular.torn = false;
            }
        }
        let (written, mut error) = write_all(&open.file, batch, deadline);
        let mut lines = ends.partition_point(|&end| end <= written);
        if error.is_none() && sync && open.regular.is_some() {
            error = open.file.sync_data().err();
            if error.is_some() {
                // Nobody knows what of it is on the disk.
                lines = 0;
            }
        }
        let whole = lines.checked_sub(1).and_then(|last| ends.get(last)).copied().unwrap_or(0);
        let end = open.regular.as_ref().map(|regular| regular.end(whole as u64));
        match &mut open.regular {
            Some(regular) if written > whole => regular.cut_back(&open.file, written as u64, whole as u64),
            Some(_) => {}
            None => self.torn = written > whole,
        }
        if error.is_some() {
            self.close();
        }
        Progress { lines, error, end }
    }

    fn current(&mut self) -> io::Result<&mut Open> {
        if !self.open.as_mut().is_some_and(|open| self.target.is_still(open)) {
            self.open = None;
        }
        match &mut self.open {
            Some(open) => Ok(open),
            none => Ok(none.insert(self.target.open()?)),
        }
    }
}

impl Regular {
    /// Where a batch ends of which so many bytes are whole lines.
    const fn end(&self, whole: u64) -> FileEnd {
        let (device, inode) = self.device_and_inode;
        FileEnd { device, inode, offset: self.length + whole }
    }

    /// Takes the part of an incomplete batch behind its last whole line out of the file.
    ///
    /// If somebody else appended meanwhile, or the file can't be cut, it stays as it is: opening
    /// it again finds the torn line.
    fn cut_back(&self, file: &File, written: u64, whole: u64) {
        if file.metadata().is_ok_and(|now| now.len() == self.length + written) {
            let _ = file.set_len(self.length + whole);
        }
    }
}

impl Target {
    /// Pipes and devices stay open; a regular file must still have its name. Its length is taken
    /// note of, for others may cut it (logrotate's `copytruncate`).
    fn is_still(&self, open: &mut Open) -> bool {
        let (Self::Path(path), Some(regular)) = (self, &mut open.regular) else { return true };
        let Ok(now) = fs::metadata(path) else { return false };
        regular.length = now.len();
        (now.dev(), now.ino()) == regular.device_and_inode
    }

    fn open(&self) -> io::Result<Open> {
        let path = match self {
            Self::Stdout => {
                let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
                return Ok(Open { file, regular: None });
            }
            Self::Path(path) => path,
        };
        match fs::metadata(path) {
            Ok(found) if !found.is_file() => open_device(path),
            _ => open_regular(path),
        }
    }
}

/// A pipe without a reader is an error here, where a plain open would wait for one.
fn open_device(path: &Path) -> io::Result<Open> {
    let flags = flag_bits(OFlags::NONBLOCK | OFlags::NOCTTY)?;
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
    if file.metadata()?.file_type().is_block_device() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a block device can't hold an audit log"));
    }
    Ok(Open { file, regular: None })
}

fn open_regular(path: &Path) -> io::Result<Open> {
    // Readable too, for the last byte. The standard library adds O_CLOEXEC.
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o640).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("the audit file changed its kind while it was opened"));
    }
    let length = found.len();
    let torn = match length.checked_sub(1) {
        None => false,
        Some(last) => {
            let mut byte = [0];
            file.read_exact_at(&mut byte, last)?;
            byte != *b"\n"
        }
    };
    Ok(Open { file, regular: Some(Regular { device_and_inode: (found.dev(), found.ino()), length, torn }) })
}

fn flag_bits(flags: OFlags) -> io::Result<i32> {
    i32::try_from(flags.bits()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

/// Writes as much as it can: the number of bytes, and why it is not all of them.
fn write_all(mut file: &File, bytes: &[u8], deadline: Option<Instant>) -> (usize, Option<io::Error>) {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match file.write(rest) {
            Ok(0) => return (written, Some(io::ErrorKind::WriteZero.into())),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if deadline.is_none_or(|deadline| Instant::now() >= deadline) {
                    return (written, Some(error));
                }
                thread::sleep(PIPE_RETRY);
            }
            Err(error) => return (written, Some(error)),
        }
    }
    (written, None)
}
