//! Reason codes as clients and the audit see them, each provoked.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use crate::setup::{NAME, config, config_asking, front, get, name_server, serving, small};
use crate::support::client::Client;
use crate::support::dns_server::Answer;
use crate::support::egret::Egret;
use crate::support::hello;
use crate::support::wait_for;

/// The status and reason that a request gets.
fn refusal(egret: &Egret, request: String) -> (u16, String) {
    let mut client = Client::connect(egret.proxy);
    client.send(request);
    let answer = client.response("GET");
    (answer.status, answer.get("x-egret-reason").unwrap_or_default().to_owned())
}

fn refused(status: u16, reason: &str) -> (u16, String) {
    (status, reason.to_owned())
}

#[test]
fn credentials_that_nobody_can_check_are_not_ignored() {
    let origin = small();
    let (egret, authority) = front(&origin);
    let request = get(&authority, "/").replace("\r\n\r\n", "\r\nProxy-Authorization: Basic YTpi\r\n\r\n");
    assert_eq!(refusal(&egret, request), refused(403, "identity_rejected"));
    assert_eq!(origin.accepted(), 0);
}

#[test]
fn a_request_that_was_here_before_is_a_loop() {
    let origin = small();
    let (egret, authority) = front(&origin);
    let request = get(&authority, "/").replace("\r\n\r\n", "\r\nVia: 1.1 other, 1.1 egret\r\n\r\n");
    assert_eq!(refusal(&egret, request), refused(502, "proxy_loop"));
    assert_eq!(origin.accepted(), 0);
}

#[test]
fn failures_of_dns_are_told_apart() {
    let origin = small();
    let server = name_server();
    server.reset([(format!("broken.{NAME}"), vec![Answer::rcode("SERVFAIL")])].into(), None);
    let egret = Egret::with(config_asking(&server, origin.port())).start();
    let ask = |name: &str| refusal(&egret, get(&format!("{name}.{NAME}:{}", origin.port()), "/"));
    assert_eq!(ask("broken"), refused(502, "dns_failed"));

    // Bound and never read: the questions get no answer at all.
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let text = config_asking(&server, origin.port());
    let text = text.replace(&server.address.to_string(), &silent.local_addr().unwrap().to_string());
    let text = text.replace("[dns]\n", "[dns]\ntimeout = \"1s\"\n");
    let egret = Egret::with(text).start();
    let answer = refusal(&egret, get(&format!("a.{NAME}:{}", origin.port()), "/"));
    assert_eq!(answer, refused(504, "dns_timeout"));
}

#[test]
fn beyond_the_ceiling_clients_are_told() {
    let origin = small();
    // Descriptors for one client beside the reserve.
    let egret = serving(&origin).shell("ulimit -n 68").start();
    let authority = format!("{NAME}:{}", origin.port());
    let mut first = Client::connect(egret.proxy);
    // The place of whoever asked whether it was up may not be free yet.
    wait_for("a place", Duration::from_secs(5), || {
        first = Client::connect(egret.proxy);
        first.send(get(&authority, "/"));
        first.response("GET").status == 200
    });
    assert_eq!(refusal(&egret, get(&authority, "/")), refused(503, "overloaded"));
}

/// What the close record says of a tunnel whose client sends this after the 200.
fn tunnel_end(first_bytes: &[u8], limits: &str) -> String {
    let origin = small();
    let rule = format!("tls = \"required\"\n{limits}");
    let text = format!("[timeouts]\ntls = \"1s\"\n\n{}{rule}", config(&[NAME], origin.port()));
    let egret = Egret::with(text).start();
    let authority = format!("{NAME}:{}", origin.port());
    let mut client = Client::connect(egret.proxy);
    client.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
    assert_eq!(client.response("CONNECT").status, 200);
    client.send(first_bytes);
    client.until_end();
    close_reason(&egret)
}

/// The reason in the only close record, once it is there.
fn close_reason(egret: &Egret) -> String {
    let closed = || egret.audit_records().into_iter().find(|record| record["event"] == "close");
    wait_for("the close record", Duration::from_secs(10), || closed().is_some());
    closed().unwrap()["reason"].as_str().unwrap().to_owned()
}

#[test]
fn what_is_wrong_with_the_first_bytes_of_a_tunnel() {
    assert_eq!(tunnel_end(b"SSH-2.0-x\r\n", ""), "not_tls");
    assert_eq!(tunnel_end(&hello::with(&[]), ""), "sni_missing");
    // The length of the extensions says more than there is.
    let mut cut = hello::with(&[0, 10, 0, 2, 0, 29]);
    cut[48] = 0xff;
    assert_eq!(tunnel_end(&cut, ""), "tls_malformed");
    assert_eq!(tunnel_end(b"", ""), "tls_timeout");
}

#[test]
fn a_tunnel_lives_as_long_as_it_may() {
    let origin = small();
    let limits = "\n[policy.main.limits]\ntunnel_lifetime = \"1s\"\n";
    let egret = Egret::with(format!("{}{limits}", config(&[NAME], origin.port()))).start();
    let authority = format!("{NAME}:{}", origin.port());
    let mut client = Client::connect(egret.proxy);
    client.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
    assert_eq!(client.response("CONNECT").status, 200);
    client.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client.until_end();
    assert_eq!(close_reason(&egret), "lifetime_exceeded");
}
