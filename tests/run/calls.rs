//! Ways around the network namespace by system calls that it does not hold back. Each is tried outside
//! too, where it has to work: else nothing was shown.

use std::fs;
use std::process::Command;

use crate::site::{Site, has, skipped, told, users};

/// Tries each, and says what became of it.
const ATTACKS: &str = r#"
import ctypes, errno, fcntl, os, platform, socket, sys, termios
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    result = libc.syscall(*[ctypes.c_long(a) for a in arguments])
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result
def address(octets):
    kept.append(ctypes.create_string_buffer(octets))
    return ctypes.addressof(kept[-1])
kept = []
machine = platform.machine()
IOCTL, SOCKET, REQUEST_KEY = {"x86_64": (16, 41, 249), "aarch64": (29, 198, 218)}[machine]
HIGH = 1 << 32
def on_terminal(work):
    _, terminal = os.openpty()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        try:
            work(terminal)
        except OSError as error:
            os.write(write, b"%d" % error.errno)
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    number = os.read(read, 9)
    if number:
        raise OSError(int(number), "")
attacks = {
    "typing": lambda: on_terminal(lambda t: fcntl.ioctl(t, termios.TIOCSTI, b"x")),
    "typing, high bits": lambda: on_terminal(lambda t: call(IOCTL, t, termios.TIOCSTI | HIGH, address(b"x"))),
    "virtual machine": lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close(),
    "virtual machine, high bits": lambda: os.close(call(SOCKET, socket.AF_VSOCK | HIGH, 1, 0)),
    "io_uring": lambda: os.close(call(425, 8, address(bytes(120)))),
    # The kernel answers ENOKEY where nobody has such a key.
    "request_key": lambda: call(REQUEST_KEY, address(b"user"), address(b"egret-test-none"), 0, 0),
    "other interface": lambda: os.close(call(0x40000000 | SOCKET, socket.AF_VSOCK, 1, 0)),
}
for name, work in attacks.items():
    try:
        work()
        print(name, "->", "REACHED")
    except OSError as error:
        print(name, "->", errno.errorcode.get(error.errno, error))
"#;

#[test]
fn system_calls_do_not_lead_around_the_namespace() {
    let site = Site::begin();
    fs::write(site.folder.path().join("attacks.py"), ATTACKS).unwrap();
    let outside = told(Command::new("python3").arg("attacks.py").current_dir(&site.folder).output().unwrap());
    assert_eq!(outside.code, Some(0), "{outside:?}");
    for (attack, works) in [
        ("typing", "REACHED"),
        ("typing, high bits", "REACHED"),
        ("virtual machine", "REACHED"),
        ("virtual machine, high bits", "REACHED"),
        ("io_uring", "REACHED"),
        ("request_key", "ENOKEY"),
    ] {
        if !outside.stdout.contains(&format!("{attack} -> {works}\n")) {
            println!("not shown, since this kernel refuses it to everybody: {attack}");
        }
    }
    for user in users() {
        let inside = site.shell(user, &[], "python3 attacks.py");
        assert_eq!(
            inside.stdout,
            "typing -> EPERM\ntyping, high bits -> EPERM\nvirtual machine -> EAFNOSUPPORT\n\
             virtual machine, high bits -> EAFNOSUPPORT\nio_uring -> ENOSYS\nrequest_key -> ENOSYS\n\
             other interface -> ENOSYS\n",
            "{user:?}: {inside:?}"
        );
    }
}

#[test]
fn programs_of_every_day_do_not_notice() {
    let site = Site::begin();
    let programs = [
        ("curl", "curl -sS http://ok.test:{port}/", "hello"),
        (
            "node",
            "node -e 'require(\"fs\").promises.readFile(\"egret.toml\").then(() => console.log(\"fine\"))'",
            "fine\n",
        ),
        ("git", "git init -q repository && git -C repository status --short && echo fine", "fine\n"),
        ("cargo", "cargo --version >/dev/null && echo fine", "fine\n"),
        ("npm", "npm --version >/dev/null && echo fine", "fine\n"),
        (
            "python3",
            "python3 -c 'import asyncio, multiprocessing as m; print(m.Pool(2).map(abs, [-1, 2]))'",
            "[1, 2]\n",
        ),
        ("bash", "bash -c 'set -m; sleep 0.1 & wait %1; echo fine'", "fine\n"),
        ("script", "script -qec 'stty size >/dev/null; echo fine' /dev/null | tr -d '\\r'", "fine\n"),
        ("ip", "ip -o link | wc -l", "1\n"),
    ];
    for user in users() {
        for (program, script, expected) in programs {
            if !has(program, if program == "ip" { "-V" } else { "--version" }) {
                skipped(format!("{program} is not installed"));
                continue;
            }
            let script = format!("export HOME=$PWD; rm -rf repository; {script}");
            let run = site.shell(user, &["-q"], &script);
            let is_there = !run.stderr.contains("Permission denied") && !run.stderr.contains("not found");
            if is_there {
                assert_eq!(run.stdout, expected, "{user:?} {program}: {run:?}");
            }
        }
    }
}
