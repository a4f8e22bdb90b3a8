//! The configuration of `egret run`: a policy of a file, or what the command line says, for one
//! sandbox.

use std::path::PathBuf;

use egret_policy::{Policy, Problems};

use super::allow_table;

/// The policy where there is no file.
const OWN: &str = "run";

/// What holds for one command.
#[derive(Debug, Clone)]
pub struct RunSource {
    /// Its rules.
    pub rules: RunRules,
    /// Its sandbox ID.
    pub sandbox: String,
    /// Does the policy only observe, whatever its file says?
    pub observe: bool,
}

/// Where the rules of a command come from.
#[derive(Debug, Clone)]
pub enum RunRules {
    /// A policy of a configuration file.
    Policy {
        /// The file.
        path: PathBuf,
        /// `--rules DIR`.
        rules: Option<PathBuf>,
        /// Which one; the only one, where there is but one.
        policy: Option<String>,
    },
    /// The command line, and nothing else is allowed.
    Own {
        /// A rule set file.
        rule_set: Option<PathBuf>,
        /// Name patterns.
        allow: Vec<String>,
    },
}

impl RunSource {
    /// Makes every client the sandbox, under its policy.
    pub(super) fn hold(&self, policy: &mut Policy, problems: &mut Problems) {
        if problems.any_error() {
            return;
        }
        let names = policy.names();
        let listed = || names.iter().map(|name| &**name).collect::<Vec<_>>().join(", ");
        let named = match (&self.rules, &*names) {
            (RunRules::Own { .. }, _) => OWN.to_owned(),
            (RunRules::Policy { policy: Some(name), .. }, _) => name.clone(),
            (RunRules::Policy { policy: None, .. }, [only]) => only.to_string(),
            (RunRules::Policy { policy: None, .. }, []) => {
                problems.unplaced("the configuration has no policy; add [policy.NAME]".to_owned());
                return;
            }
            (RunRules::Policy { policy: None, .. }, _) => {
                problems.unplaced(format!("say which policy holds: --policy with one of {}", listed()));
                return;
            }
        };
        if !policy.hold_to(&self.sandbox, &named, self.observe) {
            let name = named.escape_debug();
            problems.unplaced(format!("there is no policy `{name}`; the configuration has: {}", listed()));
        }
    }
}

/// Questions for names that a command may ask. Nobody shares the listener, and a build that starts many
/// programs at once has each of them ask for the same few names; how many names there are `dns_names` limits.
const QUESTIONS: &str = "500/s burst 5000";

/// The configuration that holds without a file.
pub(super) fn text(has_rule_set: bool, allow: &[String]) -> String {
    let rules = if has_rule_set { "rules = [\"file\"]\n" } else { "" };
    let limits = format!("[policy.{OWN}.limits]\ndns_queries = \"{QUESTIONS}\"\n");
    format!("[policy.{OWN}]\n{rules}{limits}{}", allow_table(OWN, allow))
}
