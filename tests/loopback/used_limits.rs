//! What sandboxes use of their limits: counted to the byte under load, and known again after a kill.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::setup::{NAME, config, get};
use crate::support::client::{Client, connect_from};
use crate::support::egret::Egret;
use crate::support::http1::Response;
use crate::support::origin::Origin;
use crate::support::wait_for;

const LIMIT: Duration = Duration::from_secs(20);

fn limited(origin: &Origin, names: &[&str], limits: &str) -> Egret {
    Egret::with(format!("{}\n[policy.main.limits]\n{limits}\n", config(names, origin.port()))).start()
}

fn ok() -> Origin {
    Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
}

fn ask(egret: &Egret, authority: &str) -> Response {
    let mut client = Client::connect(egret.proxy);
    client.send(get(authority, "/"));
    client.response("GET")
}

fn reason(answer: &Response) -> (u16, Option<&str>) {
    (answer.status, answer.get("x-egret-reason"))
}

fn retry_after(answer: &Response) -> u64 {
    answer.get("retry-after").unwrap().parse().unwrap()
}

/// Bytes that a new tunnel carries from the client until the quota ends it.
fn carried(egret: &Egret, authority: &str) -> u64 {
    let before = egret.events("close").len();
    let mut tunnel = Client::tunnel(egret.proxy, authority);
    let mut writer = tunnel.stream.try_clone().unwrap();
    let sending = thread::spawn(move || while writer.write_all(&[7; 1000]).is_ok() {});
    tunnel.until_end();
    sending.join().unwrap();
    wait_for("the end of the tunnel", LIMIT, || egret.events("close").len() > before);
    let close = &egret.events("close")[before];
    assert_eq!(close["reason"], "quota_exceeded");
    close["bytes_up"].as_u64().unwrap()
}

#[test]
fn a_kill_gives_no_bytes_back_also_those_of_an_open_tunnel() {
    let origin = Origin::echoing();
    let authority = format!("{NAME}:{}", origin.port());
    let mut egret = limited(&origin, &[NAME], "bytes_up = \"640kB/hour\"");
    let mut open = Client::tunnel(egret.proxy, &authority);
    open.send(vec![1; 200_000]);
    open.exactly(200_000);
    egret.kill();
    egret.restart();
    let mut open = Client::tunnel(egret.proxy, &authority);
    open.send(vec![1; 200_000]);
    open.exactly(200_000);
    egret.kill();
    egret.restart();
    // 240 kB are left, but for what was written down ahead: twice at most 10 kB.
    let left = carried(&egret, &authority);
    assert!((220_000..=240_000).contains(&left), "{left}");
    for _ in 0..2 {
        let answer = ask(&egret, &authority);
        assert_eq!(reason(&answer), (429, Some("quota_exceeded")));
        assert!((3540..=3600).contains(&retry_after(&answer)), "{answer:?}");
        egret.kill();
        egret.restart();
    }
}

#[test]
fn a_stop_keeps_the_count_exactly() {
    let origin = Origin::echoing();
    let authority = format!("{NAME}:{}", origin.port());
    let mut egret = limited(&origin, &[NAME], "bytes_up = \"640kB/hour\"");
    let mut tunnel = Client::tunnel(egret.proxy, &authority);
    tunnel.send(vec![1; 123_456]);
    tunnel.exactly(123_456);
    drop(tunnel);
    wait_for("the end of the tunnel", LIMIT, || egret.events("close").len() == 1);
    egret.stop();
    egret.restart();
    assert_eq!(carried(&egret, &authority), 640_000 - 123_456);
}

#[test]
fn distinct_hosts_are_known_after_a_kill() {
    let origin = ok();
    let names = ["a.test", "b.test", "c.test", "d.test"];
    let mut egret = limited(&origin, &names, "domains = \"3/hour\"");
    let at = |name: &str| format!("{name}:{}", origin.port());
    for name in ["a.test", "b.test", "a.test"] {
        assert_eq!(ask(&egret, &at(name)).status, 200);
    }
    egret.kill();
    egret.restart();
    for (name, status) in [("b.test", 200), ("c.test", 200), ("a.test", 200), ("d.test", 429)] {
        assert_eq!(ask(&egret, &at(name)).status, status, "{name}");
    }
    egret.kill();
    egret.restart();
    let answer = ask(&egret, &at("d.test"));
    assert_eq!(reason(&answer), (429, Some("quota_exceeded")));
    assert!((3540..=3600).contains(&retry_after(&answer)), "{answer:?}");
}

