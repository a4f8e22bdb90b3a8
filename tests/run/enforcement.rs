//! The command reaches what its policy allows, through egret, and nothing else in any other way.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Command;

use crate::site::{Site, User, binary, has, skipped, told, users};

/// Tries every way out that a program has, and says what became of each.
const WAYS_OUT: &str = r#"
import errno, socket, sys
def say(what, work):
    try:
        work()
        print(what, "REACHED")
    except OSError as error:
        print(what, errno.errorcode.get(error.errno, str(error)))
def tcp(family, address, port):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(20)
        s.connect((address, port))
def udp(family, address, port):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.sendto(b"x", (address, port))
def icmp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as s:
        s.sendto(b"\x08\x00\xf7\xff\x00\x00\x00\x00", ("93.184.216.34", 0))
def raw():
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
def packet():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()
def abstract():
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.connect("\0" + sys.argv[2])
port = int(sys.argv[1])
say("tcp4", lambda: tcp(socket.AF_INET, "93.184.216.34", 80))
say("tcp6", lambda: tcp(socket.AF_INET6, "2606:4700::1111", 443))
say("dns4", lambda: udp(socket.AF_INET, "9.9.9.9", 53))
say("quic6", lambda: udp(socket.AF_INET6, "2606:4700::1111", 443))
say("metadata", lambda: tcp(socket.AF_INET, "169.254.169.254", 80))
say("private", lambda: tcp(socket.AF_INET, "10.0.0.1", 80))
say("loopback", lambda: tcp(socket.AF_INET, "127.0.0.1", port))
say("icmp", icmp)
say("raw", raw)
say("packet", packet)
say("abstract", abstract)
"#;

#[test]
fn clients_reach_what_is_allowed_and_hear_why_they_do_not() {
    let site = Site::begin();
    for user in users() {
        let run = site.shell(
            user,
            &[],
            "curl -sS http://ok.test:{port}/; curl -sS -o /dev/null -w '%{http_code}' http://no.test:{port}/",
        );
        assert_eq!((run.code, run.stdout.as_str()), (Some(0), "hello403"), "{user:?}: {run:?}");
        let python = "import urllib.request as r\n\
             print(r.urlopen('http://ok.test:{port}/').read())\n\
             try: r.urlopen('http://no.test:{port}/')\n\
             except Exception as e: print(e)";
        let run = site.shell(user, &[], &format!("python3 -c \"{python}\""));
        assert_eq!(run.stdout, "b'hello'\nHTTP Error 403: egret domain_not_allowed\n", "{user:?}: {run:?}");
        assert!(run.stderr.contains("domain_not_allowed"), "{run:?}");
        assert!(site.leftovers().is_empty(), "{:?}", site.leftovers());
    }
    if !has("git", "--version") {
        return skipped("git is not installed".to_owned());
    }
    let asked = "GIT_TERMINAL_PROMPT=0 git ls-remote http://no.test:{port}/x.git";
    let run = site.shell(User::Own, &[], asked);
    assert_eq!(run.code, Some(128));
    assert!(run.stderr.contains("returned error: 403"), "{run:?}");
    // Its question arrived; that is all this origin can do for it.
    let before = site.origin.requests().len();
    site.shell(User::Own, &[], &asked.replace("no.test", "ok.test"));
    assert_eq!(site.origin.requests()[before].path(), "/x.git/info/refs?service=git-upload-pack");
}

#[test]
fn there_is_no_other_way_out() {
    let site = Site::begin();
    let name = format!("egret-test-{}", std::process::id());
    let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    fs::write(site.folder.path().join("ways_out.py"), WAYS_OUT).unwrap();
    let script = format!("python3 ways_out.py {{port}} {name}");
    for user in users() {
        let run = site.shell(user, &[], &script);
        assert_eq!(
            run.stdout,
            "tcp4 ENETUNREACH\ntcp6 ENETUNREACH\ndns4 ENETUNREACH\nquic6 ENETUNREACH\n\
             metadata ENETUNREACH\nprivate ENETUNREACH\nloopback ECONNREFUSED\n\
             icmp EACCES\nraw EPERM\npacket EPERM\nabstract ECONNREFUSED\n",
            "{user:?}: {run:?}"
        );
    }
    assert_eq!(site.origin.accepted(), 0);
    // The same origin and the same socket can be reached from here.
    let port = site.origin.port().to_string();
    let mut outside = Command::new("python3");
    outside.arg("ways_out.py").args([&port, &name]).current_dir(&site.folder);
    let told = told(outside.output().unwrap());
    assert!(told.stdout.contains("loopback REACHED\n") && told.stdout.contains("abstract REACHED\n"));
}

