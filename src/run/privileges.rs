//! What the process gives up before it becomes the command, so that the command can't alter its
//! network namespace or enter another one. Until then, what it lends to a program that it runs.

use std::io;

use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

/// What root keeps: files and users, as package managers need them. Nothing of networks but low
/// ports, no administration, no tracing, no devices.
const OF_ROOT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::SETFCAP);

/// Lets programs that this process starts administer its network, until [`give_up`]. Whoever is not
/// root in a user namespace loses that by an execution otherwise.
///
/// # Errors
/// The system's.
pub(super) fn lend_network() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    sets.inheritable |= CapabilitySet::NET_ADMIN;
    set_capabilities(None, sets)?;
    Ok(configure_capability_in_ambient_set(CapabilitySet::NET_ADMIN, true)?)
}

/// Gives everything else up, for this process and all that it starts.
///
/// # Errors
/// The system's; then the command must not be started.
pub(super) fn give_up() -> io::Result<()> {
    let kept = if geteuid().is_root() { OF_ROOT } else { CapabilitySet::empty() };
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(capability) {
            continue;
        }
        match capability_is_in_bounding_set(capability) {
            Ok(true) => remove_capability_from_bounding_set(capability)?,
            Ok(false) => {}
            // Behind the last that the kernel knows.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    clear_ambient_capability_set()?;
    // No set-user-ID program and no file with capabilities brings any of it back.
    set_no_new_privs(true)?;
    let had = capabilities(None)?;
    let sets = CapabilitySets {
        effective: had.effective.intersection(kept),
        permitted: had.permitted.intersection(kept),
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}
