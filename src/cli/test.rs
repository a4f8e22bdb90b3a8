//! `egret test`: runs policy expectations against the configuration.
//!
//! Decides as `explain` does, but never asks DNS: a test has the same result everywhere. The
//! addresses of a name come from the case, else from `[dns] hosts`.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use egret_policy::{Problems, SourceFile, Spot};
use serde::Serialize;

use super::decide::{Addresses, Answer, Decider};
use super::expectation::{Case, read_cases};
use super::{BAD_INPUT, ConfigArgs, FAILED, OK, no_file, say, show};
use crate::config::{Files, StaticHosts};

#[derive(Debug, Args)]
pub(super) struct TestArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Files with [[case]] tables
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// A case and what came of it.
#[derive(Debug, Serialize)]
struct Outcome {
    file: String,
    line: usize,
    name: Option<String>,
    passed: bool,
    /// Each `expected X, got Y`; empty where it passed.
    differences: Vec<String>,
    answer: Answer,
    /// The reasoning behind the answer, for people.
    #[serde(skip)]
    explanation: String,
}

#[derive(Debug, Serialize)]
struct Report {
    passed: usize,
    failed: usize,
    cases: Vec<Outcome>,
}

impl TestArgs {
    pub(super) fn run(self) -> u8 {
        let (loaded, source) = match self.config.load_noting(Vec::new(), &mut Files::default()) {
            Ok(both) => both,
            Err(code) => return code,
        };
        let help = no_file(&source).unwrap_or_default();
        let mut problems = Problems::default();
        let cases: Vec<_> = self.files.iter().flat_map(|file| read_file(file, &mut problems)).collect();
        let decider = Decider::new(loaded.policy, loaded.chain);
        let hosts = loaded.settings.dns.hosts;
        let outcomes = cases.iter().filter_map(|case| run_case(&decider, &hosts, case, help, &mut problems));
        let outcomes: Vec<_> = outcomes.collect();
        show(&problems);
        if problems.any_error() {
            // Half a run would look like a whole one.
            return BAD_INPUT;
        }
        let report = Report::of(outcomes);
        let code = if report.failed == 0 { OK } else { FAILED };
        code.max(say(&if self.json { report.to_json() } else { report.to_text() }))
    }
}

fn read_file(path: &PathBuf, problems: &mut Problems) -> Vec<Case> {
    match std::fs::read_to_string(path) {
        Ok(text) => read_cases(&SourceFile::new(&path.display().to_string(), text), problems),
        Err(cause) => {
            problems.unplaced(format!("{} can't be read: {cause}", path.display()));
            Vec::new()
        }
    }
}

/// Nothing where there is no answer; why is among the problems then.
fn run_case(
    decider: &Decider,
    hosts: &StaticHosts,
    case: &Case,
    help: &str,
    problems: &mut Problems,
) -> Option<Outcome> {
    let answer = match decider.answer(&case.question, |name| given(hosts, name)) {
        Ok(answer) => answer,
        Err(error) => {
            problems.error(&case.spot, format!("the case has no answer: {error}"), help);
            return None;
        }
    };
    let differences = case.differences(&answer);
    let (file, line) = place(&case.spot);
    Some(Outcome {
        file,
        line,
        name: case.name.clone(),
        passed: differences.is_empty(),
        explanation: answer.explanation(&case.question),
        differences,
        answer,
    })
}

/// The static addresses of a name.
fn given(hosts: &StaticHosts, name: &str) -> Result<Addresses, String> {
    let known: Option<&Vec<IpAddr>> = hosts.get(name);
    known.map(|addresses| Ok(addresses.clone())).ok_or_else(|| {
        format!("the policy lets `{name}` be looked up and tests never ask DNS; add `addresses`")
    })
}

fn place(spot: &Spot) -> (String, usize) {
    let cite = spot.cite();
    let (file, line) = cite.rsplit_once(':').unwrap_or((&cite, ""));
    (file.to_owned(), line.parse().unwrap_or_default())
}

impl Report {
    fn of(cases: Vec<Outcome>) -> Self {
        let passed = cases.iter().filter(|case| case.passed).count();
        Self { passed, failed: cases.len() - passed, cases }
    }

    fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    fn to_text(&self) -> String {
        let mut out = String::new();
        for case in self.cases.iter().filter(|case| !case.passed) {
            let name = case.name.as_deref().map(|name| format!("{name}: ")).unwrap_or_default();
            // Writing to a string does not fail.
            let _ = writeln!(out, "{}:{}: {name}{}", case.file, case.line, case.differences.join("; "));
            out.push_str(&case.explanation);
        }
        let _ = writeln!(out, "{} passed, {} failed", self.passed, self.failed);
        out
    }
}
