//! Reads the policy part of a configuration: operator denials, policies, rule sets, sandboxes.
//!
//! Never opens a file: rule sets come from a function of the caller's.

use std::collections::HashMap;
use std::sync::Arc;

use crate::limits::Limits;
use crate::networks::Nat64Prefix;
use crate::policy::{Effective, Fallback, Listeners, Mode, Policy};
use crate::reader::{Located, Table, nearest, read_document};
use crate::rules::{RuleList, read_tls};
use crate::sandbox::{IdentifiedBy, Sandboxes};
use crate::source::{Problems, SourceFile};

/// Fetches the file of a rule set by its name; the error says what is wrong.
pub type FetchRuleSet<'a> = dyn FnMut(&str) -> Result<Arc<SourceFile>, String> + 'a;

/// A file of `rules/`.
#[derive(Debug, Clone, Default)]
struct RuleSet {
    allow: Arc<RuleList>,
    deny: Arc<RuleList>,
}

/// What of the configuration is not the policy's own but needed for it.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// Counts successful loads of this process from 1.
    pub generation: u64,
    /// The proxy's own listeners.
    pub listeners: Listeners,
    /// NAT64 prefixes of `[dns]`.
    pub nat64: Vec<Nat64Prefix>,
    /// `[identity] anonymous`.
    pub anonymous: Option<Located<String>>,
    /// Are there keys that tokens are verified with?
    pub tokens: bool,
    /// Are there authorities that client certificates are verified with?
    pub certificates: bool,
    /// What may be registered while the proxy runs.
    pub register: RegisterText,
}

/// The keys of `[identity]` that say what may be registered, as written.
#[derive(Debug, Default)]
pub struct RegisterText {
    /// `register`.
    pub networks: Vec<Located<String>>,
    /// `register_policies`.
    pub policies: Vec<Located<String>>,
}

impl Policy {
    /// Reads `deny`, `policy` and `sandbox` of the root table. If there are errors among the
    /// problems afterwards, the result must not be used.
    pub fn read(
        root: &mut Table<'_, '_>,
        around: Surroundings,
        fetch: &mut FetchRuleSet<'_>,
        problems: &mut Problems,
    ) -> Self {
        let nat64 = around.nat64;
        let operator_deny = Arc::new(RuleList::read_deny(root.tables("deny", problems), &nat64, problems));
        let mut rule_sets =
            RuleSets { fetch, nat64: &nat64, operator_deny: &operator_deny, loaded: HashMap::new() };
        let mut policies = HashMap::new();
        let tables = root.table("policy", problems).map(|t| t.named_tables(problems)).unwrap_or_default();
        for (name, table) in tables {
            let effective = read_policy(&name, table, &mut rule_sets, problems);
            policies.insert(Arc::clone(&effective.name), Arc::new(effective));
        }
        let mut names: Vec<_> = policies.keys().cloned().collect();
        names.sort();
        let Surroundings { anonymous, tokens, certificates, register, .. } = around;
        let identified_by = IdentifiedBy { anonymous, tokens, certificates, register };
        let sandboxes = Sandboxes::read(root.tables("sandbox", problems), identified_by, &names, problems);
        Self {
            generation: around.generation,
            sandboxes,
            listeners: around.listeners,
            operator_deny,
            policies,
            nat64,
        }
    }
}

struct RuleSets<'a, 'f> {
    fetch: &'a mut FetchRuleSet<'f>,
    nat64: &'a [Nat64Prefix],
    operator_deny: &'a Arc<RuleList>,
    /// Loaded once each, however many policies use them; `None` where loading failed.
    loaded: HashMap<String, Option<RuleSet>>,
}

impl RuleSets<'_, '_> {
    fn get(&mut self, name: &Located<String>, problems: &mut Problems) -> Option<RuleSet> {
        if let Some(known) = self.loaded.get(&name.value) {
            return known.clone();
        }
        let set = self.load(name, problems);
        self.loaded.insert(name.value.clone(), set.clone());
        set
    }

    fn load(&mut self, name: &Located<String>, problems: &mut Problems) -> Option<RuleSet> {
        let word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        if name.value.is_empty() || name.value.starts_with('.') || !name.value.bytes().all(word) {
            let message = format!("`{}` is not the name of a rule set", name.value.escape_debug());
            problems.error(&name.spot, message, "write the file's name in rules/ without .toml");
            return None;
        }
        match (self.fetch)(&name.value) {
            Ok(file) => Some(read_document(&file, problems, |root, p| {
                read_rule_set(root, self.operator_deny, self.nat64, p)
            })),
            Err(cause) => {
                let message = format!("the rule set `{}` can't be loaded: {cause}", name.value);
                let help = "rule sets lie in rules/ beside the configuration, or in --rules DIR";
                problems.error(&name.spot, message, help);
                None
            }
        }
    }
}

