//! The program as its users see it, on the loopback: real clients' octets in, real origins behind.
//!
//! Needs no privileges. Names stand in `[dns] hosts` or come from a DNS server of
//! the test, a rule unlocks the loopback for them, and every port is a free one.

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

mod audit;
mod crowd;
mod heads;
mod hellos;
mod http;
mod integrity;
mod leaving;
mod life;
mod limits;
mod pool;
mod quotas;
mod reasons;
mod redirects;
mod reload;
mod setup;
#[path = "../support/mod.rs"]
mod support;
mod upgrade;
mod used_limits;
mod verdicts;
