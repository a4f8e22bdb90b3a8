//! `compose.yaml` at work: real clients in a sandbox container, egret beside it, and an outside world
//! in containers too. What is allowed arrives, and nothing else leaves, whatever the sandbox tries.
//!
//! `EGRET_IMAGE` names the image of egret and `SANDBOX_IMAGE` that of the sandbox, both in the local
//! container engine, whose networks this machine has to see; without them these tests are skipped, but
//! where `CI=true` they fail:
//!
//! ```text
//! docker build --tag egret .
//! EGRET_IMAGE=egret SANDBOX_IMAGE=$(bash .ci/sandbox.sh) cargo test --test compose
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

#[path = "../documents/alike.rs"]
mod alike;
mod clients;
mod isolation;
mod learning;
mod life;
mod names;
mod probe;
mod project;
mod readme;
#[allow(dead_code, reason = "files and records are for tests/documents")]
#[path = "../documents/steps.rs"]
mod steps;
#[path = "../support/mod.rs"]
mod support;
mod tokens;
mod transparent;
mod watch;
