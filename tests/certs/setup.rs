//! The proxy in front of an origin, with a TLS listener, and requests to it.

use std::time::Duration;

use rustls::ALL_VERSIONS;
use serde_json::Value;

use crate::pki::{Pair, Pki};
use crate::secure::{Secure, config as handshake};
use crate::support::egret::{Builder, Egret};
use crate::support::http1::Response;
use crate::support::origin::Origin;
use crate::support::wait_for;

/// The name of the origin.
pub const NAME: &str = "origin.test";

/// 127.0.0.1 is a sandbox by its address, 127.0.0.2 must have a token and 127.0.0.3 a certificate;
/// `build-7` and others of that kind are sandboxes by their certificates, from anywhere.
pub fn rules(origin: &Origin) -> String {
    rules_for(origin.port())
}

/// The same for any server on this port.
pub fn rules_for(port: u16) -> String {
    format!(
        "[dns]\nservers = [\"127.0.0.1:9\"]\nhosts = {{ \"{NAME}\" = [\"127.0.0.1\"] }}\n\n\
         [[sandbox]]\nid = \"by-source\"\nsource = [\"127.0.0.1\"]\npolicy = \"main\"\n\n\
         [[sandbox]]\nid = \"wants-{{cert}}\"\nsource = [\"127.0.0.3\"]\npolicy = \"main\"\nauth = \"cert\"\n\n\
         [[sandbox]]\nid = \"build-{{cert}}\"\npolicy = \"main\"\nauth = \"cert\"\n\n\
         [[policy.main.allow]]\ndomains = [\"{NAME}\"]\naddresses = [\"127.0.0.1/32\"]\nports = [{port}]\ntls = \"any\"\n"
    )
}

/// The lines of `[listen]` for this authority.
pub fn lines(pki: &Pki) -> String {
    format!(
        "tls_certificate = {:?}\ntls_key = {:?}\ntls_client_ca = {:?}\n",
        pki.path("server.crt"),
        pki.path("server.key"),
        pki.path("ca.crt"),
    )
}

pub fn front(origin: &Origin, pki: &Pki) -> Builder {
    Egret::with(rules(origin)).tls(&lines(pki))
}

/// An origin that answers every request.
pub fn answering() -> Origin {
    Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
}

/// A connection from this address, with or without a certificate.
pub fn connect(egret: &Egret, pki: &Pki, source: &str, pair: Option<&Pair>) -> Secure {
    let config = handshake(pki, pair.cloned(), ALL_VERSIONS);
    Secure::connect(config, source, egret.tls).expect("a handshake")
}

pub fn get(origin: &Origin, fields: &str) -> String {
    let authority = format!("{NAME}:{}", origin.port());
    format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n{fields}\r\n")
}

pub fn connect_to(origin: &Origin) -> String {
    let authority = format!("{NAME}:{}", origin.port());
    format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")
}

/// An open tunnel.
pub fn tunnel(egret: &Egret, pki: &Pki, origin: &Origin, pair: Option<&Pair>) -> Secure {
    let mut client = connect(egret, pki, "127.0.0.1", pair);
    client.send(connect_to(origin));
    let answer = client.response("CONNECT");
    assert_eq!(answer.status, 200, "{answer:?}");
    client
}

pub fn reason(answer: &Response) -> (u16, &str) {
    (answer.status, answer.get("x-egret-reason").unwrap_or_default())
}

/// The last decision, once there are so many.
pub fn decision(egret: &Egret, count: usize) -> Value {
    wait_for("the decision is recorded", Duration::from_secs(10), || egret.events("decision").len() >= count);
    let decisions = egret.events("decision");
    assert_eq!(decisions.len(), count, "{decisions:?}");
    decisions.last().unwrap().clone()
}

/// The last end of a connection, once there are so many.
pub fn close(egret: &Egret, count: usize) -> Value {
    wait_for("the end is recorded", Duration::from_secs(10), || egret.events("close").len() >= count);
    egret.events("close").last().unwrap().clone()
}
