//! `egret learn`: proposes rules for what sandboxes asked for, as the audit files tell it.
//!
//! Decides nothing: it reads, asks `crate::learn`, and writes. A rule set is replaced whole or not
//! at all.

mod input;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use rustix::fs::{Access, access};

use super::rule_set::{self, Stop, count, stop};
use super::{BAD_INPUT, ConfigArgs, FAILED, OK, complain, say, show};
use crate::config::{self, ConfigSource, RunRules, RunSource};
use crate::learn::{Base, Report, Rules, Settings, judge};
use crate::ledger::read_since;

/// `--against` found a difference.
const DIFFERENT: u8 = 1;

#[derive(Debug, Args)]
pub(super) struct LearnArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Only what this sandbox asked for
    #[arg(long, value_name = "ID")]
    sandbox: Option<String>,
    /// Only what was decided by this policy
    #[arg(long, value_name = "P")]
    policy: Option<String>,
    /// Only what was asked for since then: RFC 3339, or how long ago, like 1h
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Propose destinations on this port too, beside 80 and 443; repeatable
    #[arg(long = "port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    ports: Vec<u16>,
    /// Propose what the configuration allows already as well
    #[arg(long)]
    all: bool,
    /// Go on where a line is damaged
    #[arg(long)]
    skip_damaged: bool,
    /// Show only what is new or unused in a rule set; exit code 1 if anything is
    #[arg(long, value_name = "RULES", conflicts_with = "write")]
    against: Option<PathBuf>,
    /// Add what is new to a rule set; nothing else in it changes
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Print what was learned as JSON
    #[arg(long)]
    json: bool,
    /// Audit files, or - for standard input [default: the configuration's]
    #[arg(value_name = "AUDIT")]
    audit: Vec<PathBuf>,
}

impl LearnArgs {
    pub(super) fn run(self) -> u8 {
        let compares = self.against.is_some();
        match self.learn() {
            Ok(code) => code,
            // For `diff` and its users, 1 is an answer.
            Err(Stop(FAILED)) if compares => BAD_INPUT,
            Err(Stop(code)) => code,
        }
    }

    fn learn(self) -> Result<u8, Stop> {
        let since = self.since.as_deref().map(since).transpose()?;
        let loaded = self.config.load().map_err(Stop)?;
        let audit =
            if self.audit.is_empty() { vec![configured(&loaded.settings.audit.file)?] } else { self.audit };
        let config = Rules::of(loaded.policy);
        if let Some(policy) = self.policy.as_deref().filter(|policy| !config.knows(policy)) {
            let policy = policy.escape_debug();
            complain(&format!(
                "the configuration has no policy `{policy}`, so none of its deny rules is asked"
            ));
        }
        let filter = input::Filter { sandbox: self.sandbox, policy: self.policy, since };
        let tally = input::read(&audit, &filter, self.skip_damaged, &config)?;
        let base = rule_set::base(self.against.as_deref(), self.write.as_deref())?;
        let settings = Settings { config: &config, base: base.as_ref(), ports: &self.ports, all: self.all };
        let report = judge(&tally, &settings);
        if tally.is_empty() {
            complain("no request was recorded that the options leave over");
        }
        match &self.write {
            Some(path) => save(path, base.as_ref(), &report)?,
            None => rule_set::check("the learned rules", report.to_rule_set())?,
        }
        // A rule set on standard output has them as comments.
        tell(&report, self.json || base.is_some());
        let code = if self.against.is_some() && !report.to_difference().is_empty() { DIFFERENT } else { OK };
        let said = match (self.json, &self.against, &self.write) {
            (true, _, _) => say(&(serde_json::to_string_pretty(&report).unwrap_or_default() + "\n")),
            (false, Some(_), _) => say(&report.to_difference()),
            (false, None, Some(_)) => OK,
            (false, None, None) => say(&report.to_rule_set()),
        };
        if said == OK { Ok(code) } else { Err(Stop(said)) }
    }
}

