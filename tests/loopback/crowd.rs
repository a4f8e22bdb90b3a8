//! Many at once: slow ones, silent ones, those that send crumbs, and operators in a hurry.

use std::collections::HashMap;
use std::io::Write;
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::setup::{NAME, config, front, get, serving, small};
use crate::support::client::{Client, Talk, connect_from};
use crate::support::egret::Egret;
use crate::support::http1;
use crate::support::origin::Origin;
use crate::support::wait_for;

const LIMIT: Duration = Duration::from_secs(20);

fn silent(source: &str, egret: &Egret) -> Option<TcpStream> {
    connect_from(source.parse().unwrap(), egret.proxy).ok()
}

/// Time that the processor spends on egret while nothing happens.
fn idle_second(egret: &Egret) -> Duration {
    thread::sleep(Duration::from_millis(500));
    let before = egret.cpu_time();
    thread::sleep(Duration::from_secs(1));
    egret.cpu_time() - before
}

/// A loop that spins takes a whole second of it; what stands still needs next to nothing.
const NEXT_TO_NOTHING: Duration = Duration::from_millis(250);

#[test]
fn tunnels_that_stand_still_take_no_processor() {
    // Ignores the end of its input, and says nothing.
    let origin = Origin::start(|visit| {
        while !visit.some()?.is_empty() {}
        thread::sleep(Duration::from_secs(120));
        Ok(())
    });
    let (egret, authority) = front(&origin);
    let open = |number: usize| {
        let mut tunnel = Client::tunnel(egret.proxy, &authority);
        match number % 3 {
            0 => {}
            1 => tunnel.finish(),
            _ => {
                tunnel.send("x");
                tunnel.finish();
            }
        }
        tunnel
    };
    let tunnels: Vec<_> = (0..600).map(open).collect();
    let waiting: Vec<_> = (0..100).filter_map(|_| silent("127.0.0.1", &egret)).collect();
    let spent = idle_second(&egret);
    assert!(spent < NEXT_TO_NOTHING, "{spent:?} for {} tunnels and {} clients", tunnels.len(), waiting.len());
}

#[test]
fn a_crowd_at_the_ceiling_shuts_nobody_else_out() {
    let origin = Origin::echoing();
    // Descriptors for about 126 clients; one address gets three quarters of them.
    let egret = serving(&origin).shell("ulimit -n 400").start();
    let authority = format!("{NAME}:{}", origin.port());
    let mut tunnel = Client::tunnel(egret.proxy, &authority);
    let crowd: Vec<_> = (0..300).filter_map(|_| silent("127.0.0.2", &egret)).collect();
    assert!(crowd.len() > 200, "{} connections", crowd.len());
    let spent = idle_second(&egret);
    assert!(spent < NEXT_TO_NOTHING, "{spent:?} at the ceiling");
    tunnel.send("still");
    assert_eq!(tunnel.exactly(5), b"still");
    assert_eq!(egret.control("GET", "/healthz").status, 200);
    for _ in 0..10 {
        let mut other = Client::connect_from("127.0.0.3", egret.proxy);
        other.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
        assert_eq!(other.response("CONNECT").status, 200);
    }
    let refused = egret.events("limit");
    assert!(refused.iter().any(|r| r["limit"] == "max_connections"), "{refused:?}");
    assert!(refused.len() < 10 && egret.log().lines().count() < 20, "a line for each: {}", egret.log());
    drop(crowd);
    wait_for("service for the crowd again", LIMIT, || {
        let mut client = Client::connect_from("127.0.0.2", egret.proxy);
        client.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
        client.response("CONNECT").status == 200
    });
}

#[test]
fn slow_clients_starve_nobody_and_run_out_of_time() {
    let origin = small();
    let text = format!("[timeouts]\nheader = \"2s\"\nidle = \"2s\"\n\n{}", config(&[NAME], origin.port()));
    let egret = Egret::with(text).start();
    let authority = format!("{NAME}:{}", origin.port());
    let before = egret.open_files();
    let quiet: Vec<_> = (0..300).filter_map(|_| silent("127.0.0.2", &egret)).collect();
    let mut slow: Vec<_> = (0..300).filter_map(|_| silent("127.0.0.2", &egret)).collect();
    assert_eq!((quiet.len(), slow.len()), (300, 300));
    for stream in &mut slow {
        stream.write_all(format!("GET http://{authority}/ HTTP/1.1\r\n").as_bytes()).unwrap();
    }
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        for (number, stream) in slow.iter_mut().enumerate() {
            // Refused once it has had its time.
            let _ = stream.write_all(format!("X-{number}: drip\r\n").as_bytes());
        }
        let mut other = Client::connect_from("127.0.0.3", egret.proxy);
        other.stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        other.send(get(&authority, "/"));
        assert_eq!(other.response("GET").status, 200);
        thread::sleep(Duration::from_millis(100));
    }
    let told = egret.events("decision").iter().filter(|r| r["status"] == 408).count();
    assert_eq!(told, slow.len(), "each slow head is refused for that");
    wait_for("freed descriptors", LIMIT, || egret.open_files() <= before + 16);
}

