//! Every octet arrives, once and in order, whoever ends the connection and when.

use std::io::Write;
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use crate::setup::{front, get};
use crate::support::client::Client;
use crate::support::digest::{self, transfer_size};
use crate::support::origin::Origin;
use crate::support::wait_for;

#[test]
fn a_tunnel_carries_both_directions_at_once() {
    let size = transfer_size();
    let (report, origin_got) = std::sync::mpsc::channel();
    let origin = Origin::start(move |visit| {
        let mut sending = visit.stream.try_clone()?;
        let sender = thread::spawn(move || digest::send(&mut sending, size, 7));
        let got = digest::receive(&mut visit.stream, size)?;
        report.send((sender.join().unwrap()?, got)).unwrap();
        visit.finish()
    });
    let (egret, authority) = front(&origin);
    let mut client = Client::tunnel(egret.proxy, &authority);
    let sending = client.stream.try_clone().unwrap();
    let sender = thread::spawn(move || digest::send(sending, size, 11).unwrap());
    let got = digest::receive(client.reader(), size).unwrap();
    let sent = sender.join().unwrap();
    let (origin_sent, origin_got) = origin_got.recv().unwrap();
    assert_eq!(got, origin_sent, "download");
    assert_eq!(origin_got, sent, "upload");
    assert_eq!(got.length, size);
}

#[test]
fn a_download_over_plain_http_is_whole() {
    let size = transfer_size();
    let (report, sent) = std::sync::mpsc::channel();
    let origin = Origin::start(move |visit| {
        visit.head()?;
        visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n"))?;
        report.send(digest::send(&mut visit.stream, size, 3)?).unwrap();
        visit.finish()
    });
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    client.send(get(&authority, "/big"));
    let answer = client.head("GET");
    assert_eq!((answer.status, answer.get("content-length")), (200, Some(size.to_string().as_str())));
    let got = digest::receive(client.reader(), size).unwrap();
    assert_eq!(got, sent.recv().unwrap());
}

#[test]
fn an_upload_over_plain_http_is_whole() {
    let size = transfer_size();
    let (report, origin_got) = std::sync::mpsc::channel();
    let origin = Origin::start(move |visit| {
        visit.head()?;
        report.send(digest::receive(visit.reader(), size)?).unwrap();
        visit.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
        visit.finish()
    });
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    let head =
        format!("POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nContent-Length: {size}\r\n\r\n");
    client.send(head);
    let sent = digest::send(&client.stream, size, 5).unwrap();
    assert_eq!(client.response("POST").status, 200);
    assert_eq!(origin_got.recv().unwrap(), sent);
}

