//! `egret registry import`: rules for the registries that package managers on this machine are set
//! to.
//!
//! Reads, asks `crate::registry`, and writes. A rule set is replaced whole or not at all, and not at
//! all if a file can't be understood.

mod programs;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use ipnet::IpNet;

use super::rule_set::{self, Stop, count, stop};
use super::{BAD_INPUT, ConfigArgs, FAILED, OK, complain, say, show};
use crate::dial::{DialSettings, Dialer};
use crate::egress::Errand;
use crate::learn::Base;
use crate::registry::{self, Answers, Client, Fault, Fetcher, Findings, Machine, Report, Rule};
use crate::resolve::Resolver;

/// `--against` found a difference.
const DIFFERENT: u8 = 1;

#[derive(Debug, Args)]
pub(super) struct RegistryArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write rules for the registries that package managers on this machine are set to
    Import(ImportArgs),
}

#[derive(Debug, Args)]
struct ImportArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Don't ask registries where their files are, and look no name up
    #[arg(long, conflicts_with_all = ["private", "packages", "config", "rules"])]
    offline: bool,
    /// Network that registries in settings may be in although it is not public; repeatable
    #[arg(long, value_name = "CIDR", value_parser = network)]
    private: Vec<IpNet>,
    /// Package to ask Python and npm registries for, beside pip and npm; repeatable
    #[arg(long = "package", value_name = "NAME", value_parser = package)]
    packages: Vec<String>,
    /// Home of the user whose settings count [default: yours; with --root, DIR/root]
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
    /// Folder that holds another machine's files; the environment is left out then
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Project whose settings count too [default: this folder; none with --home or --root]
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// Run npm, pip and go, where nothing is set for them, to say what they use
    #[arg(long, conflicts_with_all = ["home", "root"])]
    ask_clients: bool,
    /// Show only what is new or unused in a rule set; exit code 1 if anything is
    #[arg(long, value_name = "RULES", conflicts_with = "write")]
    against: Option<PathBuf>,
    /// Add what is new to a rule set; nothing else in it changes
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
    /// Clients whose settings are read [default: all that are set to something]
    #[arg(value_enum, value_name = "CLIENT")]
    clients: Vec<Client>,
}

impl RegistryArgs {
    pub(super) fn run(self) -> u8 {
        let Command::Import(args) = self.command;
        let compares = args.against.is_some();
        match args.import() {
            Ok(code) => code,
            // For `diff` and its users, 1 is an answer.
            Err(Stop(FAILED)) if compares => BAD_INPUT,
            Err(Stop(code)) => code,
        }
    }
}

impl ImportArgs {
    fn import(self) -> Result<u8, Stop> {
        let machine = self.machine()?;
        let all = self.clients.is_empty();
        let mut clients = if all { Client::ALL.to_vec() } else { self.clients.clone() };
        let mut findings = registry::read(&machine, &clients).map_err(|faults| unread(&faults))?;
        if self.ask_clients {
            let dir = machine.project.as_deref().unwrap_or(&machine.home);
            programs::ask(&clients, dir, &mut findings);
        }
        if all {
            // Who has nothing set may not be here at all.
            let (set, unset): (Vec<_>, Vec<_>) =
                clients.into_iter().partition(|client| findings.knows(*client));
            clients = set;
            if !unset.is_empty() {
                let names: Vec<_> = unset.into_iter().map(Client::name).collect();
                complain(&format!(
                    "nothing is set here for {}; name one to learn how to find its registry",
                    names.join(", ")
                ));
            }
        }
        let answers = if self.offline { Answers::default() } else { self.ask(&findings)? };
        let report = Report::new(&findings, &answers, &clients);
        rule_set::check("the imported rules", report.to_rule_set())?;
        let base = rule_set::base(self.against.as_deref(), self.write.as_deref())?;
        let new = |base: &Base| report.rules.iter().filter(|rule| !rule.is_in(base)).collect::<Vec<_>>();
        let difference = base.as_ref().map(|base| difference(&new(base), base, &report)).unwrap_or_default();
        if let (Some(path), Some(base)) = (&self.write, &base) {
            let new = new(base);
            rule_set::add(path, base, &Report::to_addition(&new, base.file().text()), new.len())?;
        }
        tell(&report, self.json || base.is_some());
        let said = match (self.json, &self.against, &self.write) {
            (true, _, _) => say(&(serde_json::to_string_pretty(&report).unwrap_or_default() + "\n")),
            (false, Some(_), _) => say(&difference),
            (false, None, Some(_)) => OK,
            (false, None, None) => say(&report.to_rule_set()),
        };
        let code = if self.against.is_some() && !difference.is_empty() { DIFFERENT } else { OK };
        if said == OK { Ok(code) } else { Err(Stop(said)) }
    }

