//! Lets another part of the program hear of what was written. The audit knows nothing of its use.

use std::fmt;

/// Hears of written records, in the writer's thread: it must not block.
pub trait Tap: fmt::Debug + Send + Sync {
    /// These records are in the file. Those who wait for them are woken afterwards.
    fn written(&self, written: &Written<'_>);
}

/// What one write put into the file.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    /// Whole lines with their line ends, in the order of the file.
    pub lines: &'a [u8],
    /// How many.
    pub records: usize,
    /// Where they end in the file; `None` for a pipe or device.
    pub end: Option<FileEnd>,
}

/// A place in a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileEnd {
    /// Device of the file.
    pub device: u64,
    /// Inode of the file.
    pub inode: u64,
    /// Bytes before the place.
    pub offset: u64,
}
