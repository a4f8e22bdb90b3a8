//! Sandbox tokens as their users see them: made by the command, sent by clients, judged by the
//! running proxy, revoked over its control interface.

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
mod live;
mod requests;
mod setup;
#[path = "../support/mod.rs"]
mod support;