    /// Asks the registries, by the configuration's DNS servers, denials and parent proxy.
    fn ask(&self, findings: &Findings) -> Result<Answers, Stop> {
        let loaded = self.config.clone().load().map_err(Stop)?;
        let settings = loaded.settings;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| stop(FAILED, &format!("no runtime: {error}")))?;
        runtime.block_on(async {
            let resolver = Resolver::new(settings.dns.resolver());
            let resolver = resolver
                .map_err(|error| stop(FAILED, &format!("{error}; with --offline, nobody is asked")))?;
            let patience = settings.timeouts.connect;
            let dialer = Dialer::new(DialSettings { connect_timeout: patience, ..DialSettings::default() });
            let (policy, chain) = (loaded.policy, loaded.chain);
            let errand = Errand { policy, resolver, dialer, chain, patience };
            let fetcher = Fetcher::new(errand, self.private.clone()).map_err(|problems| {
                show(&problems);
                stop(BAD_INPUT, "--private: no rule may unlock that")
            })?;
            Ok(registry::ask(&fetcher, findings, &self.packages).await)
        })
    }

    /// Whose settings are read. The environment and the folder are those of this machine.
    fn machine(&self) -> Result<Machine, Stop> {
        let elsewhere = self.home.is_some() || self.root.is_some();
        let root = self.root.clone().unwrap_or_else(|| PathBuf::from("/"));
        let own = std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
        let home = match (&self.home, &self.root) {
            (Some(home), _) => home.clone(),
            (None, Some(root)) => root.join("root"),
            (None, None) => {
                own.ok_or_else(|| stop(BAD_INPUT, "nobody knows your home; name it with --home DIR"))?
            }
        };
        let folder = |dir: &Path| -> io::Result<PathBuf> {
            let dir = dir.canonicalize()?;
            if dir.is_dir() { Ok(dir) } else { Err(io::ErrorKind::NotADirectory.into()) }
        };
        let there = |dir: &Path| {
            folder(dir).map_err(|error| stop(BAD_INPUT, &format!("{} can't be read: {error}", dir.display())))
        };
        let project = match &self.project {
            Some(dir) => Some(there(dir)?),
            None if elsewhere => None,
            None => std::env::current_dir().ok(),
        };
        // A user without a home has no settings there.
        let home = if self.home.is_some() { there(&home)? } else { folder(&home).unwrap_or(home) };
        let env = if elsewhere { BTreeMap::new() } else { environment() };
        Ok(Machine { root: there(&root)?, home, project, env })
    }
}

/// A network as rules write it.
fn network(text: &str) -> Result<IpNet, &'static str> {
    egret_policy::strict_network(text)
        .ok_or("write an address, or a network without host bits like 10.20.0.0/16")
}

/// A package's name, with nothing in it that a path is made of.
fn package(name: &str) -> Result<String, &'static str> {
    let plain = |part: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.~".contains(c);
        !part.is_empty() && !part.starts_with('.') && part.len() <= 214 && part.chars().all(is_plain)
    };
    let fits = match name.strip_prefix('@').map(|rest| rest.split_once('/')) {
        Some(Some((scope, name))) => plain(scope) && plain(name),
        Some(None) => false,
        None => plain(name),
    };
    if fits { Ok(name.to_owned()) } else { Err("write NAME or @SCOPE/NAME") }
}

fn environment() -> BTreeMap<String, String> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}

fn unread(faults: &[Fault]) -> Stop {
    for fault in faults {
        complain(&fault.to_string());
    }
    stop(BAD_INPUT, "nothing was written; correct what is wrong there, or name the other clients alone")
}

fn difference(new: &[&Rule], base: &Base, report: &Report) -> String {
    let added = new.iter().map(|rule| format!("+ {}\n", rule.to_line()));
    let wanted: Vec<_> = report.rules.iter().flat_map(Rule::destinations).collect();
    let unused = base.unused(wanted.iter());
    let unused =
        unused.iter().map(|entry| format!("- {}  ports {}  # {}\n", entry.entry, entry.ports, entry.rule));
    added.chain(unused).collect()
}

/// What a person should know beside the output; a rule set on standard output has it as comments.
fn tell(report: &Report, in_full: bool) {
    let mut text = format!("{} for registries", count(report.rules.len() as u64, "rule"));
    if !report.not_proposed.is_empty() {
        text.push_str(&format!("; {} not proposed", report.not_proposed.len()));
    }
    complain(&text);
    for unknown in &report.unknown {
        complain(&unknown.to_line());
    }
    if in_full {
        for entry in &report.not_proposed {
            complain(&format!("not proposed: {}", entry.to_line()));
        }
        for entry in &report.not_asked {
            complain(&format!("not known where its files are: {}", entry.to_line()));
        }
    }
}
