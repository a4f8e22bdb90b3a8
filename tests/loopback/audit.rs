//! The audit file: one decision for each request, and one close where traffic began.

use std::collections::HashSet;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::setup::{config_asking, front, get, name_server, serving};
use crate::support::client::Client;
use crate::support::egret::Egret;
use crate::support::origin::Origin;
use crate::support::wait_for;

const LIMIT: Duration = Duration::from_secs(10);

/// The only decision so far and, once it is written, its only close.
fn pair(egret: &Egret) -> (Value, Value) {
    wait_for("a closing record", LIMIT, || !egret.events("close").is_empty());
    let (decisions, closes) = (egret.events("decision"), egret.events("close"));
    assert_eq!((decisions.len(), closes.len()), (1, 1), "{decisions:?} {closes:?}");
    assert_eq!(decisions[0]["id"], closes[0]["id"]);
    (decisions[0].clone(), closes[0].clone())
}

/// The only record, of a request that never got as far as its origin.
fn only_decision(egret: &Egret) -> Value {
    let (decisions, closes) = (egret.events("decision"), egret.events("close"));
    assert_eq!((decisions.len(), closes.len()), (1, 0), "{decisions:?} {closes:?}");
    decisions[0].clone()
}

fn text<'a>(record: &'a Value, key: &str) -> &'a str {
    record[key].as_str().unwrap_or_else(|| panic!("{key} in {record}"))
}

#[test]
fn a_get_has_its_decision_and_its_octets() {
    let origin = Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello there");
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    client.send(format!(
        "POST http://{authority}/path?secret=1 HTTP/1.1\r\nHost: {authority}\r\nContent-Length: 7\r\n\r\npayload"
    ));
    assert_eq!(client.response("POST").status, 200);
    let (decision, close) = pair(&egret);
    let fields =
        ["sandbox", "identity", "protocol", "method", "scheme", "host", "verdict", "reason", "policy"];
    let values = fields.map(|key| text(&decision, key));
    assert_eq!(values, ["box", "source", "http", "POST", "http", "origin.test", "allow", "allowed", "main"]);
    assert_eq!(decision["port"], origin.port());
    assert_eq!(decision["addresses"][0], "127.0.0.1");
    assert!(text(&decision, "dialed").starts_with("127.0.0.1"), "{decision}");
    assert_eq!(decision["status"], Value::Null, "egret answered nothing itself");
    assert_eq!(close["status"], 200);
    assert_eq!((&close["bytes_up"], &close["bytes_down"]), (&7.into(), &11.into()));
    let file = std::fs::read_to_string(egret.audit_file()).unwrap();
    assert!(!file.contains("secret"), "a query string in {file}");
}

#[test]
fn a_tunnel_has_its_exact_octets() {
    let origin = Origin::start(|visit| {
        visit.exactly(1000)?;
        visit.send("d".repeat(54_321))?;
        visit.finish()
    });
    let (egret, authority) = front(&origin);
    let mut client = Client::tunnel(egret.proxy, &authority);
    client.send("u".repeat(1000));
    assert_eq!(client.until_end().len(), 54_321);
    client.finish();
    let (decision, close) = pair(&egret);
    assert_eq!([text(&decision, "protocol"), text(&decision, "verdict")], ["connect", "allow"]);
    assert_eq!((&close["bytes_up"], &close["bytes_down"]), (&1000.into(), &54_321.into()));
}

#[test]
fn what_is_open_has_its_record_already_and_what_broke_off_its_octets() {
    let origin = Origin::start(|visit| {
        visit.head()?;
        visit.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nhalf")?;
        while !visit.some()?.is_empty() {}
        Ok(())
    });
    let (egret, authority) = front(&origin);
    let tunnel = Client::tunnel(egret.proxy, &authority);
    let open = only_decision(&egret);
    assert_eq!([text(&open, "verdict"), text(&open, "dialed")], ["allow", "127.0.0.1"]);
    let mut client = Client::connect(egret.proxy);
    client.send(format!(
        "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nContent-Length: 1000\r\n\r\n0123456789"
    ));
    assert_eq!(client.head("POST").status, 200);
    let mut body = Vec::new();
    while body.len() < 4 {
        body.extend(client.some());
    }
    client.reset();
    wait_for("a closing record", LIMIT, || !egret.events("close").is_empty());
    let close = egret.events("close").remove(0);
    assert_eq!(text(&close, "reason"), "client_cancel");
    assert_eq!(
        (&close["bytes_up"], &close["bytes_down"], &close["status"]),
        (&10.into(), &4.into(), &200.into())
    );
    drop(tunnel);
    wait_for("the tunnel's closing record", LIMIT, || egret.events("close").len() == 2);
    assert_eq!(egret.events("close")[1]["id"], open["id"]);
}

