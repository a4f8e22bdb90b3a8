//! Pipes for splice(2), which moves bytes between sockets inside the kernel.
//!
//! A pipe is borrowed while bytes are under way and kept for the next tunnel if
//! it is empty then; one that still holds bytes is closed, never reused. How many
//! exist is bounded, so that tunnels with a stuck receiver cannot use up the
//! descriptors that new connections need: without a pipe the relay copies.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::{Result, retry_on_intr};
use rustix::pipe::{PipeFlags, SpliceFlags};
use rustix::process::Resource;

/// Bytes that a pipe should hold: the most that Linux grants without privilege,
/// because few large moves cost half of many small ones. Best effort: a user who
/// has many pipes gets smaller ones.
const CAPACITY: usize = 1024 * 1024;

/// Empty pipes that a thread keeps. Bytes are under way in few tunnels of one
/// thread at a time.
const KEPT_PER_THREAD: usize = 8;

/// Pipes that exist, in all threads.
static EXISTING: AtomicUsize = AtomicUsize::new(0);

/// Most pipes that may exist: their two descriptors each take at most an eighth
/// of what the process may open.
static MOST: LazyLock<usize> = LazyLock::new(|| {
    let descriptors = rustix::process::getrlimit(Resource::Nofile).current;
    let share = descriptors.map_or(usize::MAX, |n| usize::try_from(n / 16).unwrap_or(usize::MAX));
    share.min(1024)
});

thread_local! {
    static KEPT: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// A pipe, both ends; non-blocking.
#[derive(Debug)]
pub(super) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    /// An empty pipe, or `None` when there are too many or the process is short of
    /// descriptors.
    pub(super) fn take() -> Option<Self> {
        let kept = KEPT.try_with(|kept| kept.borrow_mut().pop());
        kept.ok().flatten().or_else(Self::open)
    }

    fn open() -> Option<Self> {
        if EXISTING.fetch_add(1, Ordering::Relaxed) >= *MOST {
            EXISTING.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let Ok((read, write)) = rustix::pipe::pipe_with(flags) else {
            EXISTING.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        let _ = rustix::pipe::fcntl_setpipe_size(&write, CAPACITY);
        Some(Self { read, write })
    }

    /// Keeps the pipe for another tunnel. It must be empty.
    pub(super) fn put_back(self) {
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT_PER_THREAD {
                kept.push(self);
            }
        });
    }

    /// Moves what `socket` has received into the pipe; returns how many bytes.
    pub(super) fn fill(&self, socket: impl AsFd) -> Result<usize> {
        splice(socket, &self.write, CAPACITY)
    }

    /// Moves up to `most` bytes from the pipe to `socket`; returns how many.
    pub(super) fn drain(&self, socket: impl AsFd, most: usize) -> Result<usize> {
        splice(&self.read, socket, most)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        EXISTING.fetch_sub(1, Ordering::Relaxed);
    }
}

fn splice(from: impl AsFd, to: impl AsFd, most: usize) -> Result<usize> {
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    retry_on_intr(|| rustix::pipe::splice(from.as_fd(), None, to.as_fd(), None, most, flags))
}
