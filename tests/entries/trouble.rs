//! An audit file in trouble, with load by every way in: what can't be recorded is refused, the trouble
//! ends by itself with its cause, and whatever was acted on has its record.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::fs::{FileType, Mode};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::asker::{self, Question};
use crate::support::client::{self, Client};
use crate::support::dns_message::A;
use crate::support::dns_server::DnsServer;
use crate::support::egret::{Egret, SocksAt};
use crate::support::origin::Origin;
use crate::support::socks::{HELLO, named};
use crate::support::wait_for;
use crate::support::world::{self, CLIENT, World};
use crate::ways::{self, UNAWARE};

const PATIENCE: Duration = Duration::from_secs(60);
const PAGE: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\npage";

/// What came of one request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Came {
    /// The whole answer.
    Good,
    /// `audit_unavailable`.
    Refused,
    /// An end before the answer, as of a tunnel that is closed.
    Cut,
    Else(String),
}

/// Asks for a host by a way in.
type Ask = fn(&Stage, &str) -> Came;

const ENTRIES: [(&str, Ask); 5] =
    [("CONNECT", connect), ("http", plain), ("SOCKS5", socks), ("diverted", diverted), ("dns", question)];

struct Stage {
    egret: Egret,
    origin: Origin,
    diverts: bool,
    _dns: DnsServer,
}

impl Stage {
    /// Egret with this `[audit]` in front of an origin under every name.
    fn set(audit: &str) -> Self {
        let origin = Origin::start(|visit| {
            visit.request()?;
            visit.send(PAGE)?;
            visit.finish()
        });
        let dns = DnsServer::start("127.0.0.1:0".parse().unwrap(), |_| Ipv4Addr::LOCALHOST).unwrap();
        let config = format!(
            "[dns]\nservers = [\"{}\"]\n\n\
             [[sandbox]]\nid = \"box\"\nsource = [\"127.0.0.0/8\"]\npolicy = \"main\"\n\n\
             [policy.main.limits]\ndns_queries = \"10000/s\"\ndns_names = \"1000000/hour\"\n\n\
             [[policy.main.allow]]\ndomains = [\"*.load.test\"]\naddresses = [\"127.0.0.1/32\"]\nports = [{}]\n",
            dns.address,
            origin.port()
        );
        let egret = Egret::with(config)
            .socks(SocksAt::OwnPort)
            .names("127.0.0.1:0".parse().unwrap())
            .listen_lines(ways::LISTEN)
            .audit(audit)
            .start();
        let diverted = ways::divert();
        if let Err(missing) = &diverted {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "nothing can be diverted: {missing}");
            println!("diverted connections are not tried: {missing}");
        }
        Self { egret, origin, diverts: diverted.is_ok(), _dns: dns }
    }

    fn entries(&self) -> impl Iterator<Item = (&'static str, Ask)> {
        ENTRIES.into_iter().filter(|(name, _)| self.diverts || *name != "diverted")
    }
}

/// Sends all there is to send, and reads to the end.
fn rest(mut stream: TcpStream, text: &str) -> Came {
    let sent = stream.write_all(text.as_bytes());
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    match (sent.and(read), &*answer) {
        (_, text) if text.ends_with("page") => Came::Good,
        (_, text) if text.starts_with("HTTP/1.1 503 egret audit_unavailable") => Came::Refused,
        (_, "") | (Err(_), _) => Came::Cut,
        (_, text) => Came::Else(text.to_owned()),
    }
}

