//! Proxies that companies run, as parents.

use std::fs::Permissions;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::setup::{NAME, config, config_at, connect, decision, get};
use crate::support::client::Client;
use crate::support::digest;
use crate::support::egret::Egret;
use crate::support::origin::Origin;
use crate::support::wait_for;

const SIZE: u64 = 8 << 20;

/// A running proxy; dropping it ends it.
struct Running {
    address: SocketAddr,
    child: Child,
    _dir: tempfile::TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Not a kill: squid has shared memory to give back.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let began = Instant::now();
        while !matches!(self.child.try_wait(), Ok(Some(_))) {
            if began.elapsed() > Duration::from_secs(10) {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Where a program is installed. Without it the test is skipped, but where `CI=true` it fails.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/bin".into()]);
    let found = folders.map(|folder| folder.join(name)).find(|file| file.is_file());
    if found.is_none() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{name} is not installed");
        println!("skipped: {name} is not installed");
    }
    found
}

fn free() -> SocketAddr {
    TcpListener::bind((IpAddr::from(Ipv4Addr::LOCALHOST), 0)).unwrap().local_addr().unwrap()
}

/// Starts a proxy in the foreground with a configuration that `{dir}` and `{port}` are replaced in.
fn start(program: &str, arguments: &[&str], config: &str) -> Option<Running> {
    let program = find(program)?;
    let dir = tempfile::tempdir().unwrap();
    let address = free();
    // Squid gives up being root, and has to find its files then.
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let place = dir.path().display().to_string();
    let fill = |text: &str| text.replace("{dir}", &place).replace("{port}", &address.port().to_string());
    std::fs::write(dir.path().join("proxy.conf"), fill(config)).unwrap();
    let log = std::fs::File::create(dir.path().join("log")).unwrap();
    let child = Command::new(program)
        .args(arguments.iter().map(|argument| fill(argument)))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut running = Running { address, child, _dir: dir };
    wait_for("the parent", Duration::from_secs(30), || {
        if let Some(status) = running.child.try_wait().unwrap() {
            panic!("{status}: {}", std::fs::read_to_string(format!("{place}/log")).unwrap());
        }
        TcpStream::connect(address).is_ok()
    });
    Some(running)
}

fn squid(auth: &str) -> Option<Running> {
    let access = if auth.is_empty() { "http_access allow all" } else { auth };
    let config = format!(
        "http_port 127.0.0.1:{{port}}\npid_filename none\ncache deny all\naccess_log none\n\
         cache_log /dev/null\ncache_mem 1 MB\nmemory_cache_shared off\ncoredump_dir {{dir}}\nshutdown_lifetime 0 seconds\n\
         pinger_enable off\nnetdb_filename none\n{access}\n"
    );
    start("squid", &["-N", "-d", "1", "-n", "egrettest{port}", "-f", "{dir}/proxy.conf"], &config)
}

fn tinyproxy() -> Option<Running> {
    let config = "Port {port}\nListen 127.0.0.1\nTimeout 60\nMaxClients 50\n";
    start("tinyproxy", &["-d", "-c", "{dir}/proxy.conf"], config)
}

/// Plain requests, a tunnel, and much both ways.
fn serves(parent: &Running) {
    let origin = Origin::start(|visit| {
        while let Some(request) = visit.head()? {
            if request.method() == "POST" {
                let got = digest::receive(visit.reader(), SIZE)?;
                visit.send("HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n")?;
                visit.send(format!("{:016x}", got.hash))?;
            } else {
                visit.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
            }
        }
        Ok(())
    });
    let port = origin.port();
    let egret = Egret::with(config(parent.address, port, "")).start();
    let mut client = Client::connect(egret.proxy);
    for _ in 0..3 {
        client.send(format!("GET http://{NAME}:{port}/ HTTP/1.1\r\nHost: {NAME}:{port}\r\n\r\n"));
        assert_eq!(client.response("GET").body, b"ok");
    }
    assert_eq!(origin.accepted(), 1, "the tunnel is used again");
    let mut client = Client::tunnel(egret.proxy, &format!("{NAME}:{port}"));
    client.send(format!("POST / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: {SIZE}\r\n\r\n"));
    let sent = digest::send(&client.stream, SIZE, 5).unwrap();
    assert_eq!(client.response("POST").body, format!("{:016x}", sent.hash).into_bytes());
    let record = decision(&egret, 4);
    assert_eq!(
        (&record["via_parent"], &record["dialed"]),
        (&parent.address.to_string().into(), &"127.0.0.1".into())
    );
    // Nobody listens there: the parent says so in its own way.
    let closed = free().port();
    let egret = Egret::with(config(parent.address, closed, "")).start();
    let answer = connect(&egret, closed);
    assert_eq!((answer.status, answer.get("x-egret-reason")), (502, Some("connect_unroutable")));
    assert!(decision(&egret, 1)["detail"].as_str().unwrap().contains("it answered 50"));
}

#[test]
fn squid_as_a_parent() {
    let Some(parent) = squid("") else { return };
    serves(&parent);
    // Squid says 503 for an address that it can't reach; the next one is tried.
    let origin = Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let text = config_at(&parent.address.to_string(), &["127.0.0.9", "127.0.0.1"], origin.port(), "");
    let egret = Egret::with(text).start();
    assert_eq!(get(&egret, origin.port()).status, 200);
    assert_eq!(decision(&egret, 1)["dialed"], "127.0.0.1");
}

#[test]
fn squid_that_refuses() {
    // As installed, it permits CONNECT to 443 only.
    let rules = "acl CONNECT method CONNECT\nacl https port 443\nhttp_access deny CONNECT !https\nhttp_access allow all";
    let Some(parent) = squid(rules) else { return };
    let origin = Origin::echoing();
    let egret = Egret::with(config(parent.address, origin.port(), "")).start();
    let answer = connect(&egret, origin.port());
    assert_eq!((answer.status, answer.get("x-egret-reason")), (502, Some("connect_refused")));
    assert!(decision(&egret, 1)["detail"].as_str().unwrap().contains("403 Forbidden"));
    assert_eq!(origin.accepted(), 0);
}

#[test]
fn squid_that_asks_for_credentials() {
    if find("squid").is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let helper = dir.path().join("helper.sh");
    std::fs::write(&helper, "#!/bin/sh\nwhile read line; do case \"$line\" in 'egret hunter2') echo OK;; *) echo ERR;; esac; done\n").unwrap();
    for path in [dir.path(), &helper] {
        std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let auth = format!(
        "auth_param basic program {}\nauth_param basic children 1\nacl known proxy_auth REQUIRED\nhttp_access allow known\nhttp_access deny all",
        helper.display()
    );
    let Some(parent) = squid(&auth) else { return };
    let origin = Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let more = "credentials_file = \"parent.txt\"";
    for (text, status) in [("egret:hunter2", 200), ("egret:wrong", 502)] {
        let egret = Egret::with(config(parent.address, origin.port(), more))
            .file("parent.txt", text)
            .shell("chmod 600 parent.txt")
            .start();
        assert_eq!(get(&egret, origin.port()).status, status, "{text}");
    }
    assert_eq!(origin.accepted(), 1);
}

#[test]
fn tinyproxy_as_a_parent() {
    let Some(parent) = tinyproxy() else { return };
    serves(&parent);
}

/// Egret as a parent of egret: it has a rule for the addresses that it is asked for.
#[test]
fn egret_as_a_parent() {
    let origin = Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let rules = format!(
        "[[sandbox]]\nid = \"site\"\nsource = [\"127.0.0.0/8\"]\npolicy = \"main\"\n\n\
         [[policy.main.allow]]\naddresses = [\"127.0.0.1/32\"]\nports = [{}]\n",
        origin.port()
    );
    let parent = Egret::with(rules).start();
    // Both have the same name, so the second takes the first for itself.
    let child = Egret::with(config(parent.proxy, origin.port(), "")).start();
    let answer = connect(&child, origin.port());
    assert_eq!((answer.status, answer.get("x-egret-reason")), (502, Some("connect_unroutable")));
    assert!(decision(&child, 1)["detail"].as_str().unwrap().ends_with("it answered 502 egret proxy_loop"));
    // With a name of its own, it is a client like any other.
    let text = child_named("site-egret", &child);
    std::fs::write(child.config_file(), text).unwrap();
    assert_eq!(child.reload().status, 200);
    assert_eq!(get(&child, origin.port()).body, b"ok");
    let _tunnel = Client::tunnel(child.proxy, &format!("{NAME}:{}", origin.port()));
    let decisions: Vec<_> =
        parent.events("decision").into_iter().filter(|r| r["verdict"] == "allow").collect();
    assert_eq!(decisions.len(), 2, "{decisions:?}");
    assert!(decisions.iter().all(|record| record["host"] == "127.0.0.1" && record["dialed"] == "127.0.0.1"));
}

/// The configuration of an egret with this name.
fn child_named(name: &str, egret: &Egret) -> String {
    let text = std::fs::read_to_string(egret.config_file()).unwrap();
    text.replacen("[listen]\n", &format!("[listen]\nname = \"{name}\"\n"), 1)
}
