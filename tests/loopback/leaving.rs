//! Clients that leave, before and after anything came of their request.

use std::collections::HashMap;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::setup::{NAME, config, config_asking, front, get, name_server};
use crate::support::black_hole::BlackHole;
use crate::support::client::Client;
use crate::support::egret::Egret;
use crate::support::origin::Origin;
use crate::support::wait_for;

/// Far less than the time-outs that would end things as well.
const SOON: Duration = Duration::from_secs(5);

/// Files that egret opens once, on first use, are no leak.
const OWN_FILES: usize = 8;

/// Clients that break off while egret waits for something are told from those that waited in vain,
/// and what was begun for them is let go of.
fn are_cancelled(egret: &Egret, authority: &str) {
    let before = egret.open_files();
    let clients: Vec<_> = (0..40)
        .map(|number| {
            let mut client = Client::connect(egret.proxy);
            client.send(match number % 2 {
                0 => get(authority, "/"),
                _ => format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"),
            });
            client
        })
        .collect();
    let ends: Vec<_> = clients.iter().map(|client| (egret.proxy.port(), port_of(client))).collect();
    wait_for("all requests to be read", SOON, || {
        let sockets = sockets();
        ends.iter().all(|ends| sockets[ends].unread == 0)
    });
    assert!(egret.events("decision").is_empty(), "what is under way has no record yet");
    clients.into_iter().for_each(Client::reset);
    wait_for("the records of clients that left", SOON, || egret.events("decision").len() == 40);
    for record in egret.events("decision") {
        let found = [&record["verdict"], &record["reason"], &record["status"]];
        assert_eq!(found, [&"allow".into(), &"client_cancel".into(), &Value::Null], "{record}");
    }
    wait_for("freed descriptors", SOON, || egret.open_files() <= before + OWN_FILES);
}

#[test]
fn a_look_up_for_nobody_is_given_up() {
    let server = name_server();
    // Bound and never read: the questions get no answer at all.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let text = config_asking(&server, 80);
    let text = text.replace(&server.address.to_string(), &silent.local_addr().unwrap().to_string());
    let egret = Egret::with(text.replace("[dns]\n", "[dns]\ntimeout = \"60s\"\n")).start();
    are_cancelled(&egret, &format!("a.{NAME}:80"));
}

#[test]
fn a_dial_for_nobody_is_given_up() {
    let hole = BlackHole::open("127.0.0.1:0".parse().unwrap()).unwrap();
    let text = config(&[NAME], hole.address.port());
    let egret = Egret::with(format!("[timeouts]\nconnect = \"60s\"\n\n{text}")).start();
    are_cancelled(&egret, &format!("{NAME}:{}", hole.address.port()));
}

#[test]
fn tunnels_of_a_client_that_is_gone_end_at_once() {
    // Ignores the end of its input, and says nothing.
    let origin = Origin::start(|visit| {
        while !visit.some()?.is_empty() {}
        thread::sleep(Duration::from_secs(120));
        Ok(())
    });
    let (egret, authority) = front(&origin);
    let before = egret.open_files();
    let tunnels: Vec<_> = (0..200).map(|_| Client::tunnel(egret.proxy, &authority)).collect();
    for (number, mut tunnel) in tunnels.into_iter().enumerate() {
        tunnel.send("something");
        if number % 2 == 0 {
            tunnel.finish();
        }
        tunnel.reset();
    }
    wait_for("the ends of tunnels without a client", SOON, || egret.events("close").len() == 200);
    wait_for("freed descriptors", SOON, || egret.open_files() <= before + OWN_FILES);
}

/// The proxy that waits for a silent origin: every request is one second away from its time-out.
fn impatient(origin: &Origin) -> Egret {
    Egret::with(format!("[timeouts]\nresponse = \"1s\"\n\n{}", config(&[NAME], origin.port()))).start()
}

#[test]
fn who_has_finished_sending_still_gets_the_answer() {
    let origin = Origin::start(|visit| {
        let request = visit.request()?.expect("a request");
        thread::sleep(Duration::from_millis(500));
        visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len() + 5))?;
        visit.send(b"late ")?;
        visit.send(request.body)?;
        visit.finish()
    });
    let egret = impatient(&origin);
    let authority = format!("{NAME}:{}", origin.port());
    for request in [
        get(&authority, "/"),
        format!("POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nContent-Length: 4\r\n\r\nbody"),
    ] {
        let mut client = Client::connect(egret.proxy);
        client.send(request);
        client.finish();
        let answer = client.response("GET");
        assert_eq!((answer.status, answer.body.starts_with(b"late ")), (200, true));
        assert!(client.until_end().is_empty());
    }
}

/// A plain end looks the same from a client that still reads and from one that is gone. What shows
/// the difference is an answer that nobody takes, or the time when there is none to give.
#[test]
fn who_left_without_a_word_is_noticed_when_there_is_something_to_say() {
    let origin = Origin::start(|visit| {
        visit.request()?;
        visit.some().map(drop) // never answers; ends when the proxy gives up
    });
    let egret = impatient(&origin);
    let before = egret.open_files();
    for _ in 0..20 {
        let mut client = Client::connect(egret.proxy);
        client.send(get(&format!("{NAME}:{}", origin.port()), "/"));
    }
    wait_for("the closing records", SOON, || egret.events("close").len() == 20);
    for close in egret.events("close") {
        assert_eq!(
            (&close["reason"], &close["status"]),
            (&"upstream_timeout".into(), &504.into()),
            "{close}"
        );
    }
    wait_for("freed descriptors", SOON, || egret.open_files() <= before + OWN_FILES);
}

fn port_of(client: &Client) -> u16 {
    client.stream.local_addr().unwrap().port()
}

/// What the kernel says of one end of a connection.
#[derive(Debug)]
struct Socket {
    /// Octets that have arrived and that nobody has read.
    unread: u64,
    /// Does it probe the peer when nothing moves?
    kept_alive: bool,
}

/// Ends of connections by their own port and that of the peer (proc_pid_net(5), `tcp`).
fn sockets() -> HashMap<(u16, u16), Socket> {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let hex = |text: &str| u64::from_str_radix(text.split(':').nth(1).unwrap(), 16).unwrap();
    let port = |text: &str| u16::try_from(hex(text)).unwrap();
    let socket = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let socket = Socket { unread: hex(fields[4]), kept_alive: fields[5].starts_with("02:") };
        ((port(fields[1]), port(fields[2])), socket)
    };
    table.lines().skip(1).map(socket).collect()
}

#[test]
fn both_legs_of_a_tunnel_would_notice_a_dead_peer() {
    let (report, peer) = std::sync::mpsc::channel();
    let origin = Origin::start(move |visit| {
        report.send(visit.stream.peer_addr()?.port()).unwrap();
        visit.some().map(drop)
    });
    let (egret, authority) = front(&origin);
    let tunnel = Client::tunnel(egret.proxy, &authority);
    let egress = peer.recv().unwrap();
    for ends in [(egret.proxy.port(), port_of(&tunnel)), (egress, origin.port())] {
        // What was just sent has a timer of its own until it is acknowledged.
        wait_for("keep-alive", SOON, || sockets()[&ends].kept_alive);
    }
}
