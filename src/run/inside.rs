//! The process that becomes the command: makes the namespaces, listens, hands its sockets out, and
//! executes. It has one thread, opens no connection, and reads no configuration.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};

use super::channel::{Kind, Message, receive, send};
use super::{environment, loopback, privileges};
use crate::server::{Door, listen as listen_on};

/// The proxy's port inside. The namespace is new, so nobody has it.
const PORT: u16 = 3128;
/// Descriptors below are the standard ones, which are the command's.
const FIRST_OTHER: i32 = 3;

/// Becomes the command. Returns only where that failed; the parent knows why.
///
/// Standard input is the channel to the parent, which sends the real one.
pub fn become_command(command: &[OsString]) {
    close_inherited();
    let Ok(channel) = rustix::io::fcntl_dupfd_cloexec(io::stdin(), FIRST_OTHER) else { return };
    // Where nobody listens the parent is gone, and so is the need.
    let _ = match prepare(&channel) {
        Ok(true) => {
            let error = execute(command);
            send(&channel, Kind::NotExecuted, &error.raw_os_error().unwrap_or_default().to_string(), &[])
        }
        Ok(false) => Ok(()),
        Err(why) => send(&channel, Kind::Failed, &why, &[]),
    };
}

/// Does everything up to the command; false where the parent has ended meanwhile.
fn prepare(channel: &OwnedFd) -> Result<bool, String> {
    let told = |error: io::Error| format!("the parent process can't be told: {error}");
    send(channel, isolate()?, "", &[]).map_err(told)?;
    if expect(channel, Kind::Mapped)?.is_none() {
        return Ok(false);
    }
    loopback::bring_up().map_err(|error| format!("the loopback interface can't be brought up: {error}"))?;
    let listeners = listen()?;
    let descriptors: Vec<_> = listeners.iter().map(AsFd::as_fd).collect();
    send(channel, Kind::Listening, "", &descriptors).map_err(told)?;
    drop(listeners);
    let Some(go) = expect(channel, Kind::Go)? else { return Ok(false) };
    let stdin = go.descriptors.first().ok_or("no standard input came")?;
    rustix::stdio::dup2_stdin(stdin).map_err(|error| format!("no standard input: {error}"))?;
    privileges::give_up().map_err(|error| format!("privileges can't be given up: {error}"))?;
    Ok(true)
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
    let refused = match unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET) {
        Ok(()) => return Ok(Kind::Unshared),
        Err(error) => error,
    };
    match unshare(CloneFlags::CLONE_NEWNET) {
        Ok(()) => Ok(Kind::UnsharedAsRoot),
        Err(as_root) => Err(why_not(refused, as_root)),
    }
}

/// Settings of the kernel that forbid it: where, the value that does, and what to do.
const FORBIDDING: [(&str, &str, &str); 4] = [
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

/// Listens on the loopback addresses; where there is no IPv6, on one.
fn listen() -> Result<Vec<TcpListener>, String> {
    let v4 = listen_on(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)), Door::Plain);
    let v4 =
        v4.map_err(|error| format!("127.0.0.1:{PORT} in the namespace can't be listened on: {error}"))?;
    let v6 = listen_on(SocketAddr::from((Ipv6Addr::LOCALHOST, PORT)), Door::Plain);
    Ok([v4].into_iter().chain(v6).collect())
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
