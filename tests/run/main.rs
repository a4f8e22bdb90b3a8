//! `egret run` as people use it: the real program, real commands, as root and as an ordinary user.
//!
//! Makes its own network namespaces, and reaches nothing beyond the loopback. What this machine
//! does not permit is skipped with a line that says so, but fails the test where `CI=true`.

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

mod calls;
mod enforcement;
mod learning;
mod life;
mod mistakes;
mod past;
mod scarce;
mod site;
mod sockets;
#[path = "../support/mod.rs"]
mod support;
mod terminal;
