//! The parent's side of the beginning: starts the process inside, settles who is who in its user
//! namespace, and takes its listening sockets. Runs no part of the command by itself.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, WaitOptions, getegid, geteuid, getgid, getuid, waitpid};

use super::channel::{self, Kind, Message};
use super::doors::{self, Doors};

/// The hidden command of the process inside.
const BECOME: &str = "become";

/// The command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Whoever may run it could become somebody else by it.
    #[error("egret run is not to be installed set-user-ID or set-group-ID; remove the bit")]
    SetId,
    /// The system gives no process or no sockets.
    #[error("the process for the command can't be started: {0}")]
    Process(#[from] io::Error),
    /// Its identity can't be settled.
    #[error(
        "{file} of the process for the command can't be written: {source}; run egret as root, or where it may have a user namespace"
    )]
    Mapping {
        /// Which file.
        file: String,
        /// What the system said.
        source: io::Error,
    },
    /// The process inside said why.
    #[error("{0}")]
    Inside(String),
    /// It ended without a word, as by a signal.
    #[error("the process for the command ended before it had begun")]
    Ended,
}

/// The process inside, which waits to become the command. Dropped, it ends without.
#[derive(Debug)]
pub struct Inside {
    pid: Pid,
    channel: Option<OwnedFd>,
    doors: Doors,
    open_sockets: Vec<String>,
    /// Somebody else waits for its end.
    is_watched: bool,
}

impl Inside {
    /// Starts it, and comes back when it listens. With `rules` for nftables, they divert what it
    /// connects to.
    ///
    /// # Errors
    /// The system does not let it. Nothing is left of it then.
    pub fn start(command: &[OsString], rules: Option<&str>) -> Result<Self, StartError> {
        if getuid() != geteuid() || getgid() != getegid() {
            return Err(StartError::SetId);
        }
        let (ours, theirs) = channel::pair()?;
        // In the same process group and session: the terminal is the command's too.
        let child = Command::new("/proc/self/exe")
            .arg0("egret")
            .arg(BECOME)
            .arg("--")
            .args(command)
            .stdin(Stdio::from(theirs))
            .spawn()
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => StartError::Inside("/proc is not mounted; mount it".to_owned()),
                _ => error.into(),
            })?;
        let mut inside = Self {
            pid: Pid::from_child(&child),
            channel: Some(ours),
            doors: Doors::default(),
            open_sockets: Vec::new(),
            is_watched: false,
        };
        if inside.expect()?.kind == Kind::Unshared {
            inside.map_ids()?;
        }
        inside.send(Kind::Mapped, rules.unwrap_or_default(), &[])?;
        let listening = inside.expect()?;
        inside.open_sockets = listening.text.lines().map(str::to_owned).collect();
        inside.doors = doors::sort(listening.descriptors)?;
        if inside.doors.listeners.is_empty() {
            return Err(StartError::Inside("no listening socket came".to_owned()));
        }
        Ok(inside)
    }

    /// Its process, which becomes the command's.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// The sockets that it has opened inside, once.
    pub fn doors(&mut self) -> Doors {
        std::mem::take(&mut self.doors)
    }

    /// Sockets of container engines and name services that could not be closed to the command.
    #[must_use]
    pub fn open_sockets(&self) -> &[String] {
        &self.open_sockets
    }

    /// Has it become the command; gives the error number where that can't be executed. Where its
    /// connections are diverted, `resolv_conf` says to the command where names are asked for. From here on,
    /// how the process ends is a supervisor's to learn.
    ///
    /// # Errors
    /// It has failed or ended before.
    pub fn go(mut self, resolv_conf: &Path) -> Result<Result<(), i32>, StartError> {
        self.is_watched = true;
        self.send(Kind::Go, &resolv_conf.to_string_lossy(), &[io::stdin().as_fd()])?;
        let Some(channel) = self.channel.take() else { return Err(StartError::Ended) };
        // Its end is closed by the execution. Whether that, or a signal, the wait tells.
        match channel::receive(&channel)? {
            None => Ok(Ok(())),
            Some(Message { kind: Kind::NotExecuted, text, .. }) => Ok(Err(text.parse().unwrap_or_default())),
            Some(message) => Err(StartError::Inside(message.text)),
        }
    }

    fn send(
        &self,
        kind: Kind,
        text: &str,
        descriptors: &[std::os::fd::BorrowedFd<'_>],
    ) -> Result<(), StartError> {
        let channel = self.channel.as_ref().ok_or(StartError::Ended)?;
        // Why it is gone it may have said.
        channel::send(channel, kind, text, descriptors).or_else(|_| self.expect().map(|_| ()))
    }

    fn expect(&self) -> Result<Message, StartError> {
        let channel = self.channel.as_ref().ok_or(StartError::Ended)?;
        match channel::receive(channel)? {
            None => Err(StartError::Ended),
            Some(Message { kind: Kind::Failed, text, .. }) => Err(StartError::Inside(text)),
            Some(message) => Ok(message),
        }
    }

    /// Everybody is inside who they are outside: root all whom it knows, others themselves alone.
    fn map_ids(&self) -> Result<(), StartError> {
        let file = |name: &str| format!("/proc/{}/{name}", self.pid.as_raw_nonzero());
        let write = |name: &str, text: &str| {
            let file = file(name);
            fs::write(&file, text).map_err(|source| StartError::Mapping { file, source })
        };
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        if geteuid().is_root()
            && write("uid_map", &same("uid_map")?).is_ok()
            && write("gid_map", &same("gid_map")?).is_ok()
        {
            return Ok(());
        }
        // A group of one's own must not be used to drop one that denies (user_namespaces(7)).
        write("setgroups", "deny")?;
        write("uid_map", &format!("{uid} {uid} 1\n"))?;
        write("gid_map", &format!("{gid} {gid} 1\n"))
    }
}

/// A map that leaves every ID of this process's namespace as it is.
fn same(name: &str) -> Result<String, StartError> {
    let text = fs::read_to_string(format!("/proc/self/{name}"))?;
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let (first, count) = (words.next()?, words.nth(1)?);
        Some(format!("{first} {first} {count}\n"))
    };
    Ok(text.lines().filter_map(row).collect())
}

impl Drop for Inside {
    fn drop(&mut self) {
        // It ends when its channel does.
        self.channel = None;
        self.doors = Doors::default();
        if !self.is_watched {
            let _ = waitpid(Some(self.pid), WaitOptions::empty());
        }
    }
}