/// More than what one connection may hold at a time, far less than what is sent.
const SOME_MEMORY: usize = 48 << 20;

#[test]
fn crumbs_take_no_memory() {
    const CRUMBS: usize = 100_000;
    let crumbs = || b"1\r\na\r\n".repeat(CRUMBS);
    let origin = Origin::start(move |visit| {
        while let Some(request) = visit.head()? {
            if request.method() == "POST" {
                // However it is cut into chunks now.
                let mut tail = Vec::new();
                while !tail.ends_with(b"0\r\n\r\n") {
                    tail.extend(visit.some()?);
                    tail.drain(..tail.len().saturating_sub(64));
                }
            }
            visit.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            visit.send(crumbs())?;
            visit.send("0\r\n\r\n")?;
        }
        Ok(())
    });
    let (egret, authority) = front(&origin);
    let before = egret.memory();
    let most = AtomicUsize::new(0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                most.fetch_max(egret.memory(), Ordering::SeqCst);
                thread::sleep(Duration::from_millis(5));
            }
        });
        let mut client = Client::connect(egret.proxy);
        client.send(format!(
            "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        ));
        client.send(crumbs());
        client.send("0\r\n\r\n");
        let octets = client.until_end();
        let (_, body) = http1::split_head(&octets).unwrap();
        let chunked = http1::read_chunked(body);
        assert_eq!((chunked.body.len(), chunked.complete), (CRUMBS, true));
        done.store(true, Ordering::SeqCst);
    });
    let grown = most.into_inner().saturating_sub(before);
    assert!(grown < SOME_MEMORY, "{} MiB", grown >> 20);
}

#[test]
fn trailers_and_pipelines_without_end_are_bounded() {
    let origin = Origin::start(|visit| {
        visit.request()?;
        visit.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n")?;
        visit.send(b"X-T: 1\r\n".repeat(200_000))?;
        visit.send("\r\n")
    });
    let (egret, authority) = front(&origin);
    let before = egret.memory();
    let mut client = Client::connect(egret.proxy);
    client.send(format!(
        "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
    ));
    // It may stop reading at any moment.
    let _ = client.stream.write_all(&b"X-T: 1\r\n".repeat(200_000));
    assert_eq!(client.response("POST").status, 431);

    let mut client = Client::connect(egret.proxy);
    client.send(get(&authority, "/"));
    let octets = client.until_end();
    assert!(!octets.ends_with(b"\r\n0\r\n\r\n") && octets.len() < 100_000, "{} octets", octets.len());

    let mut client = Client::connect(egret.proxy);
    let mut sending = client.stream.try_clone().unwrap();
    let sender = thread::spawn(move || sending.write_all(get("no.test", "/").repeat(3000).as_bytes()));
    for number in 0..3000 {
        assert_eq!(client.response("GET").status, 403, "request {number}");
    }
    sender.join().unwrap().unwrap();
    let grown = egret.memory().saturating_sub(before);
    assert!(grown < SOME_MEMORY, "{} MiB", grown >> 20);
}

