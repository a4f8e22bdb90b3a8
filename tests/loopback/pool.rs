//! Connections to origins that end while nobody uses them.

use std::collections::HashMap;
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use crate::setup::{front, get};
use crate::support::client::Client;
use crate::support::origin::Origin;

/// Promises to stay, answers one or two requests, and goes a moment later.
fn fickle() -> Origin {
    Origin::start(|visit| {
        let mut served = 0;
        while let Some(request) = visit.request()? {
            visit.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
            served += 1;
            let number: u64 = request.path()[1..].parse().unwrap();
            if served > number % 2 {
                thread::sleep(Duration::from_micros(number % 7 * 300));
                return visit.stream.shutdown(Shutdown::Both);
            }
        }
        Ok(())
    })
}

#[test]
fn a_get_survives_a_stale_connection() {
    let origin = fickle();
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    for number in 0..300 {
        client.send(get(&authority, &format!("/{number}")));
        assert_eq!(client.response("GET").status, 200, "request {number}");
    }
}

#[test]
fn a_post_is_never_sent_twice() {
    let origin = fickle();
    let (egret, authority) = front(&origin);
    let mut good = 0;
    for number in 0..300 {
        let mut client = Client::connect(egret.proxy);
        client.send(format!(
            "POST http://{authority}/{number} HTTP/1.1\r\nHost: {authority}\r\nContent-Length: 1\r\n\r\nx"
        ));
        let answer = client.response("POST");
        match answer.status {
            200 => good += 1,
            502 => assert_eq!(answer.get("x-egret-reason"), Some("upstream_closed"), "request {number}"),
            other => panic!("request {number}: status {other}"),
        }
    }
    let mut counts = HashMap::new();
    for request in origin.requests() {
        *counts.entry(request.path().to_owned()).or_insert(0) += 1;
    }
    assert!(counts.values().all(|&count| count == 1), "{counts:?}");
    assert!(good > 0 && counts.len() >= good);
}
