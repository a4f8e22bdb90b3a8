//! The control interface as operators use it: sandboxes that come and go, and every mistake told.
//!
//! Needs no privileges: names stand in `[dns] hosts`, and every port is a free one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    missing_docs,
    reason = "a test may fail loudly, and opens its own sockets"
)]

mod commands;
mod lifecycle;
mod mistakes;
mod registered;
#[path = "../support/mod.rs"]
mod support;

use serde_json::Value;

use support::client::Client;
use support::egret::{BINARY, Builder, Egret};
use support::http1::Response;
use support::origin::Origin;

/// The token of the control interface.
const TOKEN: &str = "a token of more than 16 characters";

/// Everything on the loopback is the sandbox `rest`, which may reach nothing. What is registered in
/// 127.1.0.0/16 may have the policy `main`, which allows `origin.test`, or `none`.
fn config(origin: &Origin) -> String {
    format!(
        "[dns]\nservers = [\"127.0.0.1:9\"]\nhosts = {{ \"origin.test\" = [\"127.0.0.1\"] }}\n\n\
         [identity]\nregister = [\"127.1.0.0/16\"]\nregister_policies = [\"main\", \"none\"]\n\n\
         [[sandbox]]\nid = \"rest\"\nsource = [\"127.0.0.0/8\"]\npolicy = \"none\"\n\n\
         [policy.none]\n\n[policy.other]\n\n[policy.main]\n\n\
         [[policy.main.allow]]\ndomains = [\"origin.test\"]\naddresses = [\"127.0.0.1/32\"]\nports = [{}]\n",
        origin.port()
    )
}

fn serving(origin: &Origin) -> Builder {
    Egret::with(config(origin)).control_token(TOKEN)
}

/// What a successful command printed, without the line end.
fn printed(arguments: &[&str]) -> String {
    let output = std::process::Command::new(BINARY).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

fn put(egret: &Egret, id: &str, body: &str) -> (u16, Value) {
    let answer =
        egret.control_with("PUT", &format!("/v1/sandboxes/{id}"), &["Content-Type: application/json"], body);
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
}

fn delete(egret: &Egret, id: &str) -> u16 {
    egret.control("DELETE", &format!("/v1/sandboxes/{id}")).status
}

fn show(egret: &Egret, target: &str) -> (u16, Value) {
    let answer = egret.control("GET", target);
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

/// What a CONNECT from this address is answered.
fn connect(egret: &Egret, source: &str, origin: &Origin) -> (Client, Response) {
    let mut client = Client::connect_from(source, egret.proxy);
    let authority = format!("origin.test:{}", origin.port());
    client.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
    let answer = client.response("CONNECT");
    (client, answer)
}

fn status(egret: &Egret, source: &str, origin: &Origin) -> u16 {
    connect(egret, source, origin).1.status
}

fn tunnel(egret: &Egret, source: &str, origin: &Origin) -> Client {
    let (mut client, answer) = connect(egret, source, origin);
    assert_eq!(answer.status, 200, "{answer:?}");
    alive(&mut client);
    client
}

fn alive(tunnel: &mut Client) {
    tunnel.send("still");
    assert_eq!(tunnel.exactly(5), b"still");
}
