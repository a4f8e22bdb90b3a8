//! `Upgrade` on plain HTTP.

use crate::setup::{front, get};
use crate::support::client::Client;
use crate::support::origin::Origin;

fn upgrade(authority: &str) -> String {
    upgrade_with(authority, "Connection: Upgrade\r\nUpgrade: websocket")
}

fn upgrade_with(authority: &str, fields: &str) -> String {
    format!(
        "GET http://{authority}/chat HTTP/1.1\r\nHost: {authority}\r\n{fields}\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
}

#[test]
fn a_websocket_carries_frames_from_the_first_segment_on() {
    let origin = Origin::start(|visit| {
        let request = visit.request()?.expect("a request");
        assert_eq!(request.get("upgrade"), Some("websocket"));
        // The first frame comes in the same segment as the head.
        visit.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
              Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n\x81\x05first",
        )?;
        loop {
            let frame = visit.some()?;
            if frame.is_empty() {
                return visit.finish();
            }
            visit.send(frame)?;
        }
    });
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    client.send(upgrade(&authority));
    let answer = client.response("GET");
    assert_eq!((answer.status, answer.get("upgrade")), (101, Some("websocket")));
    assert_eq!(answer.get("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(client.exactly(7), b"\x81\x05first");
    for text in ["\u{1}one", "\u{2}two"] {
        client.send(text);
        assert_eq!(client.exactly(4), text.as_bytes());
    }
    client.finish();
    assert!(client.until_end().is_empty());
}

#[test]
fn an_upgrade_is_one_in_any_spelling_and_to_nothing_but_websocket() {
    let origin = Origin::start(|visit| {
        let request = visit.request()?.expect("a request");
        match request.get("upgrade") {
            Some("websocket") => visit.send(
                "HTTP/1.1 101 Switching Protocols\r\nconnection: keep-alive, UPGRADE\r\nupgrade: WebSocket\r\n\r\n",
            )?,
            other => visit.send(format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\nX-Asked: {}\r\n\r\n",
                other.unwrap_or("nothing")
            ))?,
        }
        visit.finish()
    });
    let (egret, authority) = front(&origin);
    for (fields, status) in [
        ("Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket", 101),
        ("Connection: UPGRADE\r\nConnection: x\r\nUpgrade: WEBSOCKET", 101),
        ("Upgrade: websocket", 200),
        ("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk", 200),
        ("Connection: Upgrade\r\nUpgrade: TLS/1.0", 200),
    ] {
        let mut client = Client::connect(egret.proxy);
        client.send(upgrade_with(&authority, fields));
        let answer = client.response("GET");
        assert_eq!(answer.status, status, "{fields}");
        if status == 101 {
            assert_eq!(
                (answer.all("connection"), answer.all("upgrade")),
                (vec!["Upgrade"], vec!["websocket"])
            );
        } else {
            assert_eq!(answer.get("x-asked"), Some("nothing"), "{fields}");
        }
    }
}

#[test]
fn a_refused_upgrade_is_an_ordinary_answer() {
    let origin = Origin::replying("HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno");
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    client.send(upgrade(&authority));
    assert_eq!(client.response("GET").status, 426);
}

#[test]
fn a_101_that_nobody_asked_for_is_a_fault_of_the_origin() {
    let origin = Origin::replying(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nsecret",
    );
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    client.send(get(&authority, "/"));
    let answer = client.response("GET");
    assert_eq!((answer.status, answer.get("x-egret-reason")), (502, Some("upstream_protocol")));
}
