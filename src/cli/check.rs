//! `egret check`: validates all files and prints every problem at once.

use clap::Args;
use egret_policy::{Problem, Severity};
use serde::Serialize;

use super::{BAD_INPUT, ConfigArgs, OK, complain, say, show};
use crate::config::{self, ConfigSource};

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print the problems as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Shown<'a> {
    severity: &'static str,
    file: Option<&'a str>,
    line: Option<usize>,
    column: Option<usize>,
    message: &'a str,
    help: Option<&'a str>,
}

impl CheckArgs {
    pub(super) fn run(self) -> u8 {
        let source = match self.config.source(Vec::new()) {
            Ok(source) => source,
            Err(message) => {
                complain(&message);
                return BAD_INPUT;
            }
        };
        let built_in = matches!(source, ConfigSource::BuiltIn { .. });
        let (problems, code) = match config::load(&source, 1, None) {
            Ok(loaded) => (loaded.problems, OK),
            Err(problems) => (problems, BAD_INPUT),
        };
        if self.json {
            let shown: Vec<_> = problems.iter().map(Shown::of).collect();
            let text = serde_json::to_string_pretty(&shown).unwrap_or_default();
            return code.max(say(&(text + "\n")));
        }
        show(&problems);
        match code {
            OK if built_in => say("there is no configuration here; the built-in defaults are valid\n"),
            OK => say("the configuration is valid\n"),
            code => {
                let count = problems.iter().filter(|p| p.severity == Severity::Error).count();
                complain(&format!("{count} error{} in the configuration", if count == 1 { "" } else { "s" }));
                code
            }
        }
    }
}

impl<'a> Shown<'a> {
    fn of(problem: &'a Problem) -> Self {
        let position = problem.place.as_ref().map(|(file, span)| file.position(span.start));
        Self {
            severity: match problem.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            file: problem.place.as_ref().map(|(file, _)| file.name()),
            line: position.map(|p| p.line),
            column: position.map(|p| p.column),
            message: &problem.message,
            help: problem.help.as_deref(),
        }
    }
}
