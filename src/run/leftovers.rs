//! Ends what a command has left running: it would have no network any more, and nobody to end it. What
//! makes processes faster than they are ended is stopped first, until nothing new is found. Signals
//! nobody but descendants of this process.

use std::collections::HashSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, pidfd_send_signal, wait,
};

use super::supervisor::stat_of;

/// They may take this long to end by themselves.
const LEAVING: Duration = Duration::from_secs(2);
/// And this long to be stopped and killed.
const KILLED: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What was left running.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// That many processes, which were told to end.
    pub found: usize,
    /// So many of them are there still.
    pub remain: usize,
}

/// Ends them. Blocks for a while, once this process is the one that orphans come to.
pub(super) fn end() -> Leftovers {
    let began = Instant::now();
    let mut seen = HashSet::new();
    loop {
        reap();
        let left = children();
        if left.is_empty() {
            return Leftovers { found: seen.len(), remain: 0 };
        }
        if began.elapsed() > LEAVING {
            break;
        }
        for child in left.into_iter().filter(|child| seen.insert(*child)) {
            // Not reaped yet, so the number is nobody else's.
            let Some(pid) = Pid::from_raw(child) else { continue };
            let _ = kill_process(pid, Signal::TERM);
            // One that is stopped would not hear of it.
            let _ = kill_process(pid, Signal::CONT);
        }
        thread::sleep(LOOK_EVERY);
    }
    let remain = kill_all(began + LEAVING + KILLED, &mut seen);
    Leftovers { found: seen.len(), remain }
}

/// Kills all descendants, and gives the number of those that remain.
fn kill_all(until: Instant, seen: &mut HashSet<i32>) -> usize {
    loop {
        let mut stopped = HashSet::new();
        // What is stopped makes no others, and takes up what there is for the rest to be made of.
        loop {
            let fresh: Vec<_> = descendants().into_iter().filter(|(pid, _)| stopped.insert(*pid)).collect();
            if fresh.is_empty() || Instant::now() > until {
                break;
            }
            fresh.iter().for_each(|descendant| signal(*descendant, Signal::STOP));
        }
        seen.extend(&stopped);
        descendants().into_iter().for_each(|descendant| signal(descendant, Signal::KILL));
        reap();
        let left = children();
        if left.is_empty() || Instant::now() > until {
            return left.len();
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn reap() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

/// Sends a signal to a process, if it is the one that was found: the number may be another's by now.
fn signal((pid, parent): (i32, i32), signal: Signal) {
    let Some(process) = Pid::from_raw(pid) else { return };
    let Ok(handle) = pidfd_open(process, PidfdFlags::empty()) else { return };
    let own = getpid().as_raw_nonzero().get();
    if stat_of(pid).is_some_and(|(_, now)| now == parent || now == own) {
        let _ = pidfd_send_signal(&handle, signal);
    }
}

/// The processes whose parent this one is.
fn children() -> Vec<i32> {
    let own = getpid().as_raw_nonzero().get();
    children_of(own).into_iter().filter(|pid| stat_of(*pid).is_some_and(|(state, _)| state != 'Z')).collect()
}

/// All that come from this process, each with its parent. What is made meanwhile may be missing.
fn descendants() -> Vec<(i32, i32)> {
    let mut parents = vec![getpid().as_raw_nonzero().get()];
    let mut found = Vec::new();
    while let Some(parent) = parents.pop() {
        for child in children_of(parent) {
            found.push((child, parent));
            parents.push(child);
        }
    }
    found
}

/// The children of a process: of each of its threads, as the kernel lists them, or else (an option of the
/// kernel) by looking at all processes.
fn children_of(parent: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else { return Vec::new() };
    let mut children = Vec::new();
    for thread in threads.filter_map(Result::ok) {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(list) => children.extend(list.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok())),
            // It has ended.
            Err(_) if !thread.path().exists() => {}
            Err(_) => return by_looking(parent),
        }
    }
    children
}

fn by_looking(parent: i32) -> Vec<i32> {
    let Ok(list) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter(|pid| stat_of(*pid).is_some_and(|(_, of)| of == parent)).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn children_are_found_either_way() {
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let (pid, own) = (child.id().cast_signed(), std::process::id().cast_signed());
        assert!(children_of(own).contains(&pid));
        assert!(by_looking(own).contains(&pid));
        assert!(descendants().contains(&(pid, own)));
        // The number of another's child is not signalled.
        signal((pid, own + 1_000_000), Signal::KILL);
        assert!(by_looking(own).contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children_of(own).contains(&pid) && !by_looking(own).contains(&pid));
    }
}