#[test]
fn a_fault_in_an_upload_is_the_clients_also_behind_the_head_of_the_answer() {
    let origin = Origin::start(|visit| {
        visit.head()?;
        visit.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nhalf")?;
        while !visit.some()?.is_empty() {}
        Ok(())
    });
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    client.send(format!(
        "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    ));
    assert_eq!(client.head("POST").status, 200);
    client.send("no size\r\n");
    client.until_end();
    let (_, close) = pair(&egret);
    assert_eq!((text(&close, "reason"), &close["bytes_up"]), ("bad_request", &5.into()));
}

#[test]
fn a_denial_has_its_decision_alone() {
    let origin = Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let (egret, _) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    client.send("CONNECT elsewhere.test:443 HTTP/1.1\r\nHost: elsewhere.test:443\r\n\r\n");
    let answer = client.response("CONNECT");
    assert_eq!((answer.status, answer.get("x-egret-reason")), (403, Some("domain_not_allowed")));
    let decision = only_decision(&egret);
    assert_eq!([text(&decision, "verdict"), text(&decision, "reason")], ["deny", "domain_not_allowed"]);
    assert_eq!(decision["status"], 403);
    assert_eq!(Some(text(&decision, "id")), answer.get("x-egret-request"));
    assert_eq!(origin.accepted(), 0);
}

#[test]
fn a_name_that_does_not_exist_was_allowed_all_the_same() {
    let dns = name_server();
    let egret = Egret::with(config_asking(&dns, 80)).start();
    let mut client = Client::connect(egret.proxy);
    client.send(get("missing.origin.test", "/"));
    let answer = client.response("GET");
    assert_eq!((answer.status, answer.get("x-egret-reason")), (502, Some("dns_not_found")));
    let decision = only_decision(&egret);
    assert_eq!([text(&decision, "verdict"), text(&decision, "reason")], ["allow", "dns_not_found"]);
    assert_eq!(decision["status"], 502);
}

#[test]
fn a_client_that_leaves_is_named_as_the_cause() {
    let origin = Origin::start(|visit| {
        visit.request()?;
        visit.some().map(drop) // never answers; ends when the proxy gives up
    });
    let (egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    client.send(get(&authority, "/"));
    wait_for("the request at the origin", LIMIT, || origin.requests().len() == 1);
    client.reset(); // a plain end could be that of a client that still reads
    let (decision, close) = pair(&egret);
    assert_eq!(text(&decision, "verdict"), "allow");
    assert_eq!(text(&close, "reason"), "client_cancel");
}

#[test]
fn a_crash_loses_no_record_of_what_reached_an_origin() {
    let origin = Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let dns = name_server();
    let mut egret = Egret::with(config_asking(&dns, origin.port())).start();
    let (proxy, port) = (egret.proxy, origin.port());
    let clients: Vec<_> = (0..8)
        .map(|number| {
            thread::spawn(move || {
                for round in 0..100_000 {
                    let authority = format!("c{number}-{round}.origin.test:{port}");
                    let talk = crate::support::client::Talk::new(proxy, get(&authority, "/"), &["GET"]);
                    if talk.run(|seen| seen.last_word().is_some_and(|r| r.complete)).status() != Some(200) {
                        return; // the proxy is gone
                    }
                }
            })
        })
        .collect();
    wait_for("load", Duration::from_secs(30), || origin.requests().len() > 300);
    egret.kill();
    for client in clients {
        client.join().unwrap();
    }
    let recorded: HashSet<String> =
        egret.events("decision").iter().map(|r| format!("{}:{port}", text(r, "host"))).collect();
    for request in origin.requests() {
        let host = request.get("host").unwrap();
        assert!(recorded.contains(host), "no decision record for {host}, of {}", recorded.len());
    }
}

#[test]
fn what_cannot_be_recorded_is_refused() {
    let origin = Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let egret = serving(&origin).audit("file = \"/dev/full\"\n").try_start();
    // Refusing to start is as good an answer as refusing each request.
    let Ok(egret) = egret else { return };
    let mut client = Client::connect(egret.proxy);
    client.send(get(&format!("origin.test:{}", origin.port()), "/"));
    let answer = client.response("GET");
    assert_eq!((answer.status, answer.get("x-egret-reason")), (503, Some("audit_unavailable")));
    assert!(origin.requests().is_empty());
}
