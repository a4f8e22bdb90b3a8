//! The conformance suite: every row of `tests/data` against the real program, from outside.
//!
//! Rows that need a network run in workers: this executable again, in namespaces
//! of its own, where every address is local. Several work side by side, each with
//! its own proxy, DNS server and sink; a row takes whichever is free.
//!
//! ```text
//! cargo test --test conformance -- wire::tls          # a part
//! cargo test --test conformance -- --exact NAME       # one row
//! ```
//!
//! Where the machine has no namespaces the rows are skipped, except with CI=true.

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

mod addresses;
mod bench;
mod corpus;
mod dns;
mod proxy;
mod rows;
mod rules;
#[path = "../support/mod.rs"]
mod support;
mod targets;
mod token;
mod wire;
mod wire_judge;
mod worker;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};

use corpus::{Case, Row};

/// Rows mostly wait; more workers than this disturb each other's clocks.
const MOST_WORKERS: usize = 4;

fn main() -> ExitCode {
    if support::world::inside() {
        return worker::serve(&corpus::load());
    }
    let mut arguments = Arguments::from_args();
    let threads = *arguments.test_threads.get_or_insert(MOST_WORKERS);
    let mut cases = corpus::load();
    cases.sort_by_key(|case| std::cmp::Reverse(case.duration()));
    let pool = Arc::new(worker::Pool::new(threads));
    if !arguments.list
        && let Err(missing) = support::world::command()
    {
        println!("skipped: all rows but those of rules, for want of a closed world: {missing}");
        if std::env::var("CI").is_ok_and(|value| value == "true") {
            return ExitCode::FAILURE;
        }
        cases.retain(|case| case.suite == "rules");
    }
    let trials = cases.into_iter().map(|case| trial(case, &pool)).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(case: Case, pool: &Arc<worker::Pool>) -> Trial {
    let pool = Arc::clone(pool);
    Trial::test(case.name(), move || {
        let result = match &case.row {
            Row::Rule(row) => rules::run(row),
            Row::Target(_) | Row::Wire(_) | Row::Dns(_) | Row::Address(_) => pool.run(&case.name()),
        };
        match result {
            Ok(problems) if problems.is_empty() => Ok(()),
            Ok(problems) => Err(Failed::from(format!("{}\n{:#?}", problems.join("\n"), case.row))),
            Err(error) => Err(Failed::from(error)),
        }
    })
}
