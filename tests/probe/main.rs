//! `egret probe` in a sandbox of network namespaces: it passes there, and each way of breaking the
//! sandbox is found by the check that is about it and by no other.
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

mod encrypted;
mod fake;
mod lab;
mod leaks;
mod outside;
mod proxies;
#[path = "../support/mod.rs"]
mod support;
mod surroundings;
mod usage;
