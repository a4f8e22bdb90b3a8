//! The process that becomes the command: makes the namespaces, listens, hands its sockets out, and
//! executes. It has one thread, opens no connection, and reads no configuration.
//!
//! Where it is sent rules for nftables, all connections are diverted to a listener of their own, and
//! names are answered: the command need not know of a proxy.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};

use super::channel::{Kind, Message, receive, send};
use super::{calls, doors, environment, loopback, mounts, privileges, sockets};

/// Descriptors below are the standard ones, which are the command's.
const FIRST_OTHER: i32 = 3;

/// Becomes the command. Returns only where that failed; the parent knows why.
///
/// Standard input is the channel to the parent, which sends the real one. `enforce` puts rules for
/// nftables in force.
pub fn become_command(command: &[OsString], enforce: impl Fn(&str) -> Result<(), String>) {
    close_inherited();
    let Ok(channel) = rustix::io::fcntl_dupfd_cloexec(io::stdin(), FIRST_OTHER) else { return };
    // Where nobody listens the parent is gone, and so is the need.
    let _ = match prepare(&channel, enforce) {
        Ok(true) => {
            let error = execute(command);
            send(&channel, Kind::NotExecuted, &error.raw_os_error().unwrap_or_default().to_string(), &[])
        }
        Ok(false) => Ok(()),
        Err(why) => send(&channel, Kind::Failed, &why, &[]),
    };
}

/// Does everything up to the command; false where the parent has ended meanwhile.
fn prepare(channel: &OwnedFd, enforce: impl Fn(&str) -> Result<(), String>) -> Result<bool, String> {
    let told = |error: io::Error| format!("the parent process can't be told: {error}");
    send(channel, isolate()?, "", &[]).map_err(told)?;
    let Some(mapped) = expect(channel, Kind::Mapped)? else { return Ok(false) };
    let rules = Some(mapped.text).filter(|rules| !rules.is_empty());
    loopback::bring_up().map_err(|error| format!("the loopback interface can't be brought up: {error}"))?;
    if let Some(rules) = &rules {
        divert(rules, enforce)?;
    }
    let parted = mounts::part();
    let left = close_sockets(parted.is_ok());
    let doors = doors::open(rules.is_some())?;
    let descriptors: Vec<_> = doors.iter().map(AsFd::as_fd).collect();
    send(channel, Kind::Listening, &left, &descriptors).map_err(told)?;
    drop(doors);
    let Some(go) = expect(channel, Kind::Go)? else { return Ok(false) };
    if rules.is_some() {
        let file = Path::new(&go.text);
        parted.and_then(|()| mounts::set_resolver(file)).map_err(|error| {
            format!("{} can't be mounted over /etc/resolv.conf for the command: {error}", file.display())
        })?;
    }
    let stdin = go.descriptors.first().ok_or("no standard input came")?;
    rustix::stdio::dup2_stdin(stdin).map_err(|error| format!("no standard input: {error}"))?;
    privileges::give_up().map_err(|error| format!("privileges can't be given up: {error}"))?;
    calls::refuse().map_err(|error| format!("system calls can't be filtered: {error}"))?;
    Ok(true)
}

/// Has every connection come to egret.
fn divert(rules: &str, enforce: impl Fn(&str) -> Result<(), String>) -> Result<(), String> {
    loopback::take_everything()
        .map_err(|error| format!("the loopback interface can't be made the way to all addresses: {error}"))?;
    privileges::lend_network().map_err(|error| format!("`nft` can't be given CAP_NET_ADMIN: {error}"))?;
    enforce(rules)
}

/// Closes sockets of those who would work for the command with a network of their own, where this
/// process may mount; names those that stay open, one a line.
fn close_sockets(may_mount: bool) -> String {
    let stays = |path: &PathBuf| !(may_mount && mounts::close(path).is_ok()) && sockets::is_open(path);
    let left = sockets::helpers().into_iter().filter(stays);
    left.map(|path| path.display().to_string()).collect::<Vec<_>>().join("\n")
}

fn expect(channel: &OwnedFd, kind: Kind) -> Result<Option<Message>, String> {
    match receive(channel) {
        Ok(Some(message)) if message.kind == kind => Ok(Some(message)),
        Ok(None) => Ok(None),
        Ok(Some(_)) => Err("the parent process sent something else than expected".to_owned()),
        Err(error) => Err(format!("the parent process can't be heard: {error}")),
    }
}

fn execute(command: &[OsString]) -> io::Error {
    let Some((program, arguments)) = command.split_first() else {
        return io::ErrorKind::NotFound.into();
    };
    let mut command = Command::new(program);
    command.args(arguments);
    environment::set(&mut command);
    command.exec()
}

/// Makes the namespaces: a user namespace gives an ordinary user the right to a network namespace,
/// and keeps root's reach to it.
fn isolate() -> Result<Kind, String> {
    let own = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS;
    let refused = match unshare(own | CloneFlags::CLONE_NEWUSER) {
        Ok(()) => return Ok(Kind::Unshared),
        Err(error) => error,
    };
    match unshare(own) {
        Ok(()) => Ok(Kind::UnsharedAsRoot),
        Err(as_root) => Err(why_not(refused, as_root)),
    }
}

/// Settings of the kernel that forbid it: where, the value that does, and what to do.
const FORBIDDING: [(&str, &str, &str); 5] = [
    (
        "user/max_user_namespaces",
        "0",
        "user.max_user_namespaces is 0; allow some: sysctl -w user.max_user_namespaces=10000",
    ),
    (
        "user/max_net_namespaces",
        "0",
        "user.max_net_namespaces is 0; allow some: sysctl -w user.max_net_namespaces=10000",
    ),
    (
        "user/max_mnt_namespaces",
        "0",
        "user.max_mnt_namespaces is 0; allow some: sysctl -w user.max_mnt_namespaces=10000",
    ),
    (
        "kernel/unprivileged_userns_clone",
        "0",
        "kernel.unprivileged_userns_clone is 0; allow it: sysctl -w kernel.unprivileged_userns_clone=1",
    ),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "kernel.apparmor_restrict_unprivileged_userns is 1; give egret an AppArmor profile with `userns,`, or allow it: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
];

fn why_not(unprivileged: Errno, as_root: Errno) -> String {
    let is = |setting: &str, value: &str| {
        fs::read_to_string(format!("/proc/sys/{setting}")).is_ok_and(|text| text.trim() == value)
    };
    let known = FORBIDDING.iter().find(|(setting, value, _)| is(setting, value));
    let cause = known.map_or(
        "a seccomp filter, as container engines have, or a security module may forbid it",
        |(_, _, cause)| cause,
    );
    format!(
        "no network namespace for the command: a user namespace is refused ({}), and without one it takes CAP_SYS_ADMIN, as root has it ({}). {cause}",
        unprivileged.desc(),
        as_root.desc(),
    )
}

/// Closes what came from whoever started the program, but for pipes and regular files: a socket may
/// lead out, and so may the namespace of somebody.
fn close_inherited() {
    let Ok(list) = fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<i32> = list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number >= FIRST_OTHER) {
        let path = format!("/proc/self/fd/{number}");
        let target = fs::read_link(&path).unwrap_or_default();
        let is_pipe = target.to_string_lossy().starts_with("pipe:[");
        // A namespace is a file too, but has no place.
        let is_file = target.is_absolute() && fs::metadata(&path).is_ok_and(|meta| meta.is_file());
        if !is_pipe && !is_file {
            // One that is closed already, as the list's own, is no matter.
            let _ = nix::unistd::close(number);
        }
    }
}
