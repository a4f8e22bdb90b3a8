//! The ways into the proxy that the attacks are tried by. Another one is another row of [`WAYS`], with
//! a function that asks by it.

use std::net::{IpAddr, SocketAddr};

use crate::support::client::Client;
use crate::support::egret::Egret;
use crate::support::socks;
use crate::support::world::CLIENT;

/// A place to ask for: a host as a client would write it, and a port.
pub struct Place<'a> {
    pub host: &'a [u8],
    pub port: u16,
}

/// What the client was told.
pub enum Told {
    /// It was let in; a tunnel's inside follows.
    Open(Client),
    /// A refusal, in the protocol's own word.
    Refused(String),
}

/// A way into the proxy.
pub struct Way {
    pub name: &'static str,
    /// The `protocol` of its records, where what was asked could be read.
    pub protocol: &'static str,
    /// Is the inside the client's own?
    pub tunnels: bool,
    /// Asks for a place; `None` where the protocol can't express it.
    pub ask: fn(&Egret, &Place<'_>) -> Option<Told>,
    /// How this way tells a reason.
    pub word: fn(&str) -> String,
}

pub const WAYS: &[Way] = &[
    Way { name: "CONNECT", protocol: "connect", tunnels: true, ask: connect, word: status },
    Way { name: "absolute-form", protocol: "http", tunnels: false, ask: absolute, word: status },
    Way { name: "SOCKS5, name", protocol: "socks5", tunnels: true, ask: socks_name, word: reply },
    Way { name: "SOCKS5, address", protocol: "socks5", tunnels: true, ask: socks_address, word: reply },
];

fn connect(egret: &Egret, place: &Place<'_>) -> Option<Told> {
    http(egret, place, "CONNECT", "", "")
}

fn absolute(egret: &Egret, place: &Place<'_>) -> Option<Told> {
    http(egret, place, "GET", "http://", "/")
}

/// A request whose `Host` is beyond reproach, so that its target alone is judged.
fn http(egret: &Egret, place: &Place<'_>, method: &str, before: &str, after: &str) -> Option<Told> {
    let mut client = Client::connect_from(CLIENT, egret.proxy);
    let port = format!(":{}", place.port);
    let line = [method.as_bytes(), b" ", before.as_bytes(), place.host, port.as_bytes(), after.as_bytes()];
    client.send([&line.concat(), &b" HTTP/1.1\r\nHost: host.invalid\r\n\r\n"[..]].concat());
    let answer = client.response(method);
    let reason = answer.get("x-egret-reason").map(str::to_owned);
    Some(match reason {
        None => Told::Open(client),
        Some(reason) => Told::Refused(format!("{} {reason}", answer.status)),
    })
}

fn status(reason: &str) -> String {
    let status = match reason {
        "bad_request" => 400,
        "dns_not_found" | "dns_failed" | "connect_refused" => 502,
        _ => 403,
    };
    format!("{status} {reason}")
}

/// Everything as a domain name, addresses too.
fn socks_name(egret: &Egret, place: &Place<'_>) -> Option<Told> {
    let fits = place.host.len() <= 255;
    fits.then(|| socks_request(egret, &socks::named(place.host, place.port)))
}

/// Addresses in octets, as clients send what they read as an address.
fn socks_address(egret: &Egret, place: &Place<'_>) -> Option<Told> {
    let text = std::str::from_utf8(place.host).ok()?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address: IpAddr = match bare {
        Some(v6) => IpAddr::V6(v6.parse().ok()?),
        None => IpAddr::V4(text.parse().ok()?),
    };
    Some(socks_request(egret, &socks::addressed(SocketAddr::new(address, place.port))))
}

fn socks_request(egret: &Egret, request: &[u8]) -> Told {
    let mut client = Client::connect_from(CLIENT, egret.socks);
    match socks::ask(&mut client, request) {
        0 => Told::Open(client),
        code => {
            assert!(client.until_end().is_empty(), "a refusal ends the connection");
            Told::Refused(format!("reply {code}"))
        }
    }
}

fn reply(reason: &str) -> String {
    let code = match reason {
        "bad_request" => 1,
        "dns_not_found" | "dns_failed" => 4,
        "connect_refused" => 5,
        _ => 2,
    };
    format!("reply {code}")
}
