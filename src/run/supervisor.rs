//! Watches over the command: passes on the signals that are meant for it, stops and goes on with it,
//! and takes what it leaves behind. Ends only when the command has ended.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal as Number, raise};
use nix::sys::signalfd::SignalFd;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpgid, getpgrp, getpid, getsid, pidfd_open, pidfd_send_signal,
    set_child_subreaper, wait,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, oneshot};

use super::leftovers::{self, Leftovers};

/// The signals that are passed on. Those that stop are among them: the command may want to go on, and
/// this process stops when it does.
const PASSED_ON: [(Number, Signal); 10] = [
    (Number::SIGHUP, Signal::HUP),
    (Number::SIGINT, Signal::INT),
    (Number::SIGQUIT, Signal::QUIT),
    (Number::SIGTERM, Signal::TERM),
    (Number::SIGUSR1, Signal::USR1),
    (Number::SIGUSR2, Signal::USR2),
    (Number::SIGWINCH, Signal::WINCH),
    (Number::SIGTSTP, Signal::TSTP),
    (Number::SIGTTIN, Signal::TTIN),
    (Number::SIGTTOU, Signal::TTOU),
];
/// Those of them that ask for an end.
const ENDING: [Signal; 4] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];
/// `si_code` of a signal that the kernel sends by itself, as for a key on the terminal.
const SI_KERNEL: i32 = 0x80;
/// Who stops a process group reaches its members one after the other.
const TOGETHER: Duration = Duration::from_millis(50);

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With this exit status.
    Exited(u8),
    /// By this signal.
    Signalled(u8),
}

impl Ended {
    /// The exit status that tells of it, as shells have it.
    #[must_use]
    pub const fn status(self) -> u8 {
        match self {
            Self::Exited(status) => status,
            Self::Signalled(number) => 128_u8.saturating_add(number),
        }
    }
}

/// What happens to the command, from now on.
#[derive(Debug)]
pub struct Supervisor {
    ended: oneshot::Receiver<Ended>,
    leftovers: oneshot::Receiver<Leftovers>,
    over: Arc<AtomicBool>,
    hurry: Arc<Notify>,
}

impl Supervisor {
    /// Holds signals back from this thread and those that it makes, until `begin` passes them on:
    /// none of them must end this process before the command.
    ///
    /// # Errors
    /// The system's.
    pub fn hold_signals() -> io::Result<()> {
        Ok(held().thread_block()?)
    }

    /// Has the system keep how children ended until they are waited for. Whoever started this process may
    /// have it ignore `SIGCHLD`, and then it keeps nothing, here and in what is started from here. Once
    /// it is handled here, a program that is executed finds it as it is by default.
    ///
    /// # Errors
    /// The system's.
    pub fn expect_children() -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let _within = runtime.enter();
        // The handler stays when nobody listens any more.
        signal(SignalKind::child()).map(drop)
    }

    /// Begins to watch over the process that becomes the command. Processes that its end makes
    /// orphans become this process's children.
    ///
    /// # Errors
    /// The system's.
    pub fn begin(pid: Pid) -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let command = Arc::new(pidfd_open(pid, PidfdFlags::empty())?);
        let signals = SignalFd::new(&held())?;
        let (over, hurry) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
        let (tell, ended) = oneshot::channel();
        let (tell_rest, leftovers) = oneshot::channel();
        let (to, done, hurried) = (Arc::clone(&command), Arc::clone(&over), Arc::clone(&hurry));
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || pass_on(&signals, (pid, &to), &done, &hurried))?;
        let done = Arc::clone(&over);
        thread::Builder::new().name("wait".to_owned()).spawn(move || {
            let end = watch(pid, &command);
            done.store(true, Ordering::SeqCst);
            // Nobody may want to know. What is left is ended by this thread, as the command may have
            // left so much that there is no other.
            let _ = tell.send(end);
            let _ = tell_rest.send(leftovers::end());
        })?;
        Ok(Self { ended, leftovers, over, hurry })
    }

    /// Waits for the end of the command.
    pub async fn ended(&mut self) -> Ended {
        // The thread tells before it ends, unless it panics.
        (&mut self.ended).await.unwrap_or(Ended::Exited(u8::MAX))
    }

    /// Waits, after the command, for the end of what it has left running.
    pub async fn leftovers(&mut self) -> Leftovers {
        (&mut self.leftovers).await.unwrap_or_default()
    }

    /// Waits for a signal after the end of the command: somebody is in a hurry.
    pub async fn hurry(&self) {
        debug_assert!(self.over.load(Ordering::SeqCst), "the command has ended");
        self.hurry.notified().await;
    }
}

fn held() -> SigSet {
    PASSED_ON.iter().map(|(number, _)| *number).collect()
}

fn pass_on(signals: &SignalFd, (pid, command): (Pid, &OwnedFd), over: &AtomicBool, hurry: &Notify) {
    loop {
        let Ok(Some(received)) = signals.read_signal() else { continue };
        let known =
            PASSED_ON.iter().find(|(number, _)| u32::try_from(*number as i32) == Ok(received.ssi_signo));
        let Some((_, signal)) = known else { continue };
        if over.load(Ordering::SeqCst) {
            if ENDING.contains(signal) {
                hurry.notify_one();
            }
        } else if received.ssi_code != SI_KERNEL || !has_it_too(pid, *signal) {
            // It may have ended just now.
            let _ = pidfd_send_signal(command, *signal);
        }
    }
}

/// Has the kernel sent the command the signal too that it sent here? What it sends for a key goes to a
/// process group; that a terminal is gone, to the leader of its session alone.
fn has_it_too(command: Pid, signal: Signal) -> bool {
    let alone = signal == Signal::HUP && getsid(None).is_ok_and(|leader| leader == getpid());
    !alone && getpgid(Some(command)).is_ok_and(|group| group == getpgrp())
}

/// Waits for the command and for every orphan before its end.
fn watch(pid: Pid, command: &OwnedFd) -> Ended {
    loop {
        let (child, status) = match wait(WaitOptions::UNTRACED) {
            Ok(Some(told)) => told,
            Ok(None) | Err(Errno::INTR) => continue,
            // Somebody else has waited for it; there is nothing more to know.
            Err(_) => return Ended::Exited(u8::MAX),
        };
        if child != pid {
            continue;
        }
        let octet = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
        if let Some(code) = status.exit_status() {
            return Ended::Exited(octet(code));
        }
        if let Some(number) = status.terminating_signal() {
            return Ended::Signalled(octet(number));
        }
        if status.stopped() {
            stop_with(pid, command);
        }
    }
}

/// Stops this process too, so that whoever started it has the terminal back; when it goes on, so
/// does the command.
fn stop_with(pid: Pid, command: &OwnedFd) {
    // A key on the terminal has stopped both, and both may go on already.
    thread::sleep(TOGETHER);
    if state_of(pid) != Some('T') {
        return;
    }
    // Sent to this very thread: to the process, another thread might take it, and this one go on first.
    let _ = raise(Number::SIGSTOP);
    let _ = pidfd_send_signal(command, Signal::CONT);
}

/// The state of a process, as in `ps`.
fn state_of(pid: Pid) -> Option<char> {
    stat_of(pid.as_raw_nonzero().get()).map(|(state, _)| state)
}

/// The state of a process and its parent.
pub(super) fn stat_of(pid: i32) -> Option<(char, i32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name in parentheses, which may hold anything.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}
