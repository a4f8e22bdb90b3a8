//! What passes inside TLS: everything that passes on the plain port, whole and in order.

use std::io::{ErrorKind, Write};
use std::time::Duration;

use rustls::version::{TLS12, TLS13};

use crate::pki::Pki;
use crate::secure::{Secure, config};
use crate::setup::{NAME, answering, close, connect, connect_to, front, get, tunnel};
use crate::support::digest;
use crate::support::origin::Origin;

const SIZE: u64 = 64 << 20;

#[test]
fn requests_follow_each_other_over_one_connection() {
    let (origin, pki) = (answering(), Pki::new());
    let egret = front(&origin, &pki).start();
    for version in [&TLS12, &TLS13] {
        let mut client = Secure::connect(config(&pki, None, &[version]), "127.0.0.1", egret.tls).unwrap();
        for _ in 0..3 {
            client.send(get(&origin, ""));
            let answer = client.response("GET");
            assert_eq!((answer.status, &*answer.body), (200, &b"ok"[..]));
        }
        // Two at once, and then a tunnel on the same connection.
        client.send(get(&origin, "").repeat(2));
        assert_eq!(client.response("GET").status, 200);
        assert_eq!(client.response("GET").status, 200);
        client.send(connect_to(&origin));
        assert_eq!(client.response("CONNECT").status, 200);
        client.send(format!("GET /inside HTTP/1.1\r\nHost: {NAME}\r\n\r\n"));
        assert_eq!(client.response("GET").body, b"ok");
    }
}

