//! kill -9 under load, rotation in between: the ledger and the file agree afterwards.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

use crate::support::client::Talk;
use crate::support::egret::Egret;
use crate::support::wait_for;
use crate::{naive, origin, rows, serving};

const LIMIT: Duration = Duration::from_secs(60);

/// Clients of several sandboxes that ask for whatever comes up, until told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(proxy: SocketAddr, port: u16) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |number: u64| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                let mut random = number * 7919 + 1;
                while !stop.load(Ordering::Relaxed) {
                    // A linear congruential generator: any sequence will do.
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    request(proxy, port, random >> 33);
                }
            })
        };
        let clients = (0..6).map(client).collect();
        Self { stop, clients }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().unwrap();
        }
    }
}

fn request(proxy: SocketAddr, port: u16, random: u64) {
    let authority = match random % 8 {
        0..=2 => format!("a.test:{port}"),
        3..=4 => format!("b.test:{port}"),
        5 => format!("denied-{}.test:443", random / 8 % 20),
        6 => format!("missing.a.test:{port}"),
        _ => "bad host".to_owned(),
    };
    let (payload, method) = if random.is_multiple_of(3) {
        (format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"), "CONNECT")
    } else {
        let body = "x".repeat((random % 100) as usize);
        let head = format!(
            "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nContent-Length: {}",
            body.len()
        );
        (format!("{head}\r\n\r\n{body}"), "POST")
    };
    let mut talk = Talk::new(proxy, payload, &[method]);
    talk.source = IpAddr::from([127, 0, 0, 2 + (random % 5) as u8]);
    // A proxy that is gone is no matter here.
    talk.run(|seen| seen.last_word().is_some_and(|response| response.complete));
}

/// All records, in the files that rotation made as well.
fn all_records(egret: &Egret, rotated: usize) -> Vec<Value> {
    let old = (1..=rotated).rev().map(|number| egret.dir().join(format!("audit.ndjson.{number}")));
    let files: Vec<_> = old.chain([egret.audit_file()]).collect();
    let whole = |file| {
        let mut text = fs::read_to_string(file).unwrap_or_default();
        // A write under way shows in parts, and a kill can cut one: what has no end is no record.
        text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        text
    };
    let text: String = files.iter().map(whole).collect();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn rotate(egret: &Egret, rotated: usize) {
    let name = |number: usize| egret.dir().join(format!("audit.ndjson.{number}"));
    for number in (1..=rotated).rev() {
        fs::rename(name(number), name(number + 1)).unwrap();
    }
    fs::rename(egret.audit_file(), name(1)).unwrap();
}

fn assert_agreement(egret: &Egret, rotated: usize) {
    // Asked first: what is written in between would be in one of them alone.
    let found = rows(egret, &[]);
    let expected = naive::fold(&all_records(egret, rotated));
    assert!(!expected.is_empty());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn a_crash_and_a_rotation_leave_no_difference() {
    let origin = origin();
    let mut egret = serving(&origin).start();
    let mut rotated = 0;
    for round in 0..3 {
        let load = Load::start(egret.proxy, origin.port());
        let before = all_records(&egret, rotated).len();
        wait_for("load", LIMIT, || all_records(&egret, rotated).len() > before + 300);
        if round > 0 {
            rotate(&egret, rotated);
            rotated += 1;
            wait_for("load after rotation", LIMIT, || egret.audit_file().exists());
        }
        egret.kill();
        load.end();
        if round == 1 {
            // With no proxy, the command reads the state directory.
            assert_agreement(&egret, rotated);
            rotate(&egret, rotated);
            rotated += 1;
        }
        egret.restart();
        assert_agreement(&egret, rotated);
    }
    egret.stop();
    assert_agreement(&egret, rotated);
}