#[test]
fn a_burst_is_not_there_again_after_a_kill() {
    let origin = ok();
    let authority = format!("{NAME}:{}", origin.port());
    let mut egret = limited(&origin, &[NAME], "requests = \"2/hour burst 3\"");
    for _ in 0..2 {
        assert_eq!(ask(&egret, &authority).status, 200);
    }
    egret.kill();
    egret.restart();
    assert_eq!(ask(&egret, &authority).status, 200);
    let answer = ask(&egret, &authority);
    assert_eq!(reason(&answer), (429, Some("rate_limited")));
    assert!((1700..=1801).contains(&retry_after(&answer)), "{answer:?}");
    egret.stop();
    egret.restart();
    assert_eq!(reason(&ask(&egret, &authority)), (429, Some("rate_limited")));
}

#[test]
fn a_damaged_file_is_an_error_that_says_how_to_go_on() {
    let origin = ok();
    let mut egret = limited(&origin, &[NAME], "requests = \"2/hour\"");
    ask(&egret, &format!("{NAME}:{}", origin.port()));
    egret.stop();
    let file = egret.dir().join("state/limits.ndjson");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}nonsense\n")).unwrap();
    // It may listen for a moment before it has read the file.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| egret.restart()));
    assert_eq!(egret.wait().code(), Some(1));
    let log = egret.log();
    assert!(log.contains("limits.ndjson: line 3 can't be read; restore the file, or delete it"), "{log}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{text}nonsense\n"), "it is left alone");
}

/// What was counted somewhere.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    up: u64,
    down: u64,
    allowed: u64,
    refused: u64,
}

/// An origin that counts the octets of bodies and tunnels, whole or not.
fn counting(up: &Arc<AtomicU64>) -> Origin {
    let up = Arc::clone(up);
    Origin::start(move |visit| {
        let first = visit.some()?;
        let mut buffer = vec![0; 1 << 14];
        if first.starts_with(b"POST ") {
            let head =
                first.windows(4).position(|end| end == b"\r\n\r\n").expect("the head comes at once") + 4;
            let mut body = first.len() - head;
            while body < 900 {
                let more = visit.stream.read(&mut buffer)?;
                if more == 0 {
                    break;
                }
                body += more;
            }
            up.fetch_add(body as u64, Ordering::SeqCst);
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\nConnection: close\r\n\r\n".to_vec();
            return visit.send([answer, vec![b'x'; 400]].concat());
        }
        let mut more = first.len();
        while more > 0 {
            up.fetch_add(more as u64, Ordering::SeqCst);
            visit.send("got")?;
            more = visit.stream.read(&mut buffer)?;
        }
        visit.finish()
    })
}

/// Ends the load also where the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// One client after another from this address until told to stop: requests with a body, or tunnels.
fn load(proxy: SocketAddr, source: &str, authority: &str, tunnel: bool, stop: &AtomicBool) {
    let source: IpAddr = source.parse().unwrap();
    let head = if tunnel {
        format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")
    } else {
        format!(
            "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\nContent-Length: 900\r\n\r\n"
        )
    };
    while !stop.load(Ordering::SeqCst) {
        let Ok(mut stream) = connect_from(source, proxy) else { continue };
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut buffer = [0; 1 << 14];
        let mut step = |payload: &[u8]| {
            let sent = stream.write_all(payload).is_ok();
            let read = stream.read(&mut buffer).unwrap_or(0);
            sent && read > 0 && (buffer.starts_with(b"HTTP/1.1 200") || buffer.starts_with(b"got"))
        };
        if tunnel {
            let open = step(head.as_bytes());
            let _ = open && (0..20).all(|_| step(&[b'y'; 1300]));
        } else {
            step(&[head.as_bytes(), &[b'z'; 900]].concat());
            // The rest of the answer, up to its end.
            let _ = stream.read_to_end(&mut Vec::new());
        }
        thread::sleep(Duration::from_millis(60));
    }
}

/// A request with a body of 900 octets.
fn post(egret: &Egret, source: &str, authority: &str) -> Response {
    let mut client = Client::connect_from(source, egret.proxy);
    let head = format!("POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nContent-Length: 900");
    client.send(format!("{head}\r\n\r\n{}", "n".repeat(900)));
    client.response("POST")
}

fn from_audit(records: &[Value], sandbox: &str) -> Sums {
    let mut sums = Sums::default();
    let of = |record: &Value| record["sandbox"] == sandbox;
    for record in records.iter().filter(|record| record["event"] == "decision" && of(record)) {
        match record["verdict"].as_str() {
            Some("allow") => sums.allowed += 1,
            _ => sums.refused += 1,
        }
    }
    let ours: std::collections::HashSet<_> =
        records.iter().filter(|r| of(r)).map(|r| r["id"].as_str().unwrap()).collect();
    for record in records.iter().filter(|r| r["event"] == "close") {
        if ours.contains(record["id"].as_str().unwrap()) {
            sums.up += record["bytes_up"].as_u64().unwrap();
            sums.down += record["bytes_down"].as_u64().unwrap();
        }
    }
    sums
}

