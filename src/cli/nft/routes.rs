//! The routes that TPROXY needs beside the table: what it has marked comes in as if it were meant for
//! this machine. One rule and one route a family, set and taken away by the program `ip`.
//!
//! Never touches a rule with another mark, or another routing table.

use std::io::ErrorKind;
use std::process::Child;

use super::start;

/// Marks what TPROXY has diverted, and in `ct mark` what egret itself has sent: "egrt".
pub(super) const MARK: u32 = 0x6567_7274;
/// Number of the routing table, and priority of the rule. Without one, the system would add the same rule
/// again and again.
const TABLE: u32 = 25_972;

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// As nft calls it in its expressions.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        }
    }
}

/// One thing that is there or not.
#[derive(Debug, Clone, Copy)]
struct Piece {
    family: Family,
    is_rule: bool,
}

impl Piece {
    fn of(family: Family) -> [Self; 2] {
        [true, false].map(|is_rule| Self { family, is_rule })
    }

    /// The arguments of `ip` that add it, or delete it.
    fn arguments(self, verb: &str) -> String {
        let family = match self.family {
            Family::V4 => "-4",
            Family::V6 => "-6",
        };
        match self.is_rule {
            true => format!("{family} rule {verb} pref {TABLE} fwmark {MARK:#x} lookup {TABLE}"),
            false => format!("{family} route {verb} local default dev lo table {TABLE}"),
        }
    }

    /// Adds it; false if it is there already.
    fn add(self) -> Result<bool, Failure> {
        done(run(&self.arguments("add")), &["File exists"])
    }

    /// Deletes it, if it is there.
    fn delete(self) -> Result<(), Failure> {
        // A rule, a route, a table without a route, a system without the family.
        let absent = ["No such file", "No such process", "does not exist", "not supported"];
        done(run(&self.arguments("del")), &absent).map(drop)
    }
}

/// The commands that set the routes of these families, for people.
pub(super) fn commands(families: &[Family]) -> impl Iterator<Item = String> {
    families.iter().copied().flat_map(Piece::of).map(|piece| format!("ip {}", piece.arguments("add")))
}

/// What was not there before.
#[derive(Debug, Default)]
pub(super) struct Added(Vec<Piece>);

/// Sets the routes of these families.
///
/// # Errors
/// One could not be set; those that were set before it are taken away again.
pub(super) fn add(families: &[Family]) -> Result<Added, String> {
    let mut added = Added::default();
    for piece in families.iter().copied().flat_map(Piece::of) {
        match piece.add() {
            Ok(true) => added.0.push(piece),
            Ok(false) => {}
            Err(failure) => return Err(added.undo(&failure.to_string())),
        }
    }
    Ok(added)
}

impl Added {
    /// Takes away what was added, because of this; what to say then.
    pub(super) fn undo(self, because: &str) -> String {
        let failed = self.0.into_iter().rev().find_map(|piece| piece.delete().err());
        match failed {
            None => format!("nothing was changed: {because}"),
            Some(failure) => format!(
                "{because}; and the routes that were set for it are still there: {failure}; `egret nft --remove` takes them away"
            ),
        }
    }
}

/// Takes away the routes of families that these rules, as `nft` lists them, divert nothing of. Another
/// table of egret's may need them.
///
/// # Errors
/// One is still there.
pub(super) fn tidy(rules: &str) -> Result<(), String> {
    let mark = format!("{MARK:#x}");
    let used = |family: Family| {
        let diverts = format!(" tproxy {} to ", family.word());
        rules.lines().any(|line| line.contains(&diverts) && line.contains(&mark))
    };
    for piece in Family::BOTH.into_iter().filter(|&family| !used(family)).flat_map(Piece::of) {
        match piece.delete() {
            Ok(()) => {}
            // Nothing else has set any.
            Err(Failure::NoProgram) => return Ok(()),
            Err(failure) => return Err(format!("the routes for TPROXY are still there: {failure}")),
        }
    }
    Ok(())
}

/// Why `ip` did not do it.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the program `ip` is not there; install iproute2, or divert without --tproxy")]
    NoProgram,
    #[error("`ip` can't be run: {0}")]
    Unfit(std::io::Error),
    #[error("this needs CAP_NET_ADMIN in this network namespace; run it as root ({0})")]
    NotPermitted(String),
    #[error("`{command}` says: {said}")]
    Said { command: String, said: String },
}

/// True if it was done, false if it says one of these.
fn done(ran: Result<(), Failure>, else_said: &[&str]) -> Result<bool, Failure> {
    match ran {
        Ok(()) => Ok(true),
        Err(Failure::Said { said, .. }) if else_said.iter().any(|word| said.contains(word)) => Ok(false),
        Err(failure) => Err(failure),
    }
}

fn run(arguments: &str) -> Result<(), Failure> {
    let words: Vec<_> = arguments.split(' ').collect();
    let output =
        start("ip", &words).and_then(Child::wait_with_output).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failure::NoProgram,
            _ => Failure::Unfit(error),
        })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    match said.contains("Operation not permitted") {
        true => Err(Failure::NotPermitted(said)),
        false => Err(Failure::Said { command: format!("ip {arguments}"), said }),
    }
}
