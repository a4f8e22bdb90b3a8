//! How a run begins and ends: exit statuses, signals, standard input, and that nothing is left.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::site::{Site, User, has, leftovers, open_folder, skipped, told, users};
use crate::support::wait_for;

const PATIENCE: Duration = Duration::from_secs(60);

/// A running shell script that has said `ready` after what it does first, with the number of its process.
struct Running {
    egret: Child,
    stdout: BufReader<ChildStdout>,
    command: i32,
}

fn start(site: &Site, user: User, first: &str, script: &str) -> Running {
    let script = format!("{first}\necho ready $$; {script}");
    let mut run = site.run(user, &[]);
    // Whoever runs the test may ignore some, and then no shell can trap them.
    run.args(["env", "--default-signal=INT,QUIT,HUP", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut egret = run.spawn().unwrap();
    let mut stdout = BufReader::new(egret.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let command = line.trim().strip_prefix("ready ").unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
    Running { egret, stdout, command }
}

impl Running {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.egret), signal).unwrap();
    }

    /// The exit status, and the rest of what the command said.
    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (self.egret.wait().unwrap().code(), rest)
    }
}

fn runs(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// The network namespaces of running processes.
fn namespace_of(pid: i32) -> String {
    fs::read_link(format!("/proc/{pid}/ns/net")).unwrap().to_string_lossy().into_owned()
}

fn is_gone(namespace: &str) -> bool {
    let links = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.ok()?.path().join("ns/net")).ok());
    !links.into_iter().any(|link| link.to_string_lossy() == namespace)
}

#[test]
fn the_exit_status_is_the_commands() {
    let site = Site::begin();
    for user in users() {
        for (script, code) in
            [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
        {
            let run = site.shell(user, &[], script);
            assert_eq!(run.code, Some(code), "{user:?} {script}: {run:?}");
        }
        let run = told(site.run(user, &[]).arg("no-such-program").output().unwrap());
        assert_eq!(run.code, Some(127), "{run:?}");
        assert!(run.stderr.contains("no-such-program can't be executed: No such file"), "{run:?}");
        let run = told(site.run(user, &[]).arg("/etc/passwd").output().unwrap());
        assert_eq!(run.code, Some(126), "{run:?}");
        assert_eq!(site.leftovers(), [""; 0]);
    }
}

/// Whoever starts egret may have left it ignoring that its children end.
#[test]
fn what_the_starter_ignores_does_not_hide_how_the_command_ended() {
    let site = Site::begin();
    for options in [&["-q"][..], &["-q", "--transparent"]] {
        if options.len() > 1 && !has("nft", "--version") {
            skipped("`nft` (nftables) is not installed".to_owned());
            continue;
        }
        let run = site.run(User::Own, options);
        let mut ignoring = Command::new("env");
        ignoring.arg("--ignore-signal=CHLD").arg(run.get_program()).args(run.get_args());
        ignoring.args(["sh", "-c", "sleep 0 & wait $! && exit 7"]);
        let run =
            told(ignoring.env("TMPDIR", site.folder.path()).current_dir(&site.folder).output().unwrap());
        assert_eq!(run.code, Some(7), "{options:?}: {run:?}");
    }
}

#[test]
fn input_and_output_are_the_commands_own() {
    let site = Site::begin();
    let mut run = site.run(User::Own, &["-q"]);
    run.arg("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut egret = run.spawn().unwrap();
    let big = "0123456789abcdef".repeat(1 << 16);
    let mut stdin = egret.stdin.take().unwrap();
    let text = big.clone();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()).unwrap());
    let run = told(egret.wait_with_output().unwrap());
    writer.join().unwrap();
    assert_eq!((run.code, run.stdout == big, run.stderr.as_str()), (Some(0), true, ""));
}

#[test]
fn signals_reach_the_command_once_and_its_answer_counts() {
    let site = Site::begin();
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
    ] {
        let first = format!("n=0; trap 'n=$((n+1))' {name}");
        let script = "while [ $n = 0 ]; do sleep 0.02; done; sleep 0.5; echo $n; exit 9";
        let run = start(&site, User::Own, &first, script);
        run.signal(signal);
        assert_eq!(run.end(), (Some(9), "1\n".to_owned()), "{name}");
    }
    let run = start(&site, User::Own, "", "exec sleep 600");
    run.signal(Signal::TERM);
    assert_eq!(run.end().0, Some(143));
    assert_eq!(site.leftovers(), [""; 0]);
}