#[test]
fn the_protocol_inside_is_agreed_on() {
    let (origin, pki) = (answering(), Pki::new());
    let egret = front(&origin, &pki).start();
    let mut wants = config(&pki, None, &[&TLS13]);
    wants.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let client = Secure::connect(wants, "127.0.0.1", egret.tls).unwrap();
    assert_eq!(client.stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    let mut wants = config(&pki, None, &[&TLS13]);
    wants.alpn_protocols = vec![b"h2".to_vec()];
    assert!(Secure::connect(wants, "127.0.0.1", egret.tls).is_err());
}

#[test]
fn large_bodies_arrive_whole_both_ways() {
    let (origin, origin_got) = digest::exchanging(SIZE);
    let pki = Pki::new();
    let egret = front(&origin, &pki).start();
    let mut client = connect(&egret, &pki, "127.0.0.1", Some(&pki.client("build-7")));
    let authority = format!("{NAME}:{}", origin.port());
    client.send(format!(
        "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nContent-Length: {SIZE}\r\n\r\n"
    ));
    let sent = digest::send(&mut client.stream, SIZE, 5).unwrap();
    assert_eq!(client.head().status, 200);
    let got = digest::receive(client.reader(), SIZE).unwrap();
    assert_eq!(origin_got.recv().unwrap(), (sent, got));
    let record = close(&egret, 1);
    assert_eq!((&record["bytes_up"], &record["bytes_down"]), (&SIZE.into(), &SIZE.into()), "{record}");
}

#[test]
fn a_tunnel_carries_much_both_ways_and_ends_one_side_after_the_other() {
    let (report, origin_got) = std::sync::mpsc::channel();
    let origin = Origin::start(move |visit| {
        let got = digest::receive(visit.reader(), SIZE)?;
        // The client's end comes through, and its other side is still open.
        assert!(visit.some()?.is_empty());
        report.send((got, digest::send(&mut visit.stream, SIZE, 3)?)).unwrap();
        visit.finish()
    });
    let pki = Pki::new();
    let egret = front(&origin, &pki).start();
    for version in [&TLS12, &TLS13] {
        let mut client = Secure::connect(config(&pki, None, &[version]), "127.0.0.1", egret.tls).unwrap();
        client.send(connect_to(&origin));
        assert_eq!(client.response("CONNECT").status, 200);
        let sent = digest::send(&mut client.stream, SIZE, 5).unwrap();
        client.finish();
        let got = digest::receive(client.reader(), SIZE).unwrap();
        let (rest, end) = client.until_end();
        assert!(rest.is_empty() && end.is_ok(), "an orderly end of TLS: {end:?}");
        assert_eq!(origin_got.recv().unwrap(), (sent, got));
    }
    let record = close(&egret, 2);
    assert_eq!((&record["bytes_up"], &record["bytes_down"]), (&SIZE.into(), &SIZE.into()), "{record}");
    assert_eq!(record["reason"], "allowed", "{record}");
}

#[test]
fn bytes_go_to_and_fro() {
    let (origin, pki) = (Origin::echoing(), Pki::new());
    let egret = front(&origin, &pki).start();
    let mut client = tunnel(&egret, &pki, &origin, None);
    for length in [1, 100, 16_383, 16_384, 16_385, 100_000] {
        let data: Vec<u8> = (0..length).map(|n: usize| n.to_le_bytes()[0]).collect();
        client.send(&data);
        assert!(client.exactly(length) == data, "{length}");
    }
    client.finish();
    let (rest, end) = client.until_end();
    assert!(rest.is_empty() && end.is_ok(), "{end:?}");
    assert_eq!(close(&egret, 1)["reason"], "allowed");
}

/// What is cut short must not look whole to the origin.
#[test]
fn a_client_that_breaks_off_within_tls_is_a_reset_to_the_origin() {
    let (report, end) = std::sync::mpsc::channel();
    let origin = Origin::start(move |visit| {
        let mut got = Vec::new();
        let end = loop {
            match visit.some() {
                Ok(some) if some.is_empty() => break Ok(()),
                Ok(some) => got.extend(some),
                Err(error) => break Err(error.kind()),
            }
        };
        report.send((got, end)).unwrap();
        Ok(())
    });
    let pki = Pki::new();
    let egret = front(&origin, &pki).start();
    let errors = ["the connection ended without the end of TLS", "cannot decrypt"];
    for (number, error) in errors.into_iter().enumerate() {
        let mut client = tunnel(&egret, &pki, &origin, None);
        client.send("a part");
        std::thread::sleep(Duration::from_millis(200));
        match number {
            0 => client.truncate(),
            _ => client.stream.sock.write_all(&[0x17, 3, 3, 0, 32].repeat(20)).unwrap(),
        }
        let (got, end) = end.recv().unwrap();
        assert_eq!((&*got, end), (&b"a part"[..], Err(ErrorKind::ConnectionReset)));
        let record = close(&egret, number + 1);
        assert_eq!(record["reason"], "client_cancel", "{record}");
        assert!(record["error"].as_str().unwrap().contains(error), "{record}");
    }
}

/// Messages without payload keep a connection as little as silence does, and nobody else waits.
#[test]
fn key_updates_are_no_progress() {
    let (origin, pki) = (answering(), Pki::new());
    let rules = format!("[timeouts]\nheader = \"1s\"\nidle = \"1s\"\n\n{}", crate::setup::rules(&origin));
    let egret = crate::support::egret::Egret::with(rules).tls(&crate::setup::lines(&pki)).start();
    let mut busy = connect(&egret, &pki, "127.0.0.1", None);
    let began = std::time::Instant::now();
    let ended = loop {
        if busy.stream.conn.refresh_traffic_keys().is_err() || busy.stream.flush().is_err() {
            break true;
        }
        if began.elapsed() > Duration::from_secs(10) {
            break false;
        }
    };
    assert!(ended, "it may go on for ever");
    let mut other = connect(&egret, &pki, "127.0.0.1", None);
    other.send(get(&origin, ""));
    assert_eq!(other.response("GET").status, 200);
}

/// An answer that ends with its connection ends with TLS if it is whole, and without if it is not.
#[test]
fn the_end_of_an_answer_can_be_told_from_a_cut() {
    let whole = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall there is";
    let cut = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nthere\r\n";
    for (reply, is_whole) in [(whole, true), (cut, false)] {
        let origin = Origin::start(move |visit| {
            visit.request()?;
            visit.send(reply)?;
            visit.stream.shutdown(std::net::Shutdown::Both)
        });
        let pki = Pki::new();
        let egret = front(&origin, &pki).start();
        let mut client = connect(&egret, &pki, "127.0.0.1", None);
        // HTTP/1.0 has no other way to end a body of unknown length.
        client.send(get(&origin, "").replace("HTTP/1.1", "HTTP/1.0"));
        let (got, end) = client.until_end();
        assert!(String::from_utf8_lossy(&got).contains("there"), "{got:?}");
        assert_eq!(end.is_ok(), is_whole, "{end:?}");
    }
}

#[test]
fn the_name_inside_a_tunnel_is_still_checked() {
    let (origin, pki) = (Origin::echoing(), Pki::new());
    let rules = crate::setup::rules(&origin).replace("tls = \"any\"", "tls = \"required\"");
    let egret = crate::support::egret::Egret::with(rules).tls(&crate::setup::lines(&pki)).start();
    let mut count = 0;
    for (name, expected) in [(NAME, None), ("other.test", Some("sni_mismatch"))] {
        let mut client = tunnel(&egret, &pki, &origin, None);
        let inner = std::sync::Arc::new(config(&pki, None, &[&TLS13]));
        let mut hello = Vec::new();
        let mut inner = rustls::ClientConnection::new(inner, name.to_owned().try_into().unwrap()).unwrap();
        inner.write_tls(&mut hello).unwrap();
        client.send(&hello);
        match expected {
            None => {
                assert!(client.exactly(hello.len()) == hello);
                client.finish();
            }
            Some(_) => {
                let (rest, end) = client.until_end();
                assert!(rest.is_empty() && end.is_err(), "closed, and not in order: {end:?}");
            }
        }
        count += 1;
        assert_eq!(close(&egret, count)["reason"], expected.unwrap_or("allowed"));
    }
}