fn from_ledger(egret: &Egret, sandbox: &str) -> Sums {
    let answer = egret.control("GET", &format!("/v1/sandboxes/{sandbox}/domains"));
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    let sum =
        |key: &str| body["domains"].as_array().unwrap().iter().map(|row| row[key].as_u64().unwrap()).sum();
    Sums { up: sum("bytes_up"), down: sum("bytes_down"), allowed: sum("allow"), refused: sum("deny") }
}

fn from_metrics(egret: &Egret) -> Sums {
    let text = String::from_utf8(egret.control("GET", "/metrics").body).unwrap();
    let sum = |wanted: &[&str]| {
        let lines = text.lines().filter(|line| wanted.iter().all(|part| line.contains(part)));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    Sums {
        up: sum(&["egret_payload_bytes_total", "\"up\""]),
        down: sum(&["egret_payload_bytes_total", "\"down\""]),
        allowed: sum(&["egret_decisions_total", "verdict=\"allow\""]),
        refused: sum(&["egret_decisions_total", "verdict=\"deny\""]),
    }
}

/// For a minute, 64 clients of one sandbox go over its rate, and then over its quota, while another
/// sandbox is served.
#[test]
fn under_load_every_account_of_it_agrees() {
    const QUOTA: u64 = 3_000_000;
    const MINUTE: Duration = Duration::from_secs(60);
    let up = Arc::<AtomicU64>::default();
    let origin = counting(&up);
    let authority = format!("{NAME}:{}", origin.port());
    let text = config(&[NAME], origin.port()).replace("\"box\"", "\"box-{ip}\"");
    let limits = format!("bytes = \"{QUOTA}B/hour\"\nrequests = \"100/s burst 50\"");
    let mut egret = Egret::with(format!("{text}\n[policy.main.limits]\n{limits}\n")).start();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for client in 0..64 {
            let (egret, authority, stop) = (&egret, &authority, &stop);
            scope.spawn(move || load(egret.proxy, "127.0.0.2", authority, client % 4 == 0, stop));
        }
        let _stop = Stop(&stop);
        // The neighbour has limits of its own, and is served whenever it asks.
        let begun = Instant::now();
        while begun.elapsed() < MINUTE {
            let asked = Instant::now();
            assert_eq!(post(&egret, "127.0.0.3", &authority).status, 200);
            assert!(asked.elapsed() < LIMIT, "the neighbour waited {:?}", asked.elapsed());
            thread::sleep(Duration::from_millis(50));
        }
    });
    let open = || egret.events("decision").iter().filter(|r| r["status"].is_null()).count();
    wait_for("every end", LIMIT, || egret.events("close").len() == open());
    let records = egret.audit_records();
    let (greedy, neighbour) = (from_audit(&records, "box-127.0.0.2"), from_audit(&records, "box-127.0.0.3"));
    assert!(greedy.up + greedy.down <= QUOTA, "{greedy:?}");
    assert!(greedy.up + greedy.down > QUOTA - 64 * 2000, "{greedy:?}");
    assert_eq!(neighbour.refused, 0);
    assert_eq!(from_ledger(&egret, "box-127.0.0.2"), greedy);
    assert_eq!(from_ledger(&egret, "box-127.0.0.3"), neighbour);
    let both = Sums {
        up: greedy.up + neighbour.up,
        down: greedy.down + neighbour.down,
        allowed: greedy.allowed + neighbour.allowed,
        refused: greedy.refused + neighbour.refused,
    };
    assert_eq!(from_metrics(&egret), both);
    assert_eq!(up.load(Ordering::SeqCst), both.up, "what the origin received");
    // Not just now and then: most of the time it was over the one or the other.
    let refused = |why: &str| records.iter().filter(|record| record["reason"] == why).count();
    let (by_rate, by_quota) = (refused("rate_limited"), refused("quota_exceeded"));
    assert!(by_rate > 200 && by_quota > 200, "{by_rate} and {by_quota}");

    egret.kill();
    egret.restart();
    let answer = post(&egret, "127.0.0.2", &authority);
    assert_eq!(reason(&answer), (429, Some("quota_exceeded")));
    assert!((3500..=3600).contains(&retry_after(&answer)), "{answer:?}");
    assert_eq!(post(&egret, "127.0.0.3", &authority).status, 200);
}

#[test]
fn a_request_that_the_quota_cuts_is_told_when_to_come_again() {
    let origin = ok();
    let egret = limited(&origin, &[NAME], "bytes_up = \"800B/hour\"");
    let answer = post(&egret, "127.0.0.1", &format!("{NAME}:{}", origin.port()));
    assert_eq!(reason(&answer), (429, Some("quota_exceeded")));
    assert!((3590..=3600).contains(&retry_after(&answer)), "{answer:?}");
}
