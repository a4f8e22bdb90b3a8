//! The terminal is the command's: keys that send signals, job control, an interactive shell.

use std::process::Command;

use crate::site::{Site, User, has, skipped, told, users};

/// Runs egret on a pseudo-terminal, types, and says what came out. `steps` are pairs: what to wait
/// for, and what to type then, or `CLOSE` for a terminal that is closed.
const PTY: &str = r#"
import os, pty, select, sys, time
argv, steps = eval(sys.argv[1])
pid, fd = pty.fork()
if pid == 0:
    os.execvp(argv[0], argv)
out = b""
deadline = time.time() + 100
def read():
    global out
    if time.time() > deadline:
        sys.stdout.write("TIMEOUT " + out.decode()); os.kill(pid, 9); sys.exit(1)
    if select.select([fd], [], [], 0.1)[0]:
        try:
            data = os.read(fd, 4096)
        except OSError:
            data = b""
        out += data
        return bool(data)
    return True
at = 0
for wait, keys in steps:
    while out.find(wait.encode(), at) < 0:
        if not read():
            break
    at = max(out.find(wait.encode(), at), 0) + len(wait)
    time.sleep(0.3)
    if keys == "CLOSE":
        os.close(fd)
        break
    os.write(fd, keys.encode())
else:
    while read():
        pass
while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
    if time.time() > deadline:
        sys.stdout.write("TIMEOUT " + out.decode()); os.kill(pid, 9); sys.exit(1)
    time.sleep(0.02)
status = ended[1]
sys.stdout.write(out.decode().replace("\r\n", "\n"))
print("CODE", os.waitstatus_to_exitcode(status))
"#;

fn on_a_terminal(argv: &[String], steps: &[(&str, &str)]) -> String {
    let list: Vec<String> = argv.iter().map(|word| format!("{word:?}")).collect();
    let steps: Vec<String> = steps.iter().map(|(wait, keys)| format!("({wait:?}, {keys:?})")).collect();
    let literal = format!("([{}], [{}])", list.join(", "), steps.join(", ")).replace("\\u{3}", "\\x03");
    let literal = literal.replace("\\u{1a}", "\\x1a").replace("\\u{1c}", "\\x1c");
    let output = Command::new("python3")
        .args(["-c", PTY, &literal])
        .env("PS1", "out> ")
        .env("TERM", "dumb")
        .output()
        .unwrap();
    let run = told(output);
    assert!(!run.stdout.starts_with("TIMEOUT"), "{run:?}");
    run.stdout
}

/// The words of a run of this script.
fn words(site: &Site, user: User, script: &str) -> Vec<String> {
    let mut run = site.run(user, &["-q"]);
    run.args(["sh", "-c", script]);
    let config = site.folder.path().join("egret.toml").display().to_string();
    let words = std::iter::once(run.get_program()).chain(run.get_args());
    let words = words.map(|word| word.to_string_lossy().into_owned());
    words.map(|word| if word == "egret.toml" { config.clone() } else { word }).collect()
}

#[test]
fn an_interrupt_key_reaches_the_command_once() {
    let site = Site::begin();
    for user in users() {
        let script = "n=0; trap 'n=$((n+1))' INT; echo up; while [ $n = 0 ]; do sleep 0.02; done; sleep 0.5; echo got $n; exit 5";
        let said = on_a_terminal(&words(&site, user, script), &[("up", "\u{3}")]);
        assert!(said.contains("got 1\n") && said.ends_with("CODE 5\n"), "{user:?}: {said}");
        let said = on_a_terminal(&words(&site, user, "echo up; exec sleep 100"), &[("up", "\u{3}")]);
        assert!(said.ends_with("CODE 130\n"), "{user:?}: {said}");
    }
}

/// One that leads its session, as in a window of its own, has its end told to nobody else.
#[test]
fn a_terminal_that_is_closed_ends_the_command() {
    let site = Site::begin();
    for user in users() {
        let script = "echo up $$; exec sleep 100";
        let said = on_a_terminal(&words(&site, user, script), &[("up", "CLOSE")]);
        assert!(said.ends_with("CODE 129\n"), "{user:?}: {said}");
        assert_eq!(site.leftovers(), [""; 0]);
    }
}

