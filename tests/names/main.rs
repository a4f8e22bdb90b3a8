//! Questions for names to a running egret: what is answered, what is refused and what of it reaches
//! a DNS server; over loopback, with a server that says what a test tells it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a test may fail loudly, and opens sockets of its own"
)]

mod answers;
mod hostile;
mod limits;
mod refusals;
mod tools;

#[path = "../support/mod.rs"]
mod support;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use serde_json::Value;
use support::asker;
use support::dns_message::{A, AAAA};
use support::dns_server::{Answer, DnsServer};
use support::egret::{Builder, Egret};

/// An address in public space, at which nobody is ever asked for anything.
pub const PUBLIC: Ipv4Addr = Ipv4Addr::new(93, 184, 215, 14);

/// A DNS server that says of every name that it has the public address, but for these.
pub fn server(scripts: &[(&str, Answer)]) -> DnsServer {
    let server = DnsServer::start("127.0.0.1:0".parse().unwrap(), |_| PUBLIC).unwrap();
    let scripts = scripts.iter().map(|(name, answer)| ((*name).to_owned(), vec![answer.clone()]));
    server.reset(scripts.collect::<HashMap<_, _>>(), None);
    server
}

/// An egret that asks this server, for clients of the loopback under this policy.
pub fn egret(dns: &DnsServer, policy: &str) -> Egret {
    building(dns, policy).start()
}

pub fn building(dns: &DnsServer, policy: &str) -> Builder {
    Egret::with(config(dns, policy)).names((Ipv4Addr::LOCALHOST, 0).into())
}

/// Clients at 127.0.0.1 are the sandbox `box`; others of the loopback need a token.
pub fn config(dns: &DnsServer, policy: &str) -> String {
    format!(
        "[dns]\nservers = [\"{}\"]\ntimeout = \"2s\"\n\n\
         [[sandbox]]\nid = \"box\"\nsource = [\"127.0.0.1\"]\npolicy = \"p\"\n\n\
         [[deny]]\ndomains = [\"**.denied.test\"]\n\n[policy.p]\n{policy}\n",
        dns.address
    )
}

/// A policy that allows one tree of names.
pub const TREE: &str = "[[policy.p.allow]]\ndomains = [\"**.allowed.test\"]\n";

/// An answer with one address, and its TTL.
pub fn at(address: &str, ttl: u32) -> Answer {
    let address: IpAddr = address.parse().unwrap();
    let list = vec![(address, ttl)];
    match address {
        IpAddr::V4(_) => Answer { a: list, ..Answer::default() },
        IpAddr::V6(_) => Answer { aaaa: list, ..Answer::default() },
    }
}

/// The decision records of questions, waiting for nothing: they are there before the answers are.
pub fn records(egret: &Egret) -> Vec<Value> {
    egret.events("decision").into_iter().filter(|record| record["protocol"] == "dns").collect()
}

/// The last of them.
pub fn last(egret: &Egret) -> Value {
    records(egret).pop().expect("a record")
}

/// Which questions the server got, of which types.
pub fn upstream(dns: &DnsServer) -> Vec<(String, String)> {
    dns.queries().into_iter().map(|asked| (asked.name, asked.kind)).collect()
}

/// The types of addresses.
pub const BOTH: [u16; 2] = [A, AAAA];
