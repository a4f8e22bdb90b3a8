//! Where there is little of something: a run works, or says what is missing and what to do. It never
//! breaks off or waits for good, and leaves nothing.

use std::fs;
use std::process::{Command, Stdio};

use crate::site::{Site, Told, User, told, users};

const PATIENCE: &str = "60";

const SEVEN: [&str; 3] = ["sh", "-c", "exit 7"];

/// A run of a command behind other words, which must come to an end.
fn behind(site: &Site, user: User, words: &[&str], command: &[&str]) -> Told {
    let run = site.run(user, &["-q"]);
    let mut whole = Command::new("timeout");
    whole.args(["--signal=KILL", PATIENCE]);
    let (own, last) = (run.get_program().to_owned(), run.get_args().map(ToOwned::to_owned));
    // The words are the user's too.
    let mut all: Vec<_> = std::iter::once(own).chain(last).collect();
    let at =
        all.iter().position(|word| word == "--").filter(|_| user == User::Ordinary).map_or(0, |at| at + 1);
    all.splice(at..at, words.iter().map(Into::into));
    whole.args(all).args(command).current_dir(&site.folder).env("TMPDIR", site.folder.path());
    told(whole.stdin(Stdio::null()).output().unwrap())
}

#[test]
fn few_open_files_are_enough_or_named() {
    let site = Site::begin();
    for user in users() {
        for most in [4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 63] {
            let run = behind(&site, user, &["prlimit", &format!("--nofile={most}")], &SEVEN);
            assert_eq!(run.code, Some(125), "{most}: {run:?}");
            assert!(run.stderr.contains("open files") && !run.stderr.contains("panicked"), "{most}: {run:?}");
        }
        // A soft limit is raised; what is let through works.
        for most in ["64", "100", "12:4096"] {
            let run = behind(&site, user, &["prlimit", &format!("--nofile={most}")], &SEVEN);
            assert_eq!((run.code, run.stderr.as_str()), (Some(7), ""), "{most}: {run:?}");
        }
        assert_eq!(site.leftovers(), [""; 0]);
    }
}

#[test]
fn the_command_has_the_limit_on_open_files_that_it_had() {
    let site = Site::begin();
    let mut run = Command::new("prlimit");
    let inner = site.run(User::Own, &["-q"]);
    run.arg("--nofile=100:4096").arg(inner.get_program()).args(inner.get_args());
    run.args(["sh", "-c", "ulimit -Sn"]).current_dir(&site.folder).env("TMPDIR", site.folder.path());
    assert_eq!(told(run.output().unwrap()).stdout, "100\n");
}

#[test]
fn few_threads_are_enough_or_named() {
    let site = Site::begin();
    if !users().contains(&User::Ordinary) {
        return;
    }
    let mut worked = 0;
    for most in (1..=24).chain([10_000]) {
        let run = behind(&site, User::Ordinary, &["prlimit", &format!("--nproc={most}")], &SEVEN);
        match run.code {
            Some(7) => worked += 1,
            // The shell may be the one for which there is no room, at the very edge.
            code => assert_eq!(code, Some(125), "{most}: {run:?}"),
        }
        assert!(
            run.code == Some(7) || run.stderr.contains("Resource temporarily unavailable"),
            "{most}: {run:?}"
        );
        assert!(!run.stderr.contains("panicked"), "{most}: {run:?}");
        assert_eq!(site.leftovers(), [""; 0]);
    }
    assert!(worked > 0);
}

#[test]
fn a_folder_without_room_is_named_with_what_to_do() {
    let site = Site::begin();
    if !users().contains(&User::Own) {
        return;
    }
    let run = site.run(User::Own, &["-q"]);
    for options in ["ro", "size=4k", "nr_inodes=1", "nr_inodes=2"] {
        let place = site.folder.path().join("place");
        fs::create_dir_all(&place).unwrap();
        let mount = "mount -t tmpfs -o $0 none \"$TMPDIR\" && \"$@\"; code=$?; ls -A \"$TMPDIR\"; exit $code";
        let mut whole = Command::new("unshare");
        whole.args(["--user", "--map-root-user", "--mount", "sh", "-c", mount, options]);
        whole.arg(run.get_program()).args(run.get_args()).args(["echo", "ran"]);
        let run = told(whole.current_dir(&site.folder).env("TMPDIR", &place).output().unwrap());
        assert_eq!((run.code, run.stdout.as_str()), (Some(125), ""), "{options}: {run:?}");
        let names = format!("egret: no folder in {}: ", place.display());
        assert!(
            run.stderr.starts_with(&names) && run.stderr.contains("have TMPDIR name a folder"),
            "{run:?}"
        );
    }
}

#[test]
fn without_proc_it_says_so() {
    let site = Site::begin();
    if !users().contains(&User::Own) {
        return;
    }
    let run = site.run(User::Own, &["-q"]);
    let mut whole = Command::new("unshare");
    whole.args([
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        "mount -t tmpfs none /proc && \"$@\"",
        "sh",
    ]);
    whole.arg(run.get_program()).args(run.get_args()).args(["echo", "ran"]);
    let run = told(whole.current_dir(&site.folder).env("TMPDIR", site.folder.path()).output().unwrap());
    assert_eq!((run.code, run.stdout.as_str()), (Some(125), ""), "{run:?}");
    assert!(run.stderr.contains("/proc is not mounted"), "{run:?}");
}

/// Processes of the command take up what the user may have, and make others as fast as they are ended.
#[test]
fn what_multiplies_is_ended_too() {
    let bomb = "import os, time
me = os.getpid()
while True:
    try:
        os.fork()
    except OSError:
        if os.getpid() == me:
            os._exit(6)
        time.sleep(0.001)";
    // One that is never there when it is looked for.
    let chain = "import os, time
if os.fork():
    time.sleep(0.5)
    os._exit(6)
os.setsid()
while True:
    if os.fork():
        os._exit(0)";
    let site = Site::begin();
    for user in users() {
        for (script, outer, inner) in [(bomb, true, "60"), (bomb, false, "200"), (chain, false, "1000")] {
            // Root has no limit.
            if user == User::Own && script == bomb {
                continue;
            }
            let limit = format!("--nproc={inner}");
            let words = if outer { vec!["prlimit", &limit] } else { Vec::new() };
            let mut command = vec![];
            if !outer {
                command.extend(["prlimit", &limit]);
            }
            command.extend(["python3", "-c", script]);
            let run = behind(&site, user, &words, &command);
            assert_eq!(run.code, Some(6), "{user:?} {outer}: {run:?}");
            let left = fs::read_dir("/proc").unwrap().filter_map(|entry| {
                let line = fs::read(entry.ok()?.path().join("cmdline")).ok()?;
                Some(String::from_utf8_lossy(&line).into_owned()).filter(|line| line.contains(script))
            });
            assert_eq!(left.collect::<Vec<_>>(), [""; 0], "{user:?} {outer}: {run:?}");
            assert_eq!(site.leftovers(), [""; 0]);
        }
    }
}
