//! A changed configuration takes effect whole or not at all, for open tunnels too.

use std::time::Duration;

use rustix::process::Signal;

use crate::setup::{config, get};
use crate::support::client::Client;
use crate::support::egret::Egret;
use crate::support::origin::Origin;
use crate::support::wait_for;

const LIMIT: Duration = Duration::from_secs(10);

/// Two tunnels, then a policy without the name of the second, told by `tell`.
fn closes_what_the_new_policy_refuses(tell: impl FnOnce(&Egret)) {
    let origin = Origin::echoing();
    let port = origin.port();
    let egret = Egret::with(config(&["stays.test", "goes.test"], port)).start();
    let mut stays = Client::tunnel(egret.proxy, &format!("stays.test:{port}"));
    let mut goes = Client::tunnel(egret.proxy, &format!("goes.test:{port}"));
    for tunnel in [&mut stays, &mut goes] {
        tunnel.send("before");
        assert_eq!(tunnel.exactly(6), b"before");
    }
    egret.configure(&config(&["stays.test"], port));
    tell(&egret);
    assert!(goes.until_end().is_empty());
    stays.send("after");
    assert_eq!(stays.exactly(5), b"after");
    wait_for("the closing record", LIMIT, || {
        egret.events("close").iter().any(|r| r["reason"] == "policy_changed")
    });
    let mut client = Client::connect(egret.proxy);
    client.send(get(&format!("goes.test:{port}"), "/"));
    assert_eq!(client.response("GET").status, 403);
    wait_for("the record of the reload", LIMIT, || !egret.events("reload").is_empty());
    let generations: Vec<_> =
        egret.events("decision").iter().map(|r| r["generation"].as_u64().unwrap()).collect();
    assert!(generations.last() > generations.first(), "{generations:?}");
}

#[test]
fn by_signal() {
    closes_what_the_new_policy_refuses(|egret| egret.signal(Signal::HUP));
}

#[test]
fn by_request() {
    closes_what_the_new_policy_refuses(|egret| assert_eq!(egret.reload().status, 200));
}

#[test]
fn by_file_change() {
    closes_what_the_new_policy_refuses(|_| {});
}

#[test]
fn the_next_request_of_an_open_connection_meets_the_new_policy() {
    let origin = Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let port = origin.port();
    let egret = Egret::with(config(&["stays.test", "goes.test"], port)).start();
    let mut client = Client::connect(egret.proxy);
    let mut ask = |name: &str| {
        client.send(get(&format!("{name}:{port}"), "/"));
        client.response("GET").status
    };
    assert_eq!([ask("stays.test"), ask("goes.test")], [200, 200]);
    // There and back again, over the same connection of the client.
    for (names, status) in [(&["stays.test"][..], 403), (&["stays.test", "goes.test"], 200)] {
        egret.configure(&config(names, port));
        assert_eq!(egret.reload().status, 200);
        assert_eq!([ask("stays.test"), ask("goes.test")], [200, status]);
    }
}

#[test]
fn a_bad_candidate_changes_nothing() {
    let origin = Origin::echoing();
    let port = origin.port();
    let egret = Egret::with(config(&["stays.test"], port)).start();
    let mut tunnel = Client::tunnel(egret.proxy, &format!("stays.test:{port}"));
    egret
        .configure(&format!("{}\n[[policy.main.allow]]\ndomains = [\"*\"]\n", config(&["other.test"], port)));
    let answer = egret.reload();
    assert!(answer.status >= 400, "{answer:?}");
    let body = String::from_utf8_lossy(&answer.body);
    assert!(body.contains("egret.toml"), "the answer names the place: {body}");
    tunnel.send("still");
    assert_eq!(tunnel.exactly(5), b"still");
    Client::tunnel(egret.proxy, &format!("stays.test:{port}"));
    let mut client = Client::connect(egret.proxy);
    client.send(get(&format!("other.test:{port}"), "/"));
    assert_eq!(client.response("GET").status, 403);
}