fn open(source: &str, to: SocketAddr) -> TcpStream {
    let stream = client::connect_from(source.parse().unwrap(), to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn request(line: &str, host: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
}

fn connect(stage: &Stage, host: &str) -> Came {
    let mut stream = open(CLIENT, stage.egret.proxy);
    let authority = format!("{host}:{}", stage.origin.port());
    stream
        .write_all(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n").as_bytes())
        .unwrap();
    let mut head = Vec::new();
    let mut octet = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut octet) {
            Ok(1) => head.push(octet[0]),
            _ => return Came::Cut,
        }
    }
    match String::from_utf8_lossy(&head) {
        head if head.starts_with("HTTP/1.1 200") => rest(stream, &request("GET /", host)),
        head if head.starts_with("HTTP/1.1 503 egret audit_unavailable") => Came::Refused,
        head => Came::Else(head.into_owned()),
    }
}

fn plain(stage: &Stage, host: &str) -> Came {
    let target = format!("GET http://{host}:{}/", stage.origin.port());
    rest(open(CLIENT, stage.egret.proxy), &request(&target, host))
}

fn socks(stage: &Stage, host: &str) -> Came {
    let mut stream = open(CLIENT, stage.egret.socks);
    let mut answer = [0; 12];
    let asked = [&HELLO[..], &named(host.as_bytes(), stage.origin.port())].concat();
    if stream.write_all(&asked).and_then(|()| stream.read_exact(&mut answer)).is_err() {
        return Came::Cut;
    }
    match answer[3] {
        0 => rest(stream, &request("GET /", host)),
        1 => Came::Refused,
        code => Came::Else(format!("reply {code}")),
    }
}

fn diverted(stage: &Stage, host: &str) -> Came {
    let stream = open(UNAWARE[0], SocketAddr::new("203.0.113.9".parse().unwrap(), stage.origin.port()));
    rest(stream, &request("GET /", host))
}

fn question(stage: &Stage, host: &str) -> Came {
    let answer = asker::ask_again(CLIENT.parse().unwrap(), stage.egret.names, &Question::new(host, A));
    match answer {
        None => Came::Cut,
        Some(answer) => match answer.refusal() {
            (0, _) => Came::Good,
            (2, "audit_unavailable") => Came::Refused,
            other => Came::Else(format!("{other:?}")),
        },
    }
}

/// What came of the requests of all clients, by the way in and the host.
#[derive(Default)]
struct Load {
    over: AtomicBool,
    came: Mutex<Vec<(&'static str, String, Came)>>,
}

impl Load {
    fn count(&self, entry: &str, came: &Came) -> usize {
        let all = self.came.lock().unwrap();
        all.iter().filter(|(by, _, what)| *by == entry && what == came).count()
    }
}

/// Puts load on a stage while `during` runs; gives what came of it.
fn under_load(stage: &Arc<Stage>, during: impl FnOnce(&Load)) -> Vec<(&'static str, String, Came)> {
    let load = Arc::new(Load::default());
    let clients: Vec<_> = stage
        .entries()
        .flat_map(|entry| [(entry, 0), (entry, 1)])
        .map(|((entry, ask), number)| {
            let (stage, load) = (Arc::clone(stage), Arc::clone(&load));
            thread::spawn(move || {
                for round in 0.. {
                    if load.over.load(Ordering::SeqCst) {
                        return;
                    }
                    let host = format!("{}-{number}-{round}.load.test", entry.to_lowercase());
                    let came = ask(&stage, &host);
                    load.came.lock().unwrap().push((entry, host, came));
                    thread::sleep(Duration::from_millis(5));
                }
            })
        })
        .collect();
    during(&load);
    load.over.store(true, Ordering::SeqCst);
    for client in clients {
        client.join().unwrap();
    }
    load.came.lock().unwrap().clone()
}

/// Waits until so many more have ended so, by every way in.
fn wait_for_more(stage: &Stage, load: &Load, what: &Came, more: usize) {
    let before: HashMap<_, _> = stage.entries().map(|(entry, _)| (entry, load.count(entry, what))).collect();
    wait_for(&format!("{more} more of {what:?}"), PATIENCE, || {
        before.iter().all(|(entry, before)| load.count(entry, what) >= before + more)
    });
}

/// Every record, in the order of their numbers, of files that hold them together.
fn records(texts: &[String]) -> Vec<Value> {
    let lines = texts.iter().flat_map(|text| text.lines());
    let mut records: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line:?}: {error}")))
        .collect();
    records.sort_by_key(|record| record["seq"].as_u64().unwrap());
    records
}

/// Whatever was acted on has its decision, and every decision that let something out its end.
fn nothing_is_missing(stage: &Stage, came: &[(&str, String, Came)], records: &[Value]) {
    for (number, record) in (1..).zip(records) {
        assert_eq!(record["seq"], number, "a number is missing or there twice: {record}");
    }
    let of = |event: &str| records.iter().filter(|r| r["event"] == event).collect::<Vec<_>>();
    let allowed: Vec<_> = of("decision").into_iter().filter(|r| r["reason"] == "allowed").collect();
    let hosts: HashSet<_> = allowed.iter().map(|r| r["host"].as_str().unwrap()).collect();
    for request in stage.origin.requests() {
        let host = request.get("host").unwrap();
        let host = host.split(':').next().unwrap();
        assert!(hosts.contains(host), "{host} was reached and has no record");
    }
    for (entry, host, what) in came {
        assert!(!matches!(what, Came::Else(_)), "{entry}, {host}: {what:?}");
        assert!(*what != Came::Good || hosts.contains(&**host), "{host} was answered and has no record");
    }
    let ended: HashSet<_> = of("close").iter().map(|r| r["id"].as_str().unwrap()).collect();
    for decision in allowed.iter().filter(|r| !r["dialed"].is_null()) {
        assert!(ended.contains(decision["id"].as_str().unwrap()), "it has no end: {decision}");
    }
    let log = fs::read_to_string(stage.egret.dir().join("stderr.log")).unwrap();
    assert!(!log.contains("panicked"), "{log}");
}

/// Load, trouble, load, the end of the trouble, load, the end.
fn endure(audit: &str, begin: impl FnOnce(), end: impl FnOnce(), texts: impl FnOnce() -> Vec<String>) {
    let stage = Arc::new(Stage::set(audit));
    let came = under_load(&stage, |load| {
        wait_for_more(&stage, load, &Came::Good, 10);
        let mut idle = Client::connect(stage.egret.proxy);
        let authority = format!("idle.load.test:{}", stage.origin.port());
        idle.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
        assert_eq!(idle.response("CONNECT").status, 200);
        begin();
        wait_for_more(&stage, load, &Came::Refused, 10);
        assert!(idle.until_end().is_empty(), "an open tunnel is closed");
        end();
        wait_for_more(&stage, load, &Came::Good, 20);
        assert_eq!(stage.egret.control("GET", "/readyz").status, 200);
    });
    let stage = stopped(stage);
    nothing_is_missing(&stage, &came, &records(&texts()));
}

/// The stage when egret has ended by itself, and said all that it had to say.
fn stopped(stage: Arc<Stage>) -> Stage {
    let mut stage = Arc::into_inner(stage).expect("the clients are gone");
    assert!(stage.egret.stop().success());
    stage
}

fn mount(arguments: &[&str], at: &Path) {
    let mounted = Command::new("mount").args(arguments).arg(at).status().unwrap();
    assert!(mounted.success(), "mount {arguments:?}");
}

fn unmount(at: &Path) {
    assert!(Command::new("umount").arg(at).status().unwrap().success());
}

fn in_files(audit: &Path) -> String {
    format!("file = \"{}/audit.ndjson\"\n", audit.display())
}

fn read(files: &[PathBuf]) -> Vec<String> {
    files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
}

#[test]
fn a_full_disk() {
    world::in_a_world("trouble::a_full_disk", || {
        let files = tempfile::tempdir().unwrap();
        let _world = World::enter(files.path()).unwrap();
        let disk = tempfile::tempdir().unwrap();
        mount(&["-t", "tmpfs", "-o", "size=32m", "none"], disk.path());
        let ballast = disk.path().join("ballast");
        let fill = || {
            let mut file = File::create(&ballast).unwrap();
            while file.write_all(&[0; 4096]).is_ok() {}
        };
        let clear = || fs::remove_file(&ballast).unwrap();
        endure(&in_files(disk.path()), fill, clear, || read(&[disk.path().join("audit.ndjson")]));
        unmount(disk.path());
    });
}

#[test]
fn a_disk_that_is_mounted_read_only() {
    world::in_a_world("trouble::a_disk_that_is_mounted_read_only", || {
        let files = tempfile::tempdir().unwrap();
        let _world = World::enter(files.path()).unwrap();
        let disk = tempfile::tempdir().unwrap();
        let over = || mount(&["-t", "tmpfs", "-o", "ro", "none"], disk.path());
        let back = || unmount(disk.path());
        endure(&in_files(disk.path()), over, back, || read(&[disk.path().join("audit.ndjson")]));
    });
}

#[test]
fn a_folder_that_is_gone() {
    world::in_a_world("trouble::a_folder_that_is_gone", || {
        let files = tempfile::tempdir().unwrap();
        let _world = World::enter(files.path()).unwrap();
        let disk = tempfile::tempdir().unwrap();
        let (folder, gone) = (disk.path().join("logs"), disk.path().join("gone"));
        fs::create_dir(&folder).unwrap();
        let remove = || fs::rename(&folder, &gone).unwrap();
        let again = || fs::create_dir(&folder).unwrap();
        let texts = || read(&[gone.join("audit.ndjson"), folder.join("audit.ndjson")]);
        endure(&in_files(&folder), remove, again, texts);
    });
}

/// The slowest of disks: a pipe that nobody reads for a while.
#[test]
fn a_pipe_that_is_not_read() {
    world::in_a_world("trouble::a_pipe_that_is_not_read", || {
        let files = tempfile::tempdir().unwrap();
        let _world = World::enter(files.path()).unwrap();
        let disk = tempfile::tempdir().unwrap();
        let pipe = disk.path().join("audit.ndjson");
        let at = File::open(disk.path()).unwrap();
        rustix::fs::mknodat(at.as_fd(), "audit.ndjson", FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // Also open for writing, so that it has no end while egret is not there.
        let mut reader = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let mut last = reader.try_clone().unwrap();
        let (paused, text) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(String::new())));
        let (pause, kept) = (Arc::clone(&paused), Arc::clone(&text));
        let reading = thread::spawn(move || {
            let mut octets = vec![0; 1 << 16];
            loop {
                while pause.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(10));
                }
                let length = reader.read(&mut octets).unwrap();
                let mut kept = kept.lock().unwrap();
                kept.push_str(std::str::from_utf8(&octets[..length]).unwrap());
                if kept.ends_with("END\n") {
                    let whole = kept.len() - "END\n".len();
                    return kept.truncate(whole);
                }
            }
        });
        let hold = || paused.store(true, Ordering::SeqCst);
        let go_on = || paused.store(false, Ordering::SeqCst);
        endure(&in_files(disk.path()), hold, go_on, || {
            last.write_all(b"END\n").unwrap();
            reading.join().unwrap();
            // What was in the pipe when it was full can't be taken back: that line is ended there.
            let text = text.lock().unwrap();
            let (whole, torn): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.ends_with('}'));
            assert!(torn.len() <= 1, "{torn:?}");
            vec![whole.join("\n")]
        });
    });
}

/// No trouble at all: files that are moved away refuse nobody and lose nothing.
#[test]
fn a_file_that_is_rotated_again_and_again() {
    world::in_a_world("trouble::a_file_that_is_rotated_again_and_again", || {
        let files = tempfile::tempdir().unwrap();
        let _world = World::enter(files.path()).unwrap();
        let disk = tempfile::tempdir().unwrap();
        let file = disk.path().join("audit.ndjson");
        let stage = Arc::new(Stage::set(&in_files(disk.path())));
        let mut all = vec![file.clone()];
        let came = under_load(&stage, |load| {
            for round in 0..40 {
                wait_for_more(&stage, load, &Came::Good, 1);
                let old = disk.path().join(format!("audit.{round}"));
                fs::rename(&file, &old).unwrap();
                all.push(old);
                if round % 2 == 0 {
                    stage.egret.signal(Signal::HUP);
                }
                wait_for("a new file", PATIENCE, || file.exists());
            }
        });
        for (entry, host, what) in &came {
            assert_eq!(*what, Came::Good, "{entry}, {host}");
        }
        let stage = stopped(stage);
        nothing_is_missing(&stage, &came, &records(&read(&all)));
    });
}
