//! The ways into the proxy that the attacks are tried by. Another one is another row of [`WAYS`], with
//! a function that asks by it.

use std::io::{ErrorKind, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};

use crate::support::client::{Client, connect_from};
use crate::support::egret::Egret;
use crate::support::hello;
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
    Way { name: "diverted, Host", protocol: DIVERTED, tunnels: false, ask: diverted_host, word: status },
    // Its inside says where it goes, so it is not tried with another inside.
    Way { name: "diverted, server name", protocol: DIVERTED, tunnels: false, ask: diverted_tls, word: alert },
    Way { name: "diverted, address", protocol: DIVERTED, tunnels: true, ask: diverted_address, word: reset },
];

/// The `protocol` of what was diverted.
pub const DIVERTED: &str = "transparent";
/// Where egret takes what was diverted.
pub const LISTEN: &str = "transparent = [\"0.0.0.0:3130\", \"[::]:3130\"]\n";
/// Who knows of no proxy, in both families.
pub const UNAWARE: [&str; 2] = ["127.0.0.3", "fd77::3"];
/// Where they believe to be connected to when something else names the place.
const ANYWHERE: &str = "203.0.113.9";

/// Has the system divert all TCP of [`UNAWARE`].
pub fn divert() -> Result<(), String> {
    let [v4, v6] = UNAWARE;
    let rules = format!(
        "table inet divert {{ chain out {{ type nat hook output priority -100;\n\
         ip saddr {v4} meta l4proto tcp redirect to :3130\n\
         ip6 saddr {v6} meta l4proto tcp redirect to :3130\n}}\n}}\n"
    );
    let nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut nft = nft.map_err(|error| format!("`nft` does not run: {error}"))?;
    nft.stdin.take().unwrap().write_all(rules.as_bytes()).map_err(|error| error.to_string())?;
    let output = nft.wait_with_output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    output.status.success().then_some(()).ok_or(said)
}

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
        reason if is_limit(reason) => 429,
        _ => 403,
    };
    format!("{status} {reason}")
}

fn is_limit(reason: &str) -> bool {
    matches!(reason, "rate_limited" | "quota_exceeded" | "too_many_connections")
}

/// Everything as a domain name, addresses too.
fn socks_name(egret: &Egret, place: &Place<'_>) -> Option<Told> {
    let fits = place.host.len() <= 255;
    fits.then(|| socks_request(egret, &socks::named(place.host, place.port)))
}

/// Addresses in octets, as clients send what they read as an address.
fn socks_address(egret: &Egret, place: &Place<'_>) -> Option<Told> {
    let address = SocketAddr::new(address(place)?, place.port);
    Some(socks_request(egret, &socks::addressed(address)))
}

/// The host as a client reads it that takes it for an address.
fn address(place: &Place<'_>) -> Option<IpAddr> {
    let text = std::str::from_utf8(place.host).ok()?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    Some(match bare {
        Some(v6) => IpAddr::V6(v6.parse().ok()?),
        None => IpAddr::V4(text.parse().ok()?),
    })
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

fn unaware(target: SocketAddr) -> Client {
    Client::connect_from(UNAWARE[usize::from(target.is_ipv6())], target)
}

/// A connection to somewhere, whose `Host` names the place.
fn diverted_host(_: &Egret, place: &Place<'_>) -> Option<Told> {
    // Whitespace around a field's value is no part of it.
    if place.host.starts_with(b" ") {
        return None;
    }
    let mut client = unaware((ANYWHERE.parse::<IpAddr>().unwrap(), place.port).into());
    let port = format!(":{}\r\n\r\n", place.port);
    client.send([&b"GET / HTTP/1.1\r\nHost: "[..], place.host, port.as_bytes()].concat());
    let answer = client.response("GET");
    let reason = answer.get("x-egret-reason").map(str::to_owned);
    Some(match reason {
        None => Told::Open(client),
        Some(reason) => Told::Refused(format!("{} {reason}", answer.status)),
    })
}

/// A connection to somewhere, whose ClientHello names the place. What is no name as a client would
/// write it there (RFC 6066 section 3) is not read as one, and ends otherwise: see tests/transparent.
fn diverted_tls(_: &Egret, place: &Place<'_>) -> Option<Told> {
    let name = std::str::from_utf8(place.host).ok()?;
    let label = |label: &str| {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        (1..64).contains(&label.len()) && label.bytes().all(fits)
    };
    let top = name.rsplit('.').next().unwrap_or_default();
    let is_name = name.split('.').all(label) && top.bytes().all(|byte| byte.is_ascii_lowercase());
    if !is_name {
        return None;
    }
    let mut client = unaware((ANYWHERE.parse::<IpAddr>().unwrap(), place.port).into());
    // Behind it what the origin answers.
    client.send([hello::naming(name), b"GET / HTTP/1.1\r\n\r\n".to_vec()].concat());
    let mut first = [0];
    match client.stream.peek(&mut first) {
        Ok(1) if first == *b"H" => Some(Told::Open(client)),
        _ => match client.until_end().as_slice() {
            [21, 3, 3, 0, 2, 2, description] => Some(Told::Refused(format!("alert {description}"))),
            other => panic!("neither an answer nor an alert: {other:?}"),
        },
    }
}

fn alert(reason: &str) -> String {
    let failed = matches!(reason, "dns_not_found" | "dns_failed" | "connect_refused") || is_limit(reason);
    let description = if failed { 80 } else { 49 };
    format!("alert {description}")
}

/// A connection to the place itself, which names none.
fn diverted_address(_: &Egret, place: &Place<'_>) -> Option<Told> {
    let target = SocketAddr::new(address(place)?, place.port);
    // The kernel connects to none of these as they stand, or asks for an interface.
    let as_it_stands = match target.ip() {
        IpAddr::V4(v4) => !v4.is_unspecified() && !v4.is_multicast() && !v4.is_broadcast(),
        IpAddr::V6(v6) => {
            !v6.is_unspecified() && !v6.is_unicast_link_local() && v6.to_ipv4_mapped().is_none()
        }
    };
    if !as_it_stands {
        return None;
    }
    let source = UNAWARE[usize::from(target.is_ipv6())];
    // What leads to egret itself may be reset before it is known to be connected.
    let connected = connect_from(source.parse().unwrap(), target);
    if matches!(&connected, Err(error) if error.kind() == ErrorKind::ConnectionReset) {
        return Some(Told::Refused("reset".to_owned()));
    }
    let mut client = Client::over(connected.expect("the proxy accepts connections"));
    // No HTTP/1 for the proxy, but enough for the origin to answer. It may be reset by now.
    let _ = client.stream.write_all(b"PRI * HTTP/2.0\r\n\r\n");
    match client.stream.peek(&mut [0]) {
        Ok(1) => Some(Told::Open(client)),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Some(Told::Refused("reset".to_owned())),
        other => panic!("neither an answer nor a reset: {other:?}"),
    }
}

fn reset(_: &str) -> String {
    "reset".to_owned()
}
