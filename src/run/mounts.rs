//! What the command finds in other places than the rest of the system does: a file over another one,
//! in its own mount namespace. Nothing outside changes, and it goes with the last process inside.
//! Who has no `CAP_SYS_ADMIN` here can't lift one off, nor in a namespace that he makes himself.

use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};

/// Stands in for a socket: a connection to it is refused.
const NOTHING: &str = "/dev/null";
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Keeps what is mounted here from then on from the rest of the system, which would have it too where
/// this namespace was made without a user namespace. What is mounted there still shows here.
///
/// # Errors
/// The system's; then nothing may be mounted.
pub(super) fn part() -> io::Result<()> {
    let down = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    Ok(mount_change("/", down)?)
}

/// Has resolvers read this file. One that finds none asks at the loopback by itself.
///
/// # Errors
/// The system's.
pub(super) fn set_resolver(file: &Path) -> io::Result<()> {
    match fs::canonicalize(RESOLV_CONF) {
        Ok(place) => Ok(mount_bind(file, place)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Closes a socket to the command.
///
/// # Errors
/// The system's.
pub(super) fn close(socket: &Path) -> io::Result<()> {
    Ok(mount_bind(NOTHING, socket)?)
}