fn read_rule_set(
    mut root: Table<'_, '_>,
    operator_deny: &Arc<RuleList>,
    nat64: &[Nat64Prefix],
    problems: &mut Problems,
) -> RuleSet {
    root.string("description", problems);
    root.strings("documentation", problems);
    let deny = Arc::new(RuleList::read_deny(root.tables("deny", problems), nat64, problems));
    // Not the denials of the policies that use the set: they are how a policy takes from it.
    let above = [Arc::clone(operator_deny), Arc::clone(&deny)];
    let allow = RuleList::read_allow(root.tables("allow", problems), &above, nat64, problems);
    root.finish(problems);
    RuleSet { allow: Arc::new(allow), deny }
}

fn read_policy(
    name: &Located<String>,
    mut table: Table<'_, '_>,
    rule_sets: &mut RuleSets<'_, '_>,
    problems: &mut Problems,
) -> Effective {
    let nat64 = rule_sets.nat64;
    // `anonymous = "deny"` must mean one thing.
    let plain = name.value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    if name.value.is_empty() || name.value == "deny" || !plain {
        let message = format!("`{}` is not a policy name", name.value.escape_debug());
        problems.error(&name.spot, message, "write letters, digits, . _ -; `deny` has a meaning of its own");
    }
    let mode = word(&mut table, "mode", &[("enforce", Mode::Enforce), ("observe", Mode::Observe)], problems);
    let default =
        word(&mut table, "default", &[("deny", Fallback::Deny), ("allow", Fallback::Allow)], problems);
    let default_tls = read_tls(&mut table, "default_tls", problems);
    let own_deny = RuleList::read_deny(table.tables("deny", problems), nat64, problems);
    let mut deny = vec![Arc::new(own_deny)];
    let mut allow = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    for set_name in table.strings("rules", problems).into_iter().flatten() {
        if seen.contains(&set_name.value) {
            let message = format!("the rule set `{}` is named twice", set_name.value.escape_debug());
            problems.error(&set_name.spot, message, "name it once");
        }
        if let Some(set) = rule_sets.get(&set_name, problems) {
            deny.push(set.deny);
            allow.push(set.allow);
        }
        seen.push(set_name.value);
    }
    let above: Vec<_> = std::iter::once(rule_sets.operator_deny).chain(&deny).map(Arc::clone).collect();
    let own_allow = RuleList::read_allow(table.tables("allow", problems), &above, nat64, problems);
    allow.insert(0, Arc::new(own_allow));
    let limits = table.table("limits", problems).map(|t| Limits::read(t, problems)).unwrap_or_default();
    table.finish(problems);
    let default = default.unwrap_or(Fallback::Deny);
    if let (Fallback::Deny, Some(tls)) = (default, &default_tls) {
        problems.error(
            &tls.spot,
            "`default_tls` needs `default = \"allow\"`",
            "remove it, or set `tls` on rules",
        );
    }
    Effective {
        name: name.value.as_str().into(),
        mode: mode.unwrap_or(Mode::Enforce),
        default,
        default_tls: default_tls.map(|t| t.value),
        deny: deny.into_iter().filter(|list| !list.is_empty()).collect(),
        allow: allow.into_iter().filter(|list| !list.is_empty()).collect(),
        limits: Arc::new(limits),
    }
}

/// Reads a key whose value is one of a few words.
pub fn word<T: Copy>(
    table: &mut Table<'_, '_>,
    key: &'static str,
    words: &[(&'static str, T)],
    problems: &mut Problems,
) -> Option<T> {
    let text = table.string(key, problems)?;
    let found = words.iter().find(|(word, _)| *word == text.value).map(|(_, value)| *value);
    if found.is_none() {
        let message = format!("`{key}` has an unknown value: `{}`", text.value.escape_debug());
        let help = match nearest(&text.value, words.iter().map(|(word, _)| *word)) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => {
                let known: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
                format!("write {}", known.join(" or "))
            }
        };
        problems.error(&text.spot, message, help);
    }
    found
}
