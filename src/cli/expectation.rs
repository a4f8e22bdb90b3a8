//! `[[case]]` tables: what a policy is expected to decide, as read and as compared.
//!
//! Reads everything or reports everything that is wrong; decides nothing.

use std::net::IpAddr;
use std::sync::Arc;

use egret_policy::reader::{Located, Table, nearest, read_document};
use egret_policy::{Problems, Reason, SourceFile, Spot, word};

use super::decide::{Answer, Question};

/// The verdicts that a case can expect.
const VERDICTS: [(&str, &str); 3] = [("allow", "allow"), ("deny", "deny"), ("would_deny", "would_deny")];

/// One expectation.
#[derive(Debug)]
pub(super) struct Case {
    /// Where it stands.
    pub(super) spot: Spot,
    /// What a person calls it.
    pub(super) name: Option<String>,
    /// What is asked.
    pub(super) question: Question,
    verdict: &'static str,
    reason: Option<String>,
    /// The end of a `file:line`.
    rule: Option<String>,
    policy: Option<String>,
}

/// Reads a file's cases; one with a problem is left out.
pub(super) fn read_cases(file: &Arc<SourceFile>, problems: &mut Problems) -> Vec<Case> {
    read_document(file, problems, |mut root, problems| {
        let spot = root.spot();
        if !root.has("case") {
            problems.error(
                &spot,
                format!("{} holds no [[case]]", file.name()),
                "add one; a configuration is named with --config",
            );
        }
        let tables = root.tables("case", problems);
        let cases = tables.into_iter().filter_map(|table| Case::read(table, problems)).collect();
        root.finish(problems);
        cases
    })
}

impl Case {
    fn read(mut table: Table<'_, '_>, problems: &mut Problems) -> Option<Self> {
        let spot = table.spot();
        let name = table.string("name", problems).map(|name| name.value);
        let sandbox = table.string("sandbox", problems);
        let method = table.string("method", problems).map(|method| method.value);
        let target = table.string("target", problems);
        let addresses = table.strings("addresses", problems).map(|list| read_addresses(&list, problems));
        let verdict = word(&mut table, "expect", &VERDICTS, problems);
        let reason = table.string("reason", problems);
        let rule = table.string("rule", problems);
        let policy = table.string("policy", problems).map(|policy| policy.value);
        for key in ["sandbox", "target", "expect"].into_iter().filter(|key| !table.has(key)) {
            problems.error(&spot, format!("a [[case]] needs `{key}`"), "add it");
        }
        table.finish(problems);
        if let Some(reason) = &reason {
            check_reason(reason, problems);
        }
        if let Some(rule) = &rule {
            check_rule(rule, problems);
        }
        let (sandbox, target) = (sandbox?.value, target?.value);
        let question = Question { sandbox, policy: None, method, target, host_header: None, addresses };
        let reason = reason.map(|reason| reason.value);
        let rule = rule.map(|rule| rule.value);
        Some(Self { spot, name, question, verdict: verdict?, reason, rule, policy })
    }

    /// What of the answer is not as expected, each as `expected X, got Y`.
    pub(super) fn differences(&self, answer: &Answer) -> Vec<String> {
        let mut out = Vec::new();
        if answer.verdict != self.verdict {
            out.push(format!("expected {}, got {}", self.verdict, answer.headline()));
        }
        if let Some(reason) = self.reason.as_deref().filter(|reason| *reason != answer.reason) {
            out.push(format!("expected the reason {reason}, got {}", answer.reason));
        }
        if let Some(rule) = &self.rule
            && !answer.rule.as_deref().is_some_and(|cite| is_end_of(rule, cite))
        {
            out.push(format!("expected the rule {rule}, got {}", answer.rule.as_deref().unwrap_or("none")));
        }
        if let Some(policy) = &self.policy
            && answer.policy.as_deref() != Some(policy)
        {
            let got = answer.policy.as_deref().unwrap_or("none");
            out.push(format!("expected the policy {policy}, got {got}"));
        }
        out
    }
}

/// Is `end` the cite, or the end of it from a file or folder name on?
fn is_end_of(end: &str, cite: &str) -> bool {
    cite.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

fn read_addresses(list: &[Located<String>], problems: &mut Problems) -> Vec<IpAddr> {
    let mut out = Vec::new();
    for text in list {
        match text.value.parse() {
            Ok(address) => out.push(address),
            Err(_) => {
                let message = format!("`{}` is not an IP address", text.value.escape_debug());
                problems.error(&text.spot, message, "write an address like \"192.0.2.1\"");
            }
        }
    }
    out
}

fn check_reason(reason: &Located<String>, problems: &mut Problems) {
    let codes = || Reason::ALL.iter().map(|reason| reason.code());
    if codes().any(|code| code == reason.value) {
        return;
    }
    let message = format!("there is no reason `{}`", reason.value.escape_debug());
    let help = match nearest(&reason.value, codes()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => "write a reason code, as `egret explain` shows it".to_owned(),
    };
    problems.error(&reason.spot, message, help);
}

fn check_rule(rule: &Located<String>, problems: &mut Problems) {
    let line = rule.value.rsplit_once(':').map(|(_, line)| line);
    if !line.is_some_and(|line| !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit())) {
        let message = format!("`{}` is not a rule's place", rule.value.escape_debug());
        problems.error(&rule.spot, message, "write its file and line, like \"rules/example.toml:4\"");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_wrong_is_reported_at_once() {
        let text = "[[case]]\nsandbox = 1\ntarget = \"a.example:443\"\nexpect = \"alow\"\n\
                    reason = \"domain_not_alowed\"\nrule = \"rules/a.toml\"\naddresses = [\"a\"]\nx = 1\n\
                    [[case]]\n";
        let mut problems = Problems::default();
        assert!(read_cases(&SourceFile::new("f.toml", text.to_owned()), &mut problems).is_empty());
        problems.sort();
        let text = problems.to_string();
        let lines: Vec<_> = text.lines().map(|line| line.split(" (").next().unwrap()).collect();
        assert_eq!(
            lines,
            [
                "f.toml:2:11: `sandbox` has the wrong type: integer",
                "f.toml:4:10: `expect` has an unknown value: `alow`",
                "f.toml:5:10: there is no reason `domain_not_alowed`",
                "f.toml:6:8: `rules/a.toml` is not a rule's place",
                "f.toml:7:14: `a` is not an IP address",
                "f.toml:8:1: unknown key `x`",
                "f.toml:9:1: a [[case]] needs `sandbox`",
                "f.toml:9:1: a [[case]] needs `target`",
                "f.toml:9:1: a [[case]] needs `expect`",
            ]
        );
    }

    #[test]
    fn a_file_without_cases_is_no_test() {
        let mut problems = Problems::default();
        assert!(read_cases(&SourceFile::new("f.toml", String::new()), &mut problems).is_empty());
        assert!(problems.any_error());
    }

    #[test]
    fn a_rule_is_named_by_the_end_of_its_place() {
        assert!(is_end_of("a.toml:4", "a.toml:4"));
        assert!(is_end_of("rules/a.toml:4", "/etc/egret/rules/a.toml:4"));
        assert!(!is_end_of("a.toml:4", "/etc/data.toml:4"));
        assert!(!is_end_of("a.toml:4", "a.toml:14"));
    }
}
