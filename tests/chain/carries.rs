//! What goes through a parent arrives as if there were none.

use std::thread;

use crate::parent::{Act, Parent};
use crate::setup::{NAME, config_at, decision, get, through};
use crate::support::client::Client;
use crate::support::digest;
use crate::support::egret::Egret;
use crate::support::origin::Origin;

const SIZE: u64 = 64 << 20;

fn small() -> Origin {
    Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
}

#[test]
fn a_tunnel_goes_to_the_checked_address() {
    let (origin, parent) = (Origin::echoing(), Parent::open());
    let egret = through(parent.address(), origin.port()).start();
    let mut client = Client::tunnel(egret.proxy, &format!("{NAME}:{}", origin.port()));
    client.send("hello");
    assert_eq!(client.exactly(5), b"hello");
    client.finish();
    assert!(client.until_end().is_empty());
    let checked = format!("127.0.0.1:{}", origin.port());
    assert_eq!(parent.targets(), [checked.as_str()]);
    let head = &parent.heads()[0];
    assert_eq!((head.get("host"), head.get("via")), (Some(checked.as_str()), Some("1.1 egret")));
    assert!(!String::from_utf8_lossy(&head.head).contains(NAME), "no name goes to the parent");
    let record = decision(&egret, 1);
    assert_eq!(record["dialed"], "127.0.0.1");
    assert_eq!(record["via_parent"], parent.address().to_string());
    assert_eq!((&record["reason"], &record["host"]), (&"allowed".into(), &NAME.into()));
}

#[test]
fn plain_requests_share_a_tunnel_and_tell_the_parent_nothing() {
    let (origin, parent) = (small(), Parent::open());
    let egret = through(parent.address(), origin.port()).start();
    let mut client = Client::connect(egret.proxy);
    let authority = format!("{NAME}:{}", origin.port());
    for round in 0..6 {
        client.send(format!("GET http://{authority}/{round} HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
        assert_eq!(client.response("GET").body, b"ok");
    }
    // One tunnel for all of them, pooled in between.
    assert_eq!(parent.targets(), [format!("127.0.0.1:{}", origin.port())]);
    assert_eq!((origin.accepted(), origin.requests().len()), (1, 6));
    assert_eq!(origin.requests()[0].line, "GET /0 HTTP/1.1");
    let record = decision(&egret, 6);
    assert_eq!(record["via_parent"], parent.address().to_string());
}

#[test]
fn an_ipv6_address_has_brackets() {
    let Ok(listener) = std::net::TcpListener::bind("[::1]:0") else {
        println!("skipped: no IPv6 on this machine");
        return;
    };
    let port = listener.local_addr().unwrap().port();
    let parent = Parent::open();
    let egret = Egret::with(config_at(&parent.address().to_string(), &["::1"], port, "")).start();
    let _tunnel = Client::tunnel(egret.proxy, &format!("{NAME}:{port}"));
    assert_eq!(parent.targets(), [format!("[::1]:{port}")]);
}

#[test]
fn a_websocket_passes() {
    let origin = Origin::start(|visit| {
        visit.head()?;
        visit.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst",
        )?;
        let frame = visit.some()?;
        visit.send(frame)?;
        visit.finish()
    });
    let parent = Parent::open();
    let egret = through(parent.address(), origin.port()).start();
    let authority = format!("{NAME}:{}", origin.port());
    let mut client = Client::connect(egret.proxy);
    client.send(format!(
        "GET http://{authority}/chat HTTP/1.1\r\nHost: {authority}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ));
    assert_eq!(client.response("GET").status, 101);
    assert_eq!(client.exactly(5), b"first");
    client.send("frame");
    assert_eq!(client.exactly(5), b"frame");
    assert!(client.until_end().is_empty());
}

#[test]
fn a_tunnel_carries_much_both_ways() {
    let (report, origin_got) = std::sync::mpsc::channel();
    let origin = Origin::start(move |visit| {
        let mut sending = visit.stream.try_clone()?;
        let sender = thread::spawn(move || digest::send(&mut sending, SIZE, 7));
        let got = digest::receive(&mut visit.stream, SIZE)?;
        report.send((sender.join().unwrap()?, got)).unwrap();
        visit.finish()
    });
    let parent = Parent::open();
    let egret = through(parent.address(), origin.port()).start();
    let mut client = Client::tunnel(egret.proxy, &format!("{NAME}:{}", origin.port()));
    let sending = client.stream.try_clone().unwrap();
    let sender = thread::spawn(move || digest::send(sending, SIZE, 11).unwrap());
    let got = digest::receive(client.reader(), SIZE).unwrap();
    let sent = sender.join().unwrap();
    let (origin_sent, origin_got) = origin_got.recv().unwrap();
    assert_eq!((got, origin_got), (origin_sent, sent));
    assert_eq!(got.length, SIZE);
}

#[test]
fn plain_bodies_carry_much_both_ways() {
    let (origin, origin_saw) = digest::exchanging(SIZE);
    let parent = Parent::open();
    let egret = through(parent.address(), origin.port()).start();
    let authority = format!("{NAME}:{}", origin.port());
    let mut client = Client::connect(egret.proxy);
    client.send(format!(
        "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nContent-Length: {SIZE}\r\n\r\n"
    ));
    let sent = digest::send(&client.stream, SIZE, 5).unwrap();
    assert_eq!(client.head("POST").status, 200);
    let got = digest::receive(client.reader(), SIZE).unwrap();
    assert_eq!(origin_saw.recv().unwrap(), (sent, got));
}

#[test]
fn bytes_behind_the_answer_belong_to_the_tunnel() {
    let greeting = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n220 hello\r\n";
    let (origin, parent) = (Origin::echoing(), Parent::start(move |_| Act::Tunnel(greeting.to_owned())));
    let egret = through(parent.address(), origin.port()).start();
    let mut client = Client::tunnel(egret.proxy, &format!("{NAME}:{}", origin.port()));
    assert_eq!(client.exactly(11), b"220 hello\r\n");
    client.send("EHLO");
    assert_eq!(client.exactly(4), b"EHLO");
    // An HTTP origin that speaks first is none.
    let answer = get(&egret, origin.port());
    assert_eq!((answer.status, answer.get("x-egret-reason")), (502, Some("upstream_protocol")));
}

#[test]
fn interim_answers_are_passed_over_and_any_2xx_opens() {
    let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.0 299 Fine\r\n\r\n";
    let (origin, parent) = (small(), Parent::start(move |_| Act::Tunnel(text.to_owned())));
    let egret = through(parent.address(), origin.port()).start();
    assert_eq!(get(&egret, origin.port()).body, b"ok");
    let _tunnel = Client::tunnel(egret.proxy, &format!("{NAME}:{}", origin.port()));
}
