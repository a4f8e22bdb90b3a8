//! Observe, learn, enforce with real package managers and registries of the test's own, which keep
//! their files on a second host; and what `egret registry import` makes of the same clients'
//! settings.
//!
//! Needs no privileges: names stand in `[dns] hosts` with public addresses, and a parent proxy on the
//! loopback leads to the registries. A client that is not installed is skipped with a line that says
//! so, but fails the test where `CI=true`.

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

mod asks;
mod clients;
mod import;
mod registries;
#[path = "../clients/site.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod site;
#[path = "../support/mod.rs"]
mod support;
#[path = "../clients/tls.rs"]
mod tls;
#[path = "../clients/tool.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod tool;
mod world;
