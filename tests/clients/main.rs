//! Real clients through the real program: what is allowed arrives whole and is recorded to the
//! octet, and what is refused says why in the client's own words.
//!
//! All on the loopback and without privileges. A client that is not installed is skipped with a
//! line that says so, but fails the test where `CI=true`.

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

mod apt;
mod bench;
mod cargo;
mod curl;
mod git;
mod https_proxy;
mod node;
mod pip;
mod python;
mod site;
mod socks;
#[path = "../support/mod.rs"]
mod support;
mod tls;
mod tool;
mod wget;
