//! Every way into the proxy: the same attacks end alike by each, and SOCKS5 does what CONNECT does.
//!
//! What needs a closed network runs in namespaces of its own; where the machine grants none, that is
//! skipped with a line that says so, but fails where `CI=true`. The rest uses the loopback alone.

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

mod attacks;
mod bounds;
mod carrying;
mod held;
mod identities;
mod known;
mod messages;
mod questions;
mod rows;
#[path = "../support/mod.rs"]
mod support;
mod trouble;
mod ways;
