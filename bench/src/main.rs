//! Compares egret with squid and tinyproxy, and with no proxy at all, on this machine.
//!
//! Origin, DNS server and clients are in this process, and share the machine's cores with the proxy
//! that is being measured: figures are to be read against each other, not as absolute speed.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a tool for a terminal that opens its own sockets"
)]

mod load;
mod measure;
mod origin;
mod process;
mod proxy;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use measure::Plan;
use origin::Origin;
use proxy::Kind;
use report::Report;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What went wrong, in words for a person.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Compares egret with squid and tinyproxy on this machine.
#[derive(Debug, Parser)]
struct Arguments {
    /// The egret to measure
    #[arg(long, value_name = "FILE")]
    egret: PathBuf,
    /// How often everything is measured, in turns; medians count
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long each measure takes, in seconds
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Measure only these
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<Kind>,
    /// Measure only requests, tunnels and idle tunnels
    #[arg(long)]
    brief: bool,
    /// See whether everything works: one short round, whose figures say nothing
    #[arg(long)]
    smoke: bool,
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime.map_err(Failure::from).and_then(|runtime| runtime.block_on(run(Arguments::parse()))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Failure> {
    raise_descriptor_limit()?;
    let plan = if arguments.smoke {
        Plan::smoke()
    } else {
        Plan::whole(arguments.rounds.max(1), Duration::try_from_secs_f64(arguments.seconds)?)
    };
    let plan = Plan { brief: arguments.brief, ..plan };
    let origin = Origin::start().await?;
    let mut kinds = Vec::new();
    for kind in Kind::ALL {
        if !arguments.only.is_empty() && !arguments.only.contains(&kind) {
            continue;
        }
        match kind.version(&arguments.egret) {
            Ok(version) => kinds.push((kind, version)),
            Err(missing) if std::env::var("CI").as_deref() == Ok("true") => return Err(missing),
            Err(missing) => eprintln!("bench: skipped: {missing}"),
        }
    }
    let mut report = Report::new(&kinds);
    for round in 0..plan.rounds {
        for turn in 0..kinds.len() {
            // Each has each place in the order.
            let Some(&(kind, _)) = kinds.get((turn + round) % kinds.len()) else { continue };
            eprintln!("bench: round {} of {}: {}", round + 1, plan.rounds, kind.name());
            let figures = measure::all(kind, &arguments.egret, &origin, &plan).await;
            report.add(kind, figures.map_err(|failure| format!("{}: {failure}", kind.name()))?);
        }
    }
    print!("{}", report.to_markdown(&plan));
    Ok(())
}

/// Both ends of every tunnel are here, and the proxy inherits the limit.
fn raise_descriptor_limit() -> Result<(), Failure> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}
