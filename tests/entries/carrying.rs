//! What a tunnel of SOCKS5 carries, and what ends it: all as for CONNECT.

use std::net::{Ipv4Addr, Shutdown};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::messages::config;
use crate::support::client::Client;
use crate::support::digest;
use crate::support::dns_server::{Answer, DnsServer};
use crate::support::egret::{BINARY, Egret, SocksAt};
use crate::support::origin::Origin;
use crate::support::socks;
use crate::support::wait_for;

const LIMIT: Duration = Duration::from_secs(30);

fn end(egret: &Egret) -> Value {
    wait_for("the closing record", LIMIT, || !egret.events("close").is_empty());
    egret.events("close").pop().unwrap()
}

#[test]
fn the_record_has_what_that_of_a_connect_has() {
    let origin = Origin::echoing();
    let egret = Egret::with(config(&origin)).socks(SocksAt::OwnPort).start();
    let authority = format!("origin.test:{}", origin.port());
    let mut records = Vec::new();
    for mut client in
        [Client::tunnel(egret.proxy, &authority), socks::tunnel(egret.socks, "origin.test", origin.port())]
    {
        client.send("twelve bytes");
        assert_eq!(client.exactly(12), b"twelve bytes");
        client.finish();
        client.until_end();
        let seen = records.len() / 2 + 1;
        wait_for("the closing record", LIMIT, || egret.events("close").len() == seen);
        records.extend([egret.events("decision").pop().unwrap(), egret.events("close").pop().unwrap()]);
    }
    let keys = |record: &Value| record.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut of_connect = keys(&records[0]);
    of_connect.retain(|key| key != "method");
    assert_eq!(keys(&records[2]), of_connect);
    assert_eq!(keys(&records[3]), keys(&records[1]));
    for key in
        ["sandbox", "identity", "host", "port", "scheme", "verdict", "reason", "rule", "addresses", "dialed"]
    {
        assert_eq!(records[0][key], records[2][key], "{key}");
    }
    assert_eq!(records[2]["protocol"], "socks5");
    assert_eq!((&records[3]["bytes_up"], &records[3]["bytes_down"]), (&12.into(), &12.into()));
}

#[test]
fn sixty_four_mebibytes_go_both_ways_unchanged() {
    const SIZE: u64 = 64 << 20;
    let origin = Origin::echoing();
    let egret = Egret::with(config(&origin)).socks(SocksAt::OwnPort).start();
    let mut client = socks::tunnel(egret.socks, "origin.test", origin.port());
    let writer = client.stream.try_clone().unwrap();
    let sending = thread::spawn(move || {
        let sent = digest::send(&writer, SIZE, 5).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
        sent
    });
    // More than there is: half a connection goes on after the other has ended, and then ends too.
    let received = digest::receive(client.reader(), SIZE + 1).unwrap();
    assert_eq!(received, sending.join().unwrap());
    let end = end(&egret);
    assert_eq!((&end["bytes_up"], &end["bytes_down"]), (&SIZE.into(), &SIZE.into()));
    assert_eq!(end["reason"], "allowed");
}

#[test]
fn what_can_not_be_reached_has_a_code_for_its_kind() {
    let origin = Origin::echoing();
    let dns = DnsServer::start("127.0.0.1:0".parse().unwrap(), |_| Ipv4Addr::LOCALHOST).unwrap();
    dns.reset(
        [
            ("missing.origin.test".to_owned(), vec![Answer::rcode("NXDOMAIN")]),
            ("broken.origin.test".to_owned(), vec![Answer::rcode("SERVFAIL")]),
            ("silent.origin.test".to_owned(), vec![Answer::rcode("TIMEOUT")]),
        ]
        .into(),
        None,
    );
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = config(&origin)
        .replace("\"127.0.0.1:9\"", &format!("\"{}\"", dns.address))
        .replace("[dns]\n", "[dns]\ntimeout = \"1s\"\n")
        .replace("\"origin.test\"]\naddr", "\"**.origin.test\"]\naddr")
        .replace("ports = [", &format!("ports = [{closed}, "));
    let egret = Egret::with(text).socks(SocksAt::OwnPort).start();
    for (host, port, code, reason) in [
        ("missing.origin.test", origin.port(), 4, "dns_not_found"),
        ("broken.origin.test", origin.port(), 4, "dns_failed"),
        ("silent.origin.test", origin.port(), 6, "dns_timeout"),
        ("a.origin.test", closed, 5, "connect_refused"),
        ("a.origin.test", 1, 2, "port_not_allowed"),
        ("elsewhere.test", 80, 2, "domain_not_allowed"),
    ] {
        let mut client = Client::connect(egret.socks);
        assert_eq!(socks::ask(&mut client, socks::named(host.as_bytes(), port)), code, "{host}:{port}");
        assert!(client.until_end().is_empty());
        let record = egret.events("decision").pop().unwrap();
        assert_eq!((&record["reason"], &record["status"]), (&reason.into(), &Value::Null), "{record}");
    }
}

