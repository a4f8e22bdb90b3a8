//! The resolver against scripted DNS servers on loopback: what it asks, and what it takes from
//! answers.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    dead_code,
    missing_docs
)]

mod encrypted;
mod failures;
mod lookup;
mod scripted;
mod tls;
