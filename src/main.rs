//! The `egret` binary: arguments, run, exit code.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    egret::cli::Cli::parse().run()
}
