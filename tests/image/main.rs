//! The image, from outside: what is in it, and what a container made of it does.
//!
//! `EGRET_IMAGE` names it, in the local container engine; without one these tests are skipped, but
//! where `CI=true` they fail:
//!
//! ```text
//! docker build --tag egret . && EGRET_IMAGE=egret cargo test --test image
//! ```
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

mod contents;
mod engine;
mod running;
#[path = "../support/mod.rs"]
mod support;
