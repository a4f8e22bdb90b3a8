//! The transparent listener and `egret nft` between real network namespaces: a client that knows of
//! no proxy on one side, origins and a packet count on the other, egret in between.
//!
//! Every test runs in a process with namespaces of its own, which end with it. Where the machine
//! grants none, or has no `nft`, `ip`, `curl`, `openssl` or `python3`, the tests are skipped with a
//! line that says so, but fail where `CI=true`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a test may fail loudly, and opens its own sockets"
)]

mod http;
mod nft;
mod origins;
mod plain;
mod site;
#[path = "../support/mod.rs"]
mod support;
mod tls;
mod watch;