#[test]
fn reloads_in_a_hurry_stop_nobody_and_end_with_the_last_file() {
    let origin = small();
    let port = origin.port();
    let egret = Egret::with(config(&[NAME, "extra.test"], port)).start();
    let whole = std::fs::read_to_string(egret.config_file()).unwrap();
    let done = AtomicBool::new(false);
    let operate = |number: usize| {
        let mut refused = 0;
        for round in 0..40 {
            let (text, good) = match (number + round) % 4 {
                0 => (whole[..whole.len() / 2].to_owned(), false),
                1 => (format!("{whole}\noops = 1\n"), false),
                _ => (format!("{whole}\n# {number}.{round}\n"), true),
            };
            let draft = egret.dir().join(format!("draft-{number}"));
            std::fs::write(&draft, text).unwrap();
            std::fs::rename(draft, egret.config_file()).unwrap();
            // What it finds may be another operator's file by now.
            let status = egret.reload().status;
            assert!(status == 200 || (400..500).contains(&status), "{status}, of a good file: {good}");
            refused += usize::from(status != 200);
        }
        refused
    };
    let request = || {
        let mut client = Client::connect(egret.proxy);
        let mut served = 0;
        while !done.load(Ordering::SeqCst) {
            client.send(get(&format!("{NAME}:{port}"), "/"));
            assert_eq!(client.response("GET").status, 200);
            served += 1;
        }
        served
    };
    let (served, refused) = thread::scope(|scope| {
        let clients: Vec<_> = (0..3).map(|_| scope.spawn(request)).collect();
        let operate = &operate;
        let operators: Vec<_> = (0..4).map(|number| scope.spawn(move || operate(number))).collect();
        let refused: Vec<_> = operators.into_iter().map(|operator| operator.join()).collect();
        egret.configure(&config(&[NAME], port));
        let last = egret.reload();
        done.store(true, Ordering::SeqCst);
        assert_eq!(last.status, 200);
        let served: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
        (served, refused.into_iter().map(|refused| refused.unwrap()).sum::<usize>())
    });
    assert!(served > 0 && refused > 0, "{served} requests, {refused} refused files");
    let mut client = Client::connect(egret.proxy);
    client.send(get(&format!("extra.test:{port}"), "/"));
    assert_eq!(client.response("GET").status, 403, "the last file is in force");
    let reloads = egret.events("reload");
    assert!(reloads.len() > 160, "{} records", reloads.len());
    let generations: Vec<_> = reloads.iter().map(|record| record["generation"].as_u64().unwrap()).collect();
    assert!(generations.is_sorted(), "{generations:?}");
}

#[test]
fn no_answer_is_without_its_record_also_over_crashes() {
    let origin = small();
    let text = config(&[NAME], origin.port()).replace("\"box\"", "\"box-{ip}\"");
    let mut egret = Egret::with(text).start();
    let (proxy, port) = (egret.proxy, origin.port());
    let mut answered: HashMap<String, [usize; 2]> = HashMap::new();
    for _ in 0..2 {
        let clients: Vec<_> = (1..=6)
            .map(|number| {
                thread::spawn(move || {
                    let source = IpAddr::from([127, 0, 0, number]);
                    let mut counts = [0; 2];
                    for round in 0.. {
                        let host = if round % 2 == 0 { NAME } else { "no.test" };
                        let mut talk = Talk::new(proxy, get(&format!("{host}:{port}"), "/"), &["GET"]);
                        talk.source = source;
                        match talk.run(|seen| seen.last_word().is_some_and(|r| r.complete)).status() {
                            Some(200) => counts[0] += 1,
                            Some(403) => counts[1] += 1,
                            _ => break, // the proxy is gone
                        }
                    }
                    (format!("box-{source}"), counts)
                })
            })
            .collect();
        let before = egret.events("decision").len();
        wait_for("load", LIMIT, || egret.events("decision").len() > before + 600);
        egret.kill();
        for client in clients {
            let (sandbox, counts) = client.join().unwrap();
            let sum = answered.entry(sandbox).or_default();
            *sum = [sum[0] + counts[0], sum[1] + counts[1]];
        }
        egret.restart();
    }
    wait_for("the third start", LIMIT, || egret.events("start").len() == 3);
    let records = egret.audit_records();
    let mut next = 1;
    for record in &records {
        if record["event"] == "start" {
            next = 1;
        }
        assert_eq!(record["seq"], next, "a gap before {record}");
        next += 1;
    }
    for (sandbox, [allowed, denied]) in answered {
        let count = |verdict: &str| {
            let same =
                |r: &&Value| r["event"] == "decision" && r["sandbox"] == *sandbox && r["verdict"] == verdict;
            records.iter().filter(same).count()
        };
        // In each of the two rounds one may be recorded whose answer the crash took.
        let (found, wanted) = ([count("allow"), count("deny")], [allowed, denied]);
        for (found, wanted) in found.into_iter().zip(wanted) {
            assert!((wanted..=wanted + 2).contains(&found), "{sandbox}: {found} records of {wanted} answers");
        }
    }
}