#[test]
fn a_policy_that_no_longer_permits_it_closes_it() {
    let origin = Origin::echoing();
    let egret = Egret::with(config(&origin)).socks(SocksAt::OwnPort).start();
    let mut client = socks::tunnel(egret.socks, "origin.test", origin.port());
    client.send("still");
    assert_eq!(client.exactly(5), b"still");
    egret.configure(&config(&origin).replace("\"origin.test\"]\naddr", "\"other.test\"]\naddr"));
    assert_eq!(egret.reload().status, 200);
    assert!(client.until_end().is_empty());
    assert_eq!(end(&egret)["reason"], "policy_changed");
}

#[test]
fn limits_hold() {
    let origin = Origin::echoing();
    let limits = "\n[policy.main.limits]\nconnections = 1\nbytes = \"100kB/day\"\n";
    let egret = Egret::with(config(&origin) + limits).socks(SocksAt::OwnPort).start();
    let mut first = socks::tunnel(egret.socks, "origin.test", origin.port());
    let mut second = Client::connect(egret.socks);
    assert_eq!(socks::ask(&mut second, socks::named(b"origin.test", origin.port())), 2);
    assert_eq!(egret.events("decision").pop().unwrap()["reason"], "too_many_connections");
    first.send(vec![b'x'; 80_000]);
    first.until_end();
    assert_eq!(end(&egret)["reason"], "quota_exceeded");
}

#[test]
fn malformed_requests_use_up_the_rate() {
    let origin = Origin::echoing();
    let limits = "\n[policy.main.limits]\nrequests = \"1/h burst 2\"\n";
    let egret = Egret::with(config(&origin) + limits).socks(SocksAt::OwnPort).start();
    let codes = [0; 3].map(|_| {
        let mut client = Client::connect(egret.socks);
        socks::ask(&mut client, socks::named(b"a b", 80))
    });
    assert_eq!(codes, [1, 1, 2]);
    assert_eq!(egret.events("decision").pop().unwrap()["reason"], "rate_limited");
}

#[test]
fn what_was_asked_is_learned_from_and_in_the_ledger() {
    let origin = Origin::echoing();
    let egret = Egret::with(config(&origin)).socks(SocksAt::OwnPort).start();
    let mut client = Client::connect(egret.socks);
    assert_eq!(socks::ask(&mut client, socks::named(b"api.vendor.com", 443)), 2);
    let learned = Command::new(BINARY).arg("learn").arg(egret.audit_file()).current_dir(egret.dir()).output();
    let learned = learned.unwrap();
    let said = String::from_utf8_lossy(&learned.stdout);
    assert!(learned.status.success() && said.contains("\"api.vendor.com\""), "{learned:?}");
    wait_for("the ledger", LIMIT, || {
        let answer = egret.control("GET", "/v1/sandboxes/box/domains");
        String::from_utf8_lossy(&answer.body).contains("\"api.vendor.com\"")
    });
}

#[test]
fn a_stop_lets_an_open_tunnel_end_and_takes_no_other() {
    let origin = Origin::echoing();
    let mut egret = Egret::with(config(&origin)).socks(SocksAt::OwnPort).start();
    let mut open = socks::tunnel(egret.socks, "origin.test", origin.port());
    let mut waiting = Client::connect(egret.socks);
    waiting.send(socks::HELLO);
    assert_eq!(waiting.exactly(2), [5, 0]);
    egret.signal(Signal::TERM);
    assert!(waiting.until_end().is_empty(), "what has not been asked is not answered");
    open.send("still");
    assert_eq!(open.exactly(5), b"still");
    open.finish();
    open.until_end();
    assert!(egret.wait().success());
    assert_eq!(end(&egret)["reason"], "allowed");
}
