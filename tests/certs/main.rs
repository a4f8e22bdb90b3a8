//! A TLS listener and client certificates as their users see them: made by the command, shown in
//! handshakes, judged by the running proxy, replaced and revoked under open connections.

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
mod handshakes;
mod identity;
mod live;
mod pki;
mod retries;
mod secure;
mod setup;
#[path = "../support/mod.rs"]
mod support;
mod traffic;
