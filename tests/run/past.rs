//! `--transparent`: programs that know of no proxy work under the same policy, and find no other way out.
//!
//! Each test runs in a closed world of its own, in which every address is this machine's: names lead to
//! addresses beyond the loopback, and what would get past egret would arrive.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv6Addr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;
use tempfile::TempDir;

use crate::site::{Told, User, binary, has, leftovers, open_folder, skipped, told, users};
use crate::support::world::{self, World};

const CONFIG: &str = r#"
[dns]
servers = "127.0.0.1:9"
[dns.hosts]
"ok.test" = ["44.77.1.1"]
"six.test" = ["2a00:77::1"]
"no.test" = ["44.77.1.66"]
[[policy.site.allow]]
domains = ["ok.test", "six.test"]
[[policy.site.allow]]
addresses = ["44.77.1.25", "2a00:77::25"]
ports = [25, 80]
tls = "any"
"#;

/// Speaks to servers by itself, as programs do that know of no proxy.
const CLIENT: &str = r#"
import errno, socket, ssl, sys
def said(work):
    try:
        return work()
    except ssl.SSLError as error:
        return error.reason
    except socket.gaierror as error:
        return "no such name"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
def connect(host, port):
    return socket.create_connection((host, port), timeout=60)
def http(host, port=80, name=None):
    with connect(host, port) as s:
        s.sendall(("GET /x HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (name or host)).encode())
        return s.makefile().readline().strip()
def tls(host, name):
    context = ssl.create_default_context(cafile="ca.pem")
    with connect(host, 443) as s, context.wrap_socket(s, server_hostname=name) as t:
        t.sendall(("GET /x HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % name).encode())
        return t.makefile().readline().strip()
def banner(host):
    with connect(host, 25) as s:
        return s.makefile().readline().strip()
def datagram(family, address, port):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        return s.sendto(b"x", (address, port))
def echo(address, *family):
    with socket.socket(*family) as s:
        return s.sendto(b"\x08\x00\xf7\xff\x00\x00\x00\x00", (address, 0))
def own():
    with socket.create_server(("127.0.0.1", 0)) as server:
        with connect(*server.getsockname()) as client:
            server.accept()[0].sendall(b"own")
            return client.recv(3).decode()
for line in sys.stdin:
    print(line.strip(), "->", said(lambda: eval(line)), flush=True)
"#;

/// Runs a test in a world of its own, where this machine has what it takes.
fn in_site(name: &str, test: impl FnOnce(&Site)) {
    for (program, argument) in [("nft", "--version"), ("python3", "--version"), ("ip", "-V")] {
        if !has(program, argument) {
            return skipped(format!("{program} is not installed"));
        }
    }
    world::in_a_world(&format!("past::{name}"), || {
        let files = TempDir::new().unwrap();
        let _world = World::enter(files.path()).unwrap();
        test(&Site::begin());
    });
}

struct Site {
    folder: TempDir,
    /// Connections that arrived anywhere.
    arrived: Arc<AtomicUsize>,
}

impl Site {
    fn begin() -> Self {
        let folder = open_folder();
        let names = ["ok.test", "six.test", "no.test"].map(str::to_owned);
        let key = rcgen::generate_simple_self_signed(names).unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("egret.toml", CONFIG);
        write("client.py", CLIENT);
        write("ca.pem", &key.cert.pem());
        let private = PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
        let tls = ServerConfig::builder().with_no_client_auth();
        let tls = Arc::new(tls.with_single_cert(vec![key.cert.der().clone()], private).unwrap());
        let arrived = Arc::new(AtomicUsize::new(0));
        for port in [25, 53, 80, 443, 853] {
            let (listener, arrived, tls) = (
                TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).unwrap(),
                Arc::clone(&arrived),
                Arc::clone(&tls),
            );
            thread::spawn(move || {
                for client in listener.incoming().flatten() {
                    arrived.fetch_add(1, Ordering::SeqCst);
                    let tls = Arc::clone(&tls);
                    thread::spawn(move || match port {
                        25 => (&client).write_all(b"220 hello\r\n"),
                        443 => answer(StreamOwned::new(ServerConnection::new(tls).unwrap(), client)),
                        _ => answer(client),
                    });
                }
            });
        }
        Self { folder, arrived }
    }

    /// `egret run --transparent` with the site's configuration, before the command.
    fn run(&self, user: User, options: &[&str]) -> Command {
        let mut run = user.run(self.folder.path());
        run.args(["--transparent", "--config", "egret.toml", "--audit"]);
        // Of each user its own.
        run.arg(format!("{user:?}.ndjson")).args(options).arg("--");
        run
    }

    fn told(&self, user: User, options: &[&str], script: &str) -> Told {
        let mut run = self.run(user, options);
        told(run.args(["sh", "-c", script]).output().unwrap())
    }

    /// What came of these lines of the client, in their order.
    fn client(&self, user: User, lines: &[&str]) -> Vec<String> {
        fs::write(self.folder.path().join("lines"), lines.join("\n")).unwrap();
        let run = self.told(user, &["-q"], "python3 client.py <lines");
        assert_eq!(run.code, Some(0), "{run:?}");
        let answers = run.stdout.lines().map(|line| line.rsplit_once(" -> ").unwrap().1.to_owned());
        answers.collect()
    }

    fn decisions(&self, user: User) -> Vec<Value> {
        let audit = fs::read_to_string(self.folder.path().join(format!("{user:?}.ndjson"))).unwrap();
        let records = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        records.filter(|record| record["event"] == "decision").collect()
    }
}

fn answer(mut stream: impl Read + Write) -> std::io::Result<()> {
    let mut lines = BufReader::new(&mut stream).lines();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    drop(lines);
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")?;
    stream.flush()
}

#[test]
fn allowed_names_are_reached_and_others_refused_with_a_record() {
    in_site("allowed_names_are_reached_and_others_refused_with_a_record", |site| {
        for user in users() {
            let lines = [
                ("http('ok.test')", "HTTP/1.1 200 OK"),
                ("tls('ok.test', 'ok.test')", "HTTP/1.1 200 OK"),
                ("http('six.test')", "HTTP/1.1 200 OK"),
                ("tls('six.test', 'six.test')", "HTTP/1.1 200 OK"),
                // What is refused is not looked up either.
                ("http('no.test')", "no such name"),
                ("http('44.77.1.66', name='no.test')", "HTTP/1.1 403 egret domain_not_allowed"),
                ("tls('44.77.1.66', 'no.test')", "TLSV1_ALERT_ACCESS_DENIED"),
                ("tls('2a00:77::66', 'no.test')", "TLSV1_ALERT_ACCESS_DENIED"),
                // The name decides where it goes, whatever the address.
                ("http('44.77.1.66', name='ok.test')", "HTTP/1.1 200 OK"),
                ("banner('44.77.1.25')", "220 hello"),
                ("banner('2a00:77::25')", "220 hello"),
                ("banner('44.77.1.26')", "ECONNRESET"),
                ("http('169.254.169.254')", "HTTP/1.1 403 egret address_forbidden"),
                ("own()", "own"),
            ];
            let said = site.client(user, &lines.map(|(line, _)| line));
            assert_eq!(said, lines.map(|(_, answer)| answer), "{user:?}");
            let of = |host: &str, port: u16| {
                let mut all = site.decisions(user);
                all.retain(|record| record["host"] == host && record["port"] == port);
                all
            };
            let allowed = &of("ok.test", 443)[0];
            let fields = ["protocol", "original", "dialed", "verdict", "sandbox", "identity"];
            assert_eq!(
                fields.map(|field| allowed[field].as_str().unwrap()),
                ["transparent", "44.77.1.1", "44.77.1.1", "allow", "run", "source"]
            );
            let lied = &of("ok.test", 80)[1];
            assert_eq!((&lied["original"], &lied["dialed"]), (&"44.77.1.66".into(), &"44.77.1.1".into()));
            assert_eq!(lied["original_differs"], true);
            for refused in [&of("no.test", 443)[1], &of("no.test", 80)[0], &of("44.77.1.26", 25)[0]] {
                assert_eq!(
                    (&refused["protocol"], &refused["verdict"]),
                    (&"transparent".into(), &"deny".into())
                );
            }
            assert_eq!(of("no.test", 443)[1]["original"], "2a00:77::66");
            let names = site.decisions(user).into_iter().filter(|record| record["protocol"] == "dns");
            assert!(names.clone().any(|record| record["host"] == "no.test" && record["verdict"] == "deny"));
            assert!(names.clone().any(|record| record["host"] == "six.test" && record["verdict"] == "allow"));
        }
    });
}

#[test]
fn everything_else_is_dropped() {
    in_site("everything_else_is_dropped", |site| {
        for user in users() {
            let before = site.arrived.load(Ordering::SeqCst);
            let lines = [
                ("datagram(socket.AF_INET, '44.77.1.1', 53)", "EPERM"),
                ("datagram(socket.AF_INET, '44.77.1.1', 443)", "EPERM"),
                ("datagram(socket.AF_INET6, '2a00:77::1', 443)", "EPERM"),
                ("datagram(socket.AF_INET, '224.0.0.251', 5353)", "EPERM"),
                ("connect('44.77.1.1', 53)", "ECONNREFUSED"),
                ("connect('44.77.1.1', 853)", "ECONNREFUSED"),
                ("connect('2a00:77::1', 853)", "ECONNREFUSED"),
                // Egret's own listener for what is diverted, and a port of the host's loopback.
                ("connect('127.0.0.1', 3131)", "ECONNREFUSED"),
                ("connect('::1', 3131)", "ECONNREFUSED"),
                ("connect('0.0.0.0', 3131)", "ECONNREFUSED"),
                ("connect('127.0.0.1', 80)", "ECONNREFUSED"),
                ("connect('127.9.9.9', 80)", "ECONNREFUSED"),
                ("echo('44.77.1.1', socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)", "EPERM"),
            ];
            let said = site.client(user, &lines.map(|(line, _)| line));
            assert_eq!(said, lines.map(|(_, answer)| answer), "{user:?}");
            // Whoever may send an echo request hears no answer of the loopback's.
            let ping = "echo('44.77.1.1', socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)";
            assert!(["EPERM", "EACCES"].contains(&site.client(user, &[ping])[0].as_str()));
            assert_eq!(site.arrived.load(Ordering::SeqCst), before);
            // Nor can the rules be changed.
            let tries = ["nft flush ruleset", "ip route flush table main", "umount /etc/resolv.conf"];
            let tries: String =
                tries.iter().map(|each| format!("{each} 2>/dev/null || echo kept;")).collect();
            let script = format!("PATH=$PATH:/usr/sbin:/sbin; {tries} cat /etc/resolv.conf");
            let run = site.told(user, &["-q"], &script);
            assert!(run.stdout.starts_with("kept\nkept\nkept\n"), "{run:?}");
            assert!(run.stdout.ends_with("nameserver 127.0.0.1\n"), "{run:?}");
        }
    });
}

#[test]
fn the_summary_names_what_was_refused_and_the_learned_rules_let_it_pass() {
    in_site("the_summary_names_what_was_refused_and_the_learned_rules_let_it_pass", |site| {
        let run = site.told(User::Own, &["--json"], "echo \"http('no.test')\" | python3 client.py");
        let line = run.stderr.lines().find(|line| line.starts_with('{')).unwrap();
        let whole: Value = serde_json::from_str(line).unwrap();
        let row = &whole["destinations"][0];
        assert_eq!((&row["host"], &row["port"]), (&"no.test".into(), &Value::Null), "{run:?}");
        assert_eq!(row["reasons"]["domain_not_allowed"], row["refused"]);
        fs::create_dir(site.folder.path().join("rules")).unwrap();
        let fetch = "echo \"http('no.test')\" | python3 client.py";
        let learn = ["--observe", "--learn", "rules/learned.toml"];
        let run = site.told(User::Own, &learn, fetch);
        assert!(run.stdout.ends_with("-> HTTP/1.1 200 OK\n"), "{run:?}");
        let config = CONFIG.to_owned() + "[policy.learned]\nrules = [\"learned\"]\n";
        fs::write(site.folder.path().join("egret.toml"), config).unwrap();
        let run = site.told(User::Own, &["--policy", "learned"], fetch);
        assert!(run.stdout.ends_with("-> HTTP/1.1 200 OK\n"), "{run:?}");
    });
}

#[test]
fn nothing_is_left_behind_and_a_killed_egret_leaves_no_network() {
    in_site("nothing_is_left_behind_and_a_killed_egret_leaves_no_network", |site| {
        let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
        let before = mounts();
        for user in users() {
            let run = site.told(user, &["-q"], "exit 7");
            assert_eq!(run.code, Some(7), "{run:?}");
            assert_eq!(leftovers(site.folder.path()), [""; 0]);
            let mut run = site.run(user, &["-q"]);
            run.args(["python3", "client.py"]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut egret = run.spawn().unwrap();
            let (mut stdin, stdout) = (egret.stdin.take().unwrap(), egret.stdout.take().unwrap());
            let mut answers = BufReader::new(stdout).lines();
            let mut ask = |line: &str| {
                writeln!(stdin, "{line}").unwrap();
                answers.next().unwrap().unwrap().rsplit_once(" -> ").unwrap().1.to_owned()
            };
            assert_eq!(ask("http('ok.test')"), "HTTP/1.1 200 OK");
            kill_process(Pid::from_child(&egret), Signal::KILL).unwrap();
            egret.wait().unwrap();
            assert_eq!(ask("http('ok.test')"), "no such name");
            assert_eq!(ask("http('44.77.1.1', name='ok.test')"), "ECONNREFUSED");
            assert_eq!(ask("datagram(socket.AF_INET, '44.77.1.1', 53)"), "EPERM");
            drop(stdin);
            assert_eq!(site.told(user, &["-q"], "true").code, Some(0));
            assert_eq!(leftovers(site.folder.path()), [""; 0]);
        }
        assert_eq!(mounts(), before);
        let rules = Command::new("nft").args(["list", "ruleset"]).output().unwrap();
        assert!(rules.stdout.is_empty(), "{rules:?}");
    });
}

#[test]
fn the_probe_finds_no_other_way_out() {
    in_site("the_probe_finds_no_other_way_out", |site| {
        let targets = [
            "tcp:44.77.1.66:80",
            "tcp:44.77.1.66:443",
            "tcp:44.77.1.66:853",
            "tcp:[2a00:77::66]:443",
            "udp:44.77.1.66:443",
        ];
        let mut arguments = vec!["--no-defaults", "--transparent", "--allowed", "http://ok.test/"];
        arguments.extend(targets.iter().flat_map(|target| ["--target", target]));
        let mut outside = Command::new(binary());
        outside.args(["probe", "--baseline", "--write", "base.json"]).args(&arguments);
        let outside = told(outside.current_dir(&site.folder).output().unwrap());
        assert_eq!(outside.code, Some(0), "{outside:?}");
        for user in users().into_iter().filter(|user| *user != User::Own) {
            let mut run = site.run(user, &["-q"]);
            run.arg(binary()).args(["probe", "--baseline", "base.json"]).args(&arguments);
            let probe = told(run.output().unwrap());
            assert_eq!(probe.code, Some(0), "{probe:?}");
            for (target, came) in [
                ("tcp:44.77.1.66:80", "taken and refused by egret: 403 domain_not_allowed"),
                ("tcp:44.77.1.66:443", "refused: taken, and ended by the alert access_denied"),
                ("tcp:44.77.1.66:853", "refused: Connection refused (os error 111)"),
                ("tcp:[2a00:77::66]:443", "refused: taken, and ended by the alert access_denied"),
                ("udp:44.77.1.66:443", "not permitted: Operation not permitted (os error 1)"),
            ] {
                let line = format!("direct {target}: {came}");
                assert!(probe.stdout.contains(&line), "{line}: {}", probe.stdout);
            }
        }
    });
}

#[test]
fn a_burst_of_programs_finds_its_names() {
    in_site("a_burst_of_programs_finds_its_names", |site| {
        let mut run = User::Own.run(site.folder.path());
        let script = "for i in $(seq 60); do python3 -c 'import socket; socket.getaddrinfo(\"localhost.localdomain\", 80)' & done; wait";
        run.args(["--transparent", "--json", "--allow", "localhost.localdomain", "--", "sh", "-c", script]);
        let run = told(run.output().unwrap());
        assert!(!run.stderr.contains("rate_limited"), "{run:?}");
    });
}

#[test]
fn without_nft_it_says_so_and_nothing_runs() {
    in_site("without_nft_it_says_so_and_nothing_runs", |site| {
        let mut run = site.run(User::Own, &["-q"]);
        run.args(["echo", "ran"]).env("PATH", "/nowhere");
        for folder in ["/usr/sbin", "/sbin"] {
            let hidden = Command::new("mount").args(["-t", "tmpfs", "none", folder]).status().unwrap();
            assert!(hidden.success());
        }
        let run = told(run.output().unwrap());
        assert_eq!((run.code, run.stdout.as_str()), (Some(125), ""), "{run:?}");
        assert!(run.stderr.contains("the program `nft` is not there; install nftables"), "{run:?}");
    });
}

#[test]
fn without_the_option_the_summary_tells_of_it() {
    let site = crate::site::Site::begin();
    for user in users() {
        let past = site.shell(user, &[], "curl -sS --noproxy '*' http://192.0.2.1/; exit 3");
        assert_eq!(past.code, Some(3));
        assert!(past.stderr.contains("--transparent serves programs that know of no proxy"), "{past:?}");
        let through = site.shell(user, &[], "curl -sS http://ok.test:{port}/");
        assert!(!through.stderr.contains("--transparent"), "{through:?}");
    }
}