#[test]
fn a_killed_egret_leaves_a_command_without_a_network() {
    let site = Site::begin();
    for user in users() {
        let script = format!(
            "read line; curl -sS -m 20 http://ok.test:{}/ 2>&1; curl -sS -m 20 --noproxy '*' http://127.0.0.1:{0}/ 2>&1; echo done",
            site.origin.port()
        );
        let mut run = site.run(user, &[]);
        run.args(["sh", "-c", &format!("echo $$; {script}")]);
        run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut egret = run.spawn().unwrap();
        let mut stdin = egret.stdin.take().unwrap();
        let mut stdout = BufReader::new(egret.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let command: i32 = line.trim().parse().unwrap();
        let namespace = namespace_of(command);
        egret.kill().unwrap();
        egret.wait().unwrap();
        assert!(runs(command), "the command lives on");
        writeln!(stdin).unwrap();
        let mut said = String::new();
        stdout.read_to_string(&mut said).unwrap();
        assert_eq!(said.matches("curl: (7)").count(), 2, "{user:?}: {said}");
        assert!(said.ends_with("done\n"), "{said}");
        wait_for("the command's end", PATIENCE, || !runs(command));
        wait_for("the end of the namespace", PATIENCE, || is_gone(&namespace));
        assert_eq!(site.origin.accepted(), 0);
        // Its folder is there until the next run.
        assert_eq!(site.leftovers().len(), 1);
        assert_eq!(site.shell(user, &[], "true").code, Some(0));
        assert_eq!(site.leftovers(), [""; 0]);
    }
}

#[test]
fn a_kill_at_any_moment_leaves_nothing_that_the_next_run_does_not_remove() {
    let site = Site::begin();
    let waits = [0, 2, 5, 10, 15, 20, 30, 40, 60, 90, 150, 300];
    // Where `nft` is missing, the second kind ends by itself.
    for (wait, options) in
        waits.iter().flat_map(|wait| [(wait, &["-q"][..]), (wait, &["-q", "--transparent"])])
    {
        let mut run = site.run(User::Own, options);
        let mut egret = run.args(["sleep", "0.2"]).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(*wait));
        let pid = egret.id();
        let _ = egret.kill();
        egret.wait().unwrap();
        // The process inside, if there was one, has noticed or has become the command.
        let of_this_run = || {
            let commands = fs::read_dir("/proc")
                .unwrap()
                .filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
            let own = site.folder.path().display().to_string();
            commands.filter(|line| String::from_utf8_lossy(line).contains(&own)).count()
        };
        wait_for(&format!("the end of what {pid} began"), PATIENCE, || of_this_run() == 0);
    }
    assert_eq!(site.shell(User::Own, &[], "curl -sS http://ok.test:{port}/").stdout, "hello");
    assert_eq!(site.leftovers(), [""; 0]);
}

#[test]
fn what_the_command_leaves_running_is_ended() {
    let site = Site::begin();
    let run = start(&site, User::Own, "", "setsid sleep 600 >/dev/null 2>&1 </dev/null & echo $!; exit 3");
    let namespace = namespace_of(std::process::id().cast_signed());
    let (code, said) = run.end();
    let left: i32 = said.trim().parse().unwrap();
    assert_eq!(code, Some(3));
    assert!(!runs(left), "the process that was left behind still runs");
    assert_eq!(namespace_of(std::process::id().cast_signed()), namespace);
    // One that does not heed SIGTERM is killed.
    let run = start(
        &site,
        User::Own,
        "",
        "(trap '' TERM; while :; do sleep 1; done) >/dev/null 2>&1 & echo $!; exit 4",
    );
    let (code, said) = run.end();
    assert_eq!(code, Some(4));
    assert!(!runs(said.trim().parse().unwrap()));
}

#[test]
fn a_killed_command_ends_the_run() {
    let site = Site::begin();
    let run = start(&site, User::Own, "", "while :; do sleep 1; done");
    let namespace = namespace_of(run.command);
    kill_process(Pid::from_raw(run.command).unwrap(), Signal::KILL).unwrap();
    assert_eq!(run.end().0, Some(137));
    assert!(is_gone(&namespace));
    assert_eq!(site.leftovers(), [""; 0]);
}

#[test]
fn the_summary_and_the_audit_tell_the_same() {
    let site = Site::begin();
    let script = "curl -sS -o /dev/null http://ok.test:{port}/ http://ok.test:{port}/ http://no.test:{port}/";
    let run = site.shell(User::Own, &["--sandbox", "build-7", "--json", "--audit", "kept.ndjson"], script);
    let line = run.stderr.lines().find(|line| line.starts_with('{')).unwrap();
    let whole: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&whole["sandbox"], &whole["status"]), (&"build-7".into(), &0.into()));
    let rows = whole["destinations"].as_array().unwrap();
    assert_eq!((&rows[0]["host"], &rows[0]["refused"]), (&"no.test".into(), &1.into()));
    assert_eq!(
        (&rows[1]["host"], &rows[1]["allowed"], &rows[1]["bytes_down"]),
        (&"ok.test".into(), &2.into(), &10.into())
    );
    let audit = fs::read_to_string(site.folder.path().join("kept.ndjson")).unwrap();
    let records: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |event: &str| records.iter().filter(|record| record["event"] == event).count();
    assert_eq!((of("start"), of("decision"), of("close"), of("stop")), (1, 3, 2, 1), "{audit}");
    assert!(records.iter().filter(|record| record["event"] == "decision").all(|r| r["sandbox"] == "build-7"));
    let text = site.shell(User::Own, &[], script).stderr;
    assert!(text.contains("egret: 3 requests to 2 destinations: 2 allowed, 1 refused\n"), "{text}");
    assert!(text.contains("10 B down"), "{text}");
    assert_eq!(site.shell(User::Own, &["--quiet"], "true").stderr, "");
}

#[test]
fn options_alone_allow_and_the_hint_says_how() {
    let folder = open_folder();
    let mut run = User::Own.run(folder.path());
    let script = "for u in http://a.example/ http://b.example:81/ http://c.other.example:81/; do \
         curl -s -o /dev/null -w '%{http_code} ' $u; done";
    run.args(["--allow", "*.other.example", "--", "sh", "-c", script]);
    let run = told(run.output().unwrap());
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "403 403 403 "), "{run:?}");
    assert!(run.stderr.contains("  --allow a.example\n"), "{run:?}");
    assert!(run.stderr.contains("  --allow b.example:81\n"), "{run:?}");
    assert!(run.stderr.contains("port_not_allowed  --allow c.other.example:81\n"), "{run:?}");
    assert_eq!(leftovers(folder.path()), [""; 0]);
}
