//! The command line from outside: what each command prints, where, and its exit code.
//!
//! Nothing here reaches beyond the loopback interface.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a test may fail loudly"
)]

mod check;
mod expectations;
mod explain;
mod generated;
mod init;
mod learn;
mod ready;
mod rule_sets;
mod run;
mod wrong_lines;
