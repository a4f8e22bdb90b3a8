//! Chaining: everything goes through the parent proxy that the configuration names, to addresses
//! that were checked, and nothing goes past it.
//!
//! The parents are scripted ones of the test and, where they are installed, real ones. All on the
//! loopback and without privileges.

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

mod answers;
mod carries;
mod credentials;
mod parent;
mod real;
mod reload;
mod setup;
#[path = "../support/mod.rs"]
mod support;
mod ways;