/// The key reaches egret's process group, and the command is in another.
#[test]
fn a_command_in_another_group_is_interrupted_too() {
    let site = Site::begin();
    for user in users() {
        for (key, code) in [("\u{3}", 130), ("\u{1c}", 131)] {
            let mut words = words(&site, user, "ulimit -c 0; echo up; exec sleep 100");
            let at = words.len() - 3;
            words.insert(at, "setsid".to_owned());
            let said = on_a_terminal(&words, &[("up", key)]);
            assert!(said.ends_with(&format!("CODE {code}\n")), "{user:?}: {said}");
        }
    }
}

/// A shell on a terminal, and the words of a run as they are typed into it.
fn shell() -> Option<Vec<String>> {
    if !has("bash", "--version") {
        skipped("bash is not installed".to_owned());
        return None;
    }
    let shell = ["env", "PS1=out> ", "TERM=dumb", "bash", "--norc", "-i"];
    users().contains(&User::Own).then(|| shell.map(str::to_owned).to_vec())
}

fn quoted(words: Vec<String>) -> String {
    words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect::<Vec<_>>().join(" ")
}

/// Whatever stops or does not stop the command, egret does the same.
#[test]
fn it_stops_when_the_command_does_and_only_then() {
    let Some(bash) = shell() else { return };
    let site = Site::begin();
    // A command that does not heed the key goes on in the foreground, with its network.
    let fetch = format!("curl -sS http://ok.test:{}/", site.origin.port());
    let script = format!("trap '' TSTP; echo up; read x; echo read $x; {fetch}; exit 6");
    let line = quoted(words(&site, User::Own, &script));
    let said = on_a_terminal(
        &bash,
        &[
            ("out> ", &format!("{line}\n")),
            ("\nup", "\u{1a}"),
            ("^Z", "key\n"),
            ("hello", "echo code=$?\n"),
            ("code=6", "exit 0\n"),
        ],
    );
    assert!(said.contains("read key\n") && !said.contains("Stopped"), "{said}");
    // One that does is stopped as well where egret alone is sent the signal, or by its own hand.
    for (who, signal) in
        [("$PPID", "TSTP"), ("$PPID", "TTIN"), ("$PPID", "TTOU"), ("$$", "STOP"), ("$$", "TSTP")]
    {
        let script =
            format!("echo $$ >pid; kill -{signal} {who}; while :; do sleep 0.02; [ -e go ] && exit 7; done");
        let line = quoted(words(&site, User::Own, &script));
        let go = site.folder.path().join("go");
        let said = on_a_terminal(
            &bash,
            &[
                ("out> ", &format!("cd '{}'; {line}\n", site.folder.path().display())),
                ("Stopped", "grep State /proc/$(cat pid)/status\n"),
                ("State:", "touch go; fg\n"),
                ("out> ", "echo code=$?\n"),
                ("code=7", "exit 0\n"),
            ],
        );
        std::fs::remove_file(go).unwrap();
        assert!(said.contains("T (stopped)") && said.contains("code=7"), "{signal} {who}: {said}");
    }
}

#[test]
fn a_shell_stops_and_continues_it() {
    let Some(bash) = shell() else { return };
    let site = Site::begin();
    let fetch = format!("curl -sS http://ok.test:{}/", site.origin.port());
    let script = format!("echo up; read x; echo read $x; {fetch}; exit 6");
    let line = quoted(words(&site, User::Own, &script));
    let said = on_a_terminal(
        &bash,
        &[
            ("out> ", &format!("{line}\n")),
            ("\nup", "\u{1a}"),
            ("Stopped", "echo st''opped; fg\n"),
            ("stopped", "key\n"),
            ("hello", "echo code=$?\n"),
            ("code=6", "exit 0\n"),
        ],
    );
    assert!(said.contains("read key\n") && said.contains("code=6") && said.ends_with("CODE 0\n"), "{said}");
    // A shell inside has jobs of its own, and stops with all around it.
    let line = quoted(words(&site, User::Own, "exec bash --norc -i"));
    let said = on_a_terminal(
        &bash,
        &[
            ("out> ", &format!("{line}\n")),
            ("out> ", "PS1='in> '\n"),
            ("\nin> ", "sh -c 'echo st''arted; exec sleep 100'\n"),
            ("started", "\u{1a}"),
            ("Stopped", "kill %1; suspend -f\n"),
            ("out> ", "fg\n"),
            ("\nin> ", &format!("{fetch}; exit 8\n")),
            ("out> ", "echo code=$?\n"),
            ("code=8", "exit 0\n"),
        ],
    );
    assert!(said.contains("hello") && said.contains("code=8"), "{said}");
}
