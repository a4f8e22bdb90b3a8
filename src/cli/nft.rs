//! `egret nft`: the nftables rules that leave sandboxes no way but egret's listeners, as text or put
//! in force.
//!
//! One table of its own, replaced or removed in one transaction; never touches another one. What TPROXY
//! needs beside it comes before the table and goes after it.

mod routes;
pub(super) mod rules;

use std::io::{self, ErrorKind, Write};
use std::process::{Child, Command, Stdio};

use clap::Args;

use self::rules::{RuleSet, Side, Written};
use super::{BAD_INPUT, ConfigArgs, FAILED, OK, complain, say};

/// Longest name of an interface (IFNAMSIZ without the zero).
const MOST_NAME: usize = 15;

#[derive(Debug, Args)]
pub(super) struct NftArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Interface behind which sandboxes are, such as their bridge; repeatable, a `*` at the end stands
    /// for any rest
    #[arg(long, value_name = "NAME", value_parser = interface, conflicts_with = "user")]
    interface: Vec<String>,
    /// Instead of an interface: all of this network namespace but what this user sends, as whom egret
    /// runs
    #[arg(long, value_name = "UID", value_parser = user_id)]
    user: Option<u32>,
    /// Divert by TPROXY instead of NAT; needs routes, which are printed with the rule set, or set with
    /// --apply
    #[arg(long, conflicts_with = "user")]
    tproxy: bool,
    /// Name of the table
    #[arg(long, value_name = "NAME", value_parser = table, default_value = "egret")]
    table: String,
    /// Put the rules in force, in place of those that an earlier run has put there
    #[arg(long, conflicts_with = "remove")]
    apply: bool,
    /// Remove the rules; no error if there are none
    #[arg(long, conflicts_with_all = ["interface", "user", "tproxy"])]
    remove: bool,
}

impl NftArgs {
    pub(super) fn run(self) -> u8 {
        if self.remove {
            return ended(remove(&self.table));
        }
        let side = match (self.user, self.interface.is_empty()) {
            (Some(user), _) => Side::User(user),
            (None, false) => Side::Interfaces(self.interface),
            (None, true) => {
                complain("name the sandboxes' side: --interface NAME, or --user UID for this namespace");
                return BAD_INPUT;
            }
        };
        let loaded = match self.config.load() {
            Ok(loaded) => loaded,
            Err(code) => return code,
        };
        let absent = absent(&side);
        let rules = RuleSet { table: &self.table, side, tproxy: self.tproxy };
        match rules.write(&loaded.settings.listen) {
            Ok(written) if self.apply => {
                let code = ended(apply(&written));
                if let (OK, Some(name)) = (code, absent) {
                    complain(&format!(
                        "there is no interface `{name}` here: until there is, the rules divert and drop nothing of it"
                    ));
                }
                code
            }
            Ok(written) => say(&written.text),
            Err(message) => {
                complain(&message);
                BAD_INPUT
            }
        }
    }
}

/// The first of the interfaces that this namespace does not have, or not yet. A name that was
/// mistyped would leave all ways open without a word.
fn absent(side: &Side) -> Option<String> {
    let Side::Interfaces(names) = side else { return None };
    // Follows the namespace of the process, as /sys does not. Two lines of headings stand before.
    let list = std::fs::read_to_string("/proc/self/net/dev").ok()?;
    let present: Vec<_> =
        list.lines().skip(2).filter_map(|line| Some(line.rsplit_once(':')?.0.trim())).collect();
    let is_there = |name: &&String| match name.strip_suffix('*') {
        Some(begin) => present.iter().any(|present| present.starts_with(begin)),
        None => present.contains(&name.as_str()),
    };
    names.iter().find(|name| !is_there(name)).cloned()
}

fn ended(done: Result<(), String>) -> u8 {
    match done {
        Ok(()) => OK,
        Err(message) => {
            complain(&message);
            FAILED
        }
    }
}

/// Puts the rules in force, with the routes that they need and no others.
fn apply(written: &Written) -> Result<(), String> {
    // Without the rules they lead nowhere, but not the other way round.
    let added = routes::add(&written.routes)?;
    if let Err(error) = try_nft(&written.text) {
        return Err(added.undo(&told(&error)));
    }
    tidy().map_err(|message| format!("the rules are in force, but {message}"))
}

fn remove(table: &str) -> Result<(), String> {
    try_nft(&rules::removal(table)).map_err(|error| format!("nothing was changed: {}", told(&error)))?;
    tidy().map_err(|message| format!("the rules are removed, but {message}"))
}

/// Takes away the routes that no rules need any more.
fn tidy() -> Result<(), String> {
    routes::tidy(&run_nft(&["list", "ruleset"], "").map_err(|error| told(&error))?)
}

/// What a person can do about it.
fn told(error: &NftError) -> String {
    match error {
        NftError::Missing => {
            format!("{error}; install nftables, or give what `egret nft` prints to `nft -f -` where it is")
        }
        NftError::Said(said) if said.contains("Operation not permitted") => format!(
            "this needs CAP_NET_ADMIN in this network namespace; run it as root ({})",
            said.lines().next().unwrap_or_default()
        ),
        _ => error.to_string(),
    }
}

/// Rules were not put in force.
#[derive(Debug, thiserror::Error)]
pub(super) enum NftError {
    #[error("the program `nft` is not there")]
    Missing,
    #[error("`nft` can't be run: {0}")]
    NotRun(io::Error),
    #[error("`nft` says: {0}")]
    Said(String),
}

/// Where programs are. System folders are not in the search path of every user.
const FOLDERS: [&str; 3] = ["", "/usr/sbin/", "/sbin/"];

/// Starts a program of the system.
fn start(program: &str, arguments: &[&str]) -> io::Result<Child> {
    let started = FOLDERS.into_iter().find_map(|folder| {
        let mut command = Command::new(format!("{folder}{program}"));
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        match command.spawn() {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            started => Some(started),
        }
    });
    started.unwrap_or_else(|| Err(ErrorKind::NotFound.into()))
}

/// Hands one transaction to `nft`, of which it does all or nothing.
pub(super) fn try_nft(script: &str) -> Result<(), NftError> {
    run_nft(&["-f", "-"], script).map(drop)
}

/// Runs `nft`; its output.
fn run_nft(arguments: &[&str], script: &str) -> Result<String, NftError> {
    let mut nft = start("nft", arguments).map_err(|error| match error.kind() {
        ErrorKind::NotFound => NftError::Missing,
        _ => NftError::NotRun(error),
    })?;
    // It reads all of this before it says anything; what fails here, its status tells better.
    let fed = nft.stdin.take().map(|mut stdin| stdin.write_all(script.as_bytes()));
    let output = nft.wait_with_output().map_err(NftError::NotRun)?;
    if output.status.success() && matches!(fed, Some(Ok(()))) {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(NftError::Said(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

fn user_id(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "write a user's number, as `id -u NAME` prints it".to_owned())
}

/// A name of an interface, as the kernel permits it and nft can quote it.
fn interface(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('*').unwrap_or(text);
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte);
    if name.is_empty() || text.len() > MOST_NAME || !name.bytes().all(fits) {
        return Err("this is not the name of an interface".to_owned());
    }
    Ok(text.to_owned())
}

/// A name of a table that is egret's: `--table filter` would put our rules in place of a firewall.
fn table(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !text.starts_with("egret") || text.len() > 32 || !text.bytes().all(fits) {
        return Err("write a word of up to 32 letters, digits and _ that begins with `egret`".to_owned());
    }
    Ok(text.to_owned())
}
