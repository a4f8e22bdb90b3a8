//! `egret nft`: the nftables rules that leave sandboxes no way but egret's listeners, as text or put
//! in force.
//!
//! One table of its own, replaced or removed in one transaction; never touches another one.

pub(super) mod rules;

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

use clap::Args;

use self::rules::{RuleSet, Side};
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
    #[arg(long, value_name = "UID")]
    user: Option<u32>,
    /// Divert by TPROXY instead of NAT; needs routing rules, which are printed with the rule set
    #[arg(long, conflicts_with_all = ["user", "apply"])]
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
            return run_nft(&rules::removal(&self.table));
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
        match rules.text(&loaded.settings.listen) {
            Ok(text) if self.apply => {
                let code = run_nft(&text);
                if let (OK, Some(name)) = (code, absent) {
                    complain(&format!(
                        "there is no interface `{name}` here: until there is, the rules divert and drop nothing of it"
                    ));
                }
                code
            }
            Ok(text) => say(&text),
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

/// Hands one transaction to `nft`, and tells what came of it.
fn run_nft(script: &str) -> u8 {
    let Err(error) = try_nft(script) else { return OK };
    complain(&match &error {
        NftError::Missing => format!(
            "{error}, nothing was changed; install nftables, or give what `egret nft` prints to `nft -f -` where it is"
        ),
        NftError::Said(said) if said.contains("Operation not permitted") => format!(
            "nothing was changed: this needs CAP_NET_ADMIN in this network namespace; run it as root ({})",
            said.lines().next().unwrap_or_default()
        ),
        _ => format!("nothing was changed: {error}"),
    });
    FAILED
}

/// Rules were not put in force.
#[derive(Debug, thiserror::Error)]
pub(super) enum NftError {
    #[error("the program `nft` is not there")]
    Missing,
    #[error("`nft` can't be run: {0}")]
    NotRun(std::io::Error),
    #[error("`nft` says: {0}")]
    Said(String),
}

/// Where the program is. System folders are not in the search path of every user.
const PROGRAMS: [&str; 3] = ["nft", "/usr/sbin/nft", "/sbin/nft"];

/// Hands one transaction to `nft`.
pub(super) fn try_nft(script: &str) -> Result<(), NftError> {
    let start = |program: &str| {
        let mut nft = Command::new(program);
        nft.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        match nft.spawn() {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            started => Some(started),
        }
    };
    let started = PROGRAMS.into_iter().find_map(start).ok_or(NftError::Missing)?;
    let mut nft = started.map_err(NftError::NotRun)?;
    // It reads all of this before it says anything; what fails here, its status tells better.
    let fed = nft.stdin.take().map(|mut stdin| stdin.write_all(script.as_bytes()));
    let output = nft.wait_with_output().map_err(NftError::NotRun)?;
    if output.status.success() && matches!(fed, Some(Ok(()))) {
        return Ok(());
    }
    Err(NftError::Said(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
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