#[test]
fn the_namespace_can_not_be_altered_or_left() {
    let site = Site::begin();
    let tries = [
        "ip link add dummy0 type dummy",
        "ip link set lo down",
        "ip address add 10.9.9.9/32 dev lo",
        "nsenter --net=/proc/1/ns/net true",
        "nsenter --net=/proc/$PPID/ns/net true",
        "mount -t tmpfs none /mnt",
        "chroot / unshare --net true",
    ];
    let script: String = tries.iter().map(|each| format!("{each} 2>/dev/null; echo $?;")).collect();
    for user in users() {
        let run = site.shell(user, &[], &script);
        let codes: Vec<_> = run.stdout.lines().collect();
        assert!(codes.len() == tries.len() && codes.iter().all(|code| *code != "0"), "{user:?}: {run:?}");
        let run = site.shell(user, &[], "unshare -Urn true; ls /sys/class/net 2>/dev/null; grep -c : /proc/net/dev; grep NoNewPrivs /proc/self/status");
        assert!(run.stdout.ends_with("1\nNoNewPrivs:\t1\n"), "one interface: {run:?}");
    }
    let run = site.shell(User::Own, &[], "grep -E '^Cap(Prm|Bnd|Amb)' /proc/self/status");
    let sets: Vec<_> = run.stdout.split_whitespace().filter(|word| !word.ends_with(':')).collect();
    for set in sets {
        // Neither CAP_NET_ADMIN (12), CAP_NET_RAW (13), CAP_SYS_PTRACE (19) nor CAP_SYS_ADMIN (21).
        let bits = u64::from_str_radix(set, 16).unwrap();
        assert_eq!(bits & (1 << 12 | 1 << 13 | 1 << 19 | 1 << 21), 0, "{run:?}");
    }
}

#[test]
fn sockets_of_others_are_not_inherited_but_pipes_are() {
    let site = Site::begin();
    let python = format!(
        "import os, socket, subprocess, sys\n\
         s = socket.create_connection(('127.0.0.1', {}))\n\
         os.set_inheritable(s.fileno(), True)\n\
         r, w = os.pipe()\n\
         os.set_inheritable(r, True)\n\
         os.write(w, b'through')\n\
         os.close(w)\n\
         script = f'ls -l /proc/self/fd; cat <&{{r}}'\n\
         sys.exit(subprocess.call(sys.argv[1:] + [script], close_fds=False))",
        site.origin.port()
    );
    let run = site.run(User::Own, &["-q"]);
    let mut outside = Command::new("python3");
    outside.args(["-c", &python]).arg(run.get_program()).args(run.get_args()).args(["sh", "-c"]);
    let told = told(outside.current_dir(&site.folder).output().unwrap());
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(told.stdout.ends_with("through"), "{told:?}");
    assert!(!told.stdout.contains("socket:["), "{told:?}");
}

/// A socket is connected anew, in whatever namespace the command is.
const ANEW: &str = r#"
import ctypes, socket, sys
ctypes.CDLL(None).connect(0, bytes(16), 16)
with socket.socket(fileno=0) as s:
    s.connect(("127.0.0.1", int(sys.argv[1])))
"#;

#[test]
fn a_network_socket_is_no_standard_input() {
    let site = Site::begin();
    fs::write(site.folder.path().join("anew.py"), ANEW).unwrap();
    let port = site.origin.port().to_string();
    for user in users() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = || OwnedFd::from(TcpStream::connect(other.local_addr().unwrap()).unwrap());
        let with = |standard: &dyn Fn(&mut Command)| {
            let mut run = site.run(user, &["-q"]);
            run.args(["python3", "anew.py", &port]);
            standard(&mut run);
            told(run.output().unwrap())
        };
        let input = with(&|run| {
            run.stdin(connected());
        });
        assert_eq!(input.code, Some(125), "{input:?}");
        assert!(input.stderr.contains("standard input is a network socket"), "{input:?}");
        let output = with(&|run| {
            run.stdout(connected());
        });
        assert_eq!(output.code, Some(125), "{output:?}");
        assert!(output.stderr.contains("standard output is a network socket"), "{output:?}");
    }
    assert_eq!(site.origin.accepted(), 0);
    // Without egret it works.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut outside = Command::new("python3");
    outside.args(["anew.py", &port]).current_dir(&site.folder).stdin(OwnedFd::from(stream));
    assert!(outside.status().unwrap().success());
}

#[test]
fn the_probe_finds_no_other_way_out() {
    let site = Site::begin();
    if !users().contains(&User::Ordinary) {
        return;
    }
    let place = |name: &str| format!("http://{name}.test:{}/", site.origin.port());
    let mut run = site.run(User::Ordinary, &["-q"]);
    run.arg(binary()).args(["probe", "--allowed", &place("ok"), "--refused", &place("no")]);
    let probe = told(run.output().unwrap());
    assert_eq!(probe.code, Some(0), "{probe:?}");
    for line in ["pass        direct tcp:1.1.1.1:443: unreachable", "PASS: "] {
        assert!(probe.stdout.contains(line), "{line}: {probe:?}");
    }
}

#[test]
fn a_run_in_a_run_reaches_nothing() {
    let site = Site::begin();
    for user in users() {
        let inner = |rules: &str| {
            let script = format!(
                "{} run -q {rules} -- curl -s -o /dev/null -w '%{{http_code}}' http://no.test:{{port}}/",
                binary().display()
            );
            site.shell(user, &["-q"], &script)
        };
        // The inner one allows it, and has no network to look the name up.
        let run = inner("--allow no.test:{port}");
        assert!(run.stdout.starts_with("50"), "{user:?}: {run:?}");
        assert_eq!(inner("").stdout, "403", "{user:?}");
    }
    assert_eq!(site.origin.accepted(), 0);
}
