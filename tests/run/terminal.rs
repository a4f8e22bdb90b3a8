//! The terminal is the command's: keys that send signals, job control, an interactive shell.

use std::process::Command;

use crate::site::{Site, User, has, skipped, told, users};

/// Runs egret on a pseudo-terminal, types, and says what came out. `steps` are pairs: what to wait
/// for, and what to type then.
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
    os.write(fd, keys.encode())
while read():
    pass
_, status = os.waitpid(pid, 0)
sys.stdout.write(out.decode().replace("\r\n", "\n"))
print("CODE", os.waitstatus_to_exitcode(status))
"#;

fn on_a_terminal(argv: &[String], steps: &[(&str, &str)]) -> String {
    let list: Vec<String> = argv.iter().map(|word| format!("{word:?}")).collect();
    let steps: Vec<String> = steps.iter().map(|(wait, keys)| format!("({wait:?}, {keys:?})")).collect();
    let literal = format!("([{}], [{}])", list.join(", "), steps.join(", ")).replace("\\u{3}", "\\x03");
    let literal = literal.replace("\\u{1a}", "\\x1a").replace("\\u{4}", "\\x04");
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

/// The words of a run of this script, by an interactive shell where `job` is set.
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

#[test]
fn a_shell_stops_and_continues_it() {
    if !has("bash", "--version") {
        return skipped("bash is not installed".to_owned());
    }
    let site = Site::begin();
    if !users().contains(&User::Own) {
        return;
    }
    let quoted = |words: Vec<String>| {
        words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect::<Vec<_>>().join(" ")
    };
    let fetch = format!("curl -sS http://ok.test:{}/", site.origin.port());
    let script = format!("echo up; read x; echo read $x; {fetch}; exit 6");
    let line = quoted(words(&site, User::Own, &script));
    let bash: Vec<String> =
        ["env", "PS1=out> ", "TERM=dumb", "bash", "--norc", "-i"].map(str::to_owned).to_vec();
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