fn since(text: &str) -> Result<String, Stop> {
    let wrong =
        || stop(BAD_INPUT, &format!("--since {}: write 2026-11-29T18:15:48Z or 1h", text.escape_debug()));
    read_since(text, SystemTime::now()).ok_or_else(wrong)
}

fn configured(audit: &Path) -> Result<PathBuf, Stop> {
    if audit.as_os_str() == "-" {
        let message = "the configuration sends the audit to standard output; name the files that keep it";
        return Err(stop(BAD_INPUT, message));
    }
    Ok(audit.to_path_buf())
}

/// What `egret run --learn` does: begun before the command, so that a file that can't be added to is
/// told in time.
pub(super) struct Learner {
    path: PathBuf,
    base: Option<Base>,
    ports: Vec<u16>,
}

impl Learner {
    /// Reads the rule set that is to be added to; these ports are not odd. The error was told.
    pub(super) fn of(path: &Path, ports: &[u16]) -> Result<Self, String> {
        let base = rule_set::base(None, Some(path)).map_err(|Stop(_)| String::new())?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        access(folder, Access::WRITE_OK).map_err(|error| {
            let (path, folder) = (path.display(), folder.display());
            format!("--learn {path}: nothing can be written to the folder {folder}: {error}; make it first, or name another one")
        })?;
        Ok(Self { path: path.to_path_buf(), base, ports: ports.to_vec() })
    }

    /// Learns from what the audit file has behind so many octets. The error was told.
    pub(super) fn learn(self, audit: &Path, before: u64, source: &ConfigSource) -> Result<(), String> {
        self.add(audit, before, source).map_err(|Stop(_)| String::new())
    }

    fn add(self, audit: &Path, before: u64, source: &ConfigSource) -> Result<(), Stop> {
        let loaded = config::load(source, 1, None).map_err(|problems| {
            show(&problems);
            Stop(BAD_INPUT)
        })?;
        let config = Rules::of(loaded.policy);
        let tally = input::read_behind(audit, before, &config)?;
        // A rule set that holds by itself has what the command line allows too.
        let all = matches!(source, ConfigSource::Run(RunSource { rules: RunRules::Own { .. }, .. }));
        let settings = Settings { config: &config, base: self.base.as_ref(), ports: &self.ports, all };
        let report = judge(&tally, &settings);
        save(&self.path, self.base.as_ref(), &report)?;
        tell(&report, true);
        Ok(())
    }
}

/// Adds what is new to a rule set, where there is one to add to.
fn save(path: &Path, base: Option<&Base>, report: &Report) -> Result<(), Stop> {
    rule_set::check("the learned rules", report.to_rule_set())?;
    let Some(base) = base else { return Ok(()) };
    let added = report.new.as_deref().unwrap_or_default().len();
    rule_set::add(path, base, &report.to_addition(base.file().text()), added)
}

/// What a person should know beside the output.
fn tell(report: &Report, in_full: bool) {
    let proposed = count(report.proposed.len() as u64, "rule");
    let mut text = format!("{proposed} for {}", count(report.whole.requests, "request"));
    if !report.allowed.is_empty() {
        text.push_str(&format!("; {} allowed already", count(report.allowed.len() as u64, "destination")));
    }
    if !report.not_proposed.is_empty() {
        text.push_str(&format!("; {} not proposed", count(report.not_proposed.len() as u64, "destination")));
    }
    complain(&text);
    if !in_full {
        return;
    }
    for doubtful in report.allowed.iter().filter(|allowed| !allowed.doubts.is_empty()).take(TOLD) {
        complain(&format!("allowed: {}", doubtful.to_line()));
    }
    for not_proposed in report.not_proposed.iter().take(TOLD) {
        complain(&format!("not proposed: {}", not_proposed.to_line()));
    }
    if let Some(more) = report.not_proposed.len().checked_sub(TOLD).filter(|more| *more > 0) {
        complain(&format!("not proposed: {more} more, which --json shows"));
    }
}

/// Destinations that are told on standard error.
const TOLD: usize = 20;