#[test]
fn answers_right_before_a_fin_arrive_whole() {
    let origin = Origin::start(|visit| {
        let request = visit.request()?.expect("a request");
        let length: usize = request.path()[1..].parse().unwrap();
        visit.send(format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}", "z".repeat(length)))?;
        visit.stream.shutdown(Shutdown::Both)
    });
    let (egret, authority) = front(&origin);
    for round in 0..500 {
        let length = [1, 7_700, 65_536, 100_001][round % 4];
        let mut plain = Client::connect(egret.proxy);
        plain.send(get(&authority, &format!("/{length}")));
        let answer = plain.response("GET");
        assert_eq!((answer.body.len(), answer.complete), (length, true), "plain HTTP, round {round}");

        let mut tunnel = Client::tunnel(egret.proxy, &authority);
        tunnel.send(format!("GET /{length} HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
        let octets = tunnel.until_end();
        assert!(octets.ends_with(&vec![b'z'; length]), "tunnel, round {round}: {} octets", octets.len());
    }
}

#[test]
fn a_slow_reader_gets_all_of_an_answer_whose_origin_is_gone() {
    let origin = Origin::start(|visit| {
        let request = visit.request()?.expect("a request");
        let length: usize = request.path()[1..].parse().unwrap();
        visit.send(format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}", "z".repeat(length)))?;
        visit.stream.shutdown(Shutdown::Both)
    });
    let (egret, authority) = front(&origin);
    // Side by side, since each of them mostly waits.
    thread::scope(|scope| {
        for worker in 0..8 {
            let (egret, authority) = (&egret, &authority);
            scope.spawn(move || {
                for round in 0..25 {
                    let length = [7_700, 1 << 20][(worker + round) % 2];
                    let mut client = match round % 3 {
                        0 => Client::connect(egret.proxy),
                        _ => Client::tunnel(egret.proxy, authority),
                    };
                    let target = if round % 3 == 0 { format!("http://{authority}") } else { String::new() };
                    client.send(format!(
                        "GET {target}/{length} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n"
                    ));
                    thread::sleep(Duration::from_millis(20));
                    let mut octets = Vec::new();
                    while octets.len() < length {
                        octets.extend(client.some());
                        thread::sleep(Duration::from_millis(2));
                    }
                    octets.extend(client.until_end());
                    let got = octets.iter().filter(|&&octet| octet == b'z').count();
                    assert_eq!(got, length, "worker {worker}, round {round}");
                }
            });
        }
    });
}

#[test]
fn a_body_that_breaks_off_is_recorded_with_its_cause() {
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let cases = [
        (format!("{CHUNKED}ZZ\r\n"), "upstream_protocol"),
        (format!("{CHUNKED}1ffffffffffffffff\r\n"), "upstream_protocol"),
        (format!("{CHUNKED}3\r\nabcd"), "upstream_protocol"),
        (CHUNKED.to_owned(), "upstream_closed"),
        (format!("{CHUNKED}3\r\nab"), "upstream_closed"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello".to_owned(), "upstream_closed"),
    ];
    for (answer, reason) in cases {
        let told = answer.clone();
        let origin = Origin::start(move |visit| {
            visit.head()?;
            visit.send(&told)?;
            visit.finish()
        });
        let (egret, authority) = front(&origin);
        let mut client = Client::connect(egret.proxy);
        client.send(get(&authority, "/"));
        let got = client.until_end();
        assert!(
            got.windows(5).any(|octets| octets == b"hello") && !got.ends_with(b"0\r\n\r\n"),
            "{answer:?}"
        );
        wait_for("the close record", Duration::from_secs(10), || !egret.events("close").is_empty());
        let close = egret.events("close").remove(0);
        assert_eq!(
            (close["status"].as_u64(), close["reason"].as_str()),
            (Some(200), Some(reason)),
            "{answer:?}"
        );
        assert!(close["error"].as_str().is_some_and(|words| !words.is_empty()), "{close}");
    }
}

#[test]
fn half_closed_tunnels_finish_and_leave_nothing_open() {
    let origin = Origin::start(|visit| {
        let mut got = Vec::new();
        loop {
            let some = visit.some()?;
            if some.is_empty() {
                break;
            }
            got.extend(some);
        }
        visit.send(b"got ")?;
        visit.send(&got)?;
        visit.finish()
    });
    let (egret, authority) = front(&origin);
    let before = egret.open_files();
    for round in 0..100 {
        let tunnels: Vec<Client> = (0..10).map(|_| Client::tunnel(egret.proxy, &authority)).collect();
        for (number, mut tunnel) in tunnels.into_iter().enumerate() {
            let text = format!("round {round}, tunnel {number}");
            tunnel.send(&text);
            tunnel.finish();
            assert_eq!(tunnel.until_end(), format!("got {text}").into_bytes());
        }
    }
    // A few may be the runtime's own; a leak would be hundreds.
    wait_for("descriptors of ended tunnels are closed", Duration::from_secs(10), || {
        egret.open_files() <= before + 8
    });
}

#[test]
fn octets_behind_a_connect_go_into_the_tunnel() {
    let origin = Origin::start(|visit| {
        let mut got = Vec::new();
        while got.len() < 5 {
            got.extend(visit.some()?);
        }
        visit.send(&got)?;
        visit.finish()
    });
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    client.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\nearly"));
    assert_eq!(client.response("CONNECT").status, 200);
    assert_eq!(client.exactly(5), b"early");
}

#[test]
fn an_origin_that_speaks_first_is_heard() {
    let origin = Origin::start(|visit| {
        visit.stream.write_all(b"220 ready\r\n")?;
        visit.finish()
    });
    let (egret, authority) = front(&origin);
    let mut client = Client::tunnel(egret.proxy, &authority);
    assert_eq!(client.exactly(11), b"220 ready\r\n");
}
