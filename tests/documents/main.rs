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
mod place;
mod session;
#[path = "../clients/site.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod site;
mod steps;
#[path = "../support/mod.rs"]
mod support;
#[path = "../clients/tls.rs"]
mod tls;

use session::Session;

#[test]
fn the_readme() {
    place::follow("the_readme", "README.md", &[]);
}

#[test]
fn testing_policies() {
    Session::begin().follow("docs/testing-policies.md");
}

#[test]
fn tokens() {
    place::follow("tokens", "docs/tokens.md", &[]);
}

#[test]
fn sandboxes() {
    place::follow("sandboxes", "docs/sandboxes.md", &[]);
}

#[test]
fn certificates() {
    place::follow("certificates", "docs/certificates.md", &[]);
}

#[test]
fn ledger() {
    place::follow("ledger", "docs/ledger.md", &[]);
}

#[test]
fn run() {
    place::follow("run", "docs/run.md", &["nft"]);
}

#[test]
fn transparent() {
    place::follow("transparent", "docs/transparent.md", &["nft"]);
}

#[test]
fn registries() {
    place::follow("registries", "docs/registries.md", &[]);
}

#[test]
fn learn() {
    place::follow("learn", "docs/learn.md", &[]);
}

#[test]
fn probe() {
    place::follow("probe", "docs/probe.md", &[]);
}

#[test]
fn socks() {
    place::follow("socks", "docs/socks.md", &[]);
}

#[test]
fn dns() {
    place::follow("dns", "docs/dns.md", &["dig"]);
}
