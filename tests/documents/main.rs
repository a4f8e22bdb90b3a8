//! What the documents tell a reader to type is typed here, and has to print what they show.
//!
//! Where names and destinations are needed, this runs in a closed world (`support::world`): a
//! scripted DNS server answers for every name, and every address is this machine.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a test may fail loudly, and opens its own sockets"
)]

mod alike;
mod session;
mod steps;
#[path = "../support/mod.rs"]
mod support;

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};

use alike::PAGE;
use session::Session;
use support::dns_server::DnsServer;
use support::sink::{Script, Sink};
use support::world::{self, World};

#[test]
fn the_readme() {
    world::in_a_world("the_readme", || {
        let files = tempfile::tempdir().unwrap();
        let _world = World::enter(files.path()).unwrap();
        let dns = SocketAddr::new(world::DNS_ADDRESS.parse().unwrap(), 53);
        let _dns = DnsServer::start(dns, |_name| Ipv4Addr::new(93, 184, 216, 34)).unwrap();
        let origin = Sink::start(HashSet::from([80, 443])).unwrap();
        let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{PAGE}", PAGE.len());
        origin.begin(Script { reply: vec![(reply.into_bytes(), 1)], ..Script::default() });
        Session::begin().follow("README.md");
    });
}

#[test]
fn testing_policies() {
    Session::begin().follow("docs/testing-policies.md");
}

#[test]
fn sandboxes() {
    world::in_a_world("sandboxes", || {
        let files = tempfile::tempdir().unwrap();
        let _world = World::enter(files.path()).unwrap();
        Session::begin().follow("docs/sandboxes.md");
    });
}

#[test]
fn certificates() {
    Session::begin().follow("docs/certificates.md");
}

#[test]
fn tokens() {
    Session::begin().follow("docs/tokens.md");
}
