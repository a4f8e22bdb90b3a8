//! The case files of the repository at the level of this crate: parsing, rules and addresses.
//!
//! What needs a wire (the `Host` field above all) is the business of the suites of the program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use egret_policy::{Class, Host, HostError, Policy, Reason, TargetError, classify};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use support::{Outcome, World};

const SANDBOX: &str = "[[sandbox]]\nid = \"box\"\nsource = [\"0.0.0.0/0\"]\npolicy = \"p\"\n";
const PUBLIC: &str = "93.184.215.14";

fn rows<T: DeserializeOwned>(file: &str, least: usize) -> Vec<T> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let rows: Vec<T> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert!(rows.len() >= least, "{file} has {} rows only", rows.len());
    rows
}

fn policy_of(rules: &[String]) -> Result<Arc<Policy>, String> {
    let mut text = "[policy.p]\n".to_owned();
    for rule in rules {
        let (table, rule) = match rule.strip_prefix("deny ") {
            Some(rule) => ("deny", rule),
            None => ("allow", rule.as_str()),
        };
        text += &format!("[[policy.p.{table}]]\n{}", rule_keys(rule));
    }
    text += SANDBOX;
    let (policy, problems) = support::read(&text, &World::default());
    if problems.any_error() { Err(problems.to_string()) } else { Ok(policy) }
}

/// What is, or tries to be, an address goes under `addresses`; the rest under `domains`.
fn rule_keys(rule: &str) -> String {
    if let Some((address, port)) = rule.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
        return format!("addresses = [{}]\nports = [{port}]\n", quoted(address));
    }
    let start = rule.split('/').next().unwrap_or_default();
    let v4 = !start.is_empty() && start.chars().all(|c| c.is_ascii_digit() || c == '.');
    let v6 = start.matches(':').count() > 1 && start.chars().all(|c| c.is_ascii_hexdigit() || c == ':');
    let key = if v4 || v6 { "addresses" } else { "domains" };
    format!("{key} = [{}]\n", quoted(rule))
}

/// A TOML basic string: JSON's escapes serve, but for DEL.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap().replace('\x7f', "\\u007f")
}

/// The verdict in the words of the case files.
fn verdict(policy: &Arc<Policy>, method: &str, target: &str, answer: &[IpAddr]) -> &'static str {
    let Ok(request) = support::parse_request(method, target) else {
        return "bad_request";
    };
    match support::ask(policy, IpAddr::from([10, 0, 0, 1]), request, answer, &[]) {
        Outcome::Routed(_) => "allow",
        Outcome::Refused(refusal) | Outcome::RefusedAfterLookup(refusal) => match refusal.reason {
            Reason::AddressForbidden | Reason::AddressNotAllowed | Reason::MixedAnswer => "deny_address",
            _ => "deny_domain",
        },
    }
}

fn p0() -> Arc<Policy> {
    let rules = ["example.com", "*.allowed.example", "api.example:443"];
    policy_of(&rules.map(str::to_owned)).unwrap()
}

#[derive(Debug, Deserialize)]
struct TargetRow {
    id: String,
    method: String,
    target: String,
    expected: String,
    #[serde(default)]
    also_ok: Vec<String>,
    canonical_host: Option<String>,
    canonical_port: Option<u16>,
    canonical_ip: Option<IpAddr>,
    #[serde(default)]
    tag: String,
}

#[test]
fn targets() {
    let policy = p0();
    let answer = [PUBLIC.parse().unwrap()];
    let mut failures = Vec::new();
    for row in rows::<TargetRow>("targets.jsonl", 200) {
        let got = verdict(&policy, &row.method, &row.target, &answer);
        // Here only the Host field is wrong, which this crate never sees.
        let host_field = row.tag == "host-header" && row.expected == "bad_request";
        let expected = if host_field { "allow" } else { row.expected.as_str() };
        if got != expected && !row.also_ok.iter().any(|also| also == got) {
            failures.push(format!("{row:?}: {got}"));
        }
        if let Ok((destination, _)) = support::parse_request(&row.method, &row.target) {
            let host = destination.host().to_string();
            let other_host = row.canonical_host.as_ref().is_some_and(|h| *h != host.trim_matches(['[', ']']));
            let other_address = match destination.host() {
                Host::Address(address) => row.canonical_ip.is_some_and(|ip| ip != address.to_canonical()),
                Host::Name(_) => false,
            };
            let other_port = row.canonical_port.is_some_and(|port| port != destination.port());
            if other_host || other_address || other_port {
                failures.push(format!("{row:?}: parsed as {destination}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_address_that_inet_aton_would_read_is_told() {
    let mut told = 0;
    for row in rows::<TargetRow>("targets.jsonl", 200) {
        let parsed = support::parse_request(&row.method, &row.target);
        if let Err(TargetError::Host(HostError::Numeric { inet_aton: Some(address) })) = parsed
            && let Some(expected) = row.canonical_ip
        {
            assert_eq!(IpAddr::V4(address), expected, "{}: {}", row.id, row.target);
            told += 1;
        }
    }
    assert!(told >= 20, "{told}");
}

#[derive(Debug, Deserialize)]
struct NoteRow {
    id: String,
    method: String,
    target: String,
    expected: String,
}

#[test]
fn targets_that_common_parsers_let_through() {
    let policy = p0();
    let targets = rows::<TargetRow>("targets.jsonl", 200);
    // Rows whose Host field alone is wrong, which this crate never sees.
    let about_the_field: Vec<_> = targets.iter().filter(|r| r.tag == "host-header").map(|r| &r.id).collect();
    for row in rows::<NoteRow>("rust_parser_notes.jsonl", 90) {
        if about_the_field.contains(&&row.id) {
            continue;
        }
        let got = verdict(&policy, &row.method, &row.target, &[PUBLIC.parse().unwrap()]);
        assert_eq!(got, row.expected, "{}: {} {}", row.id, row.method, row.target);
    }
}

#[derive(Debug, Deserialize)]
struct AddressRow {
    address: IpAddr,
    class: String,
    expected: String,
}

#[test]
fn addresses_as_answers_for_an_allowed_name() {
    let policy = p0();
    for row in rows::<AddressRow>("addresses.jsonl", 300) {
        let got = verdict(&policy, "CONNECT", "example.com:443", &[row.address]);
        let expected = if row.expected == "allow" { "allow" } else { "deny_address" };
        assert_eq!(got, expected, "{row:?}");
    }
}

#[test]
fn addresses_as_literals_that_a_rule_names() {
    for row in rows::<AddressRow>("addresses.jsonl", 300) {
        let class = classify(row.address, &[]);
        let rule = row.address.to_string();
        // A rule that could never match is refused; any other unlocks what is not forbidden.
        let expected = if matches!(class, Class::Forbidden(_)) { "deny_address" } else { "allow" };
        let target = format!("{}:443", Host::Address(row.address));
        if let Ok(policy) = policy_of(&[rule]) {
            assert_eq!(verdict(&policy, "CONNECT", &target, &[]), expected, "{row:?}");
        } else {
            assert_eq!(expected, "deny_address", "refused at load: {row:?}");
        }
        if row.class == "metadata" || row.expected == "allow" {
            assert_eq!(expected == "allow", row.expected == "allow", "{row:?}");
        }
    }
}

#[derive(Debug, Deserialize)]
struct RuleRow {
    id: String,
    rule: OneOrMany,
    host: String,
    port: u16,
    expected: String,
    expected_address: Option<String>,
    #[serde(default)]
    also_ok: Vec<String>,
    #[serde(default)]
    resolved: Vec<IpAddr>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

#[test]
fn rules() {
    let mut failures = Vec::new();
    for row in rows::<RuleRow>("rules.jsonl", 70) {
        let rules = match &row.rule {
            OneOrMany::One(rule) => vec![rule.clone()],
            OneOrMany::Many(rules) => rules.clone(),
        };
        let bare_v6 = row.host.matches(':').count() > 1 && row.host.parse::<IpAddr>().is_ok();
        let host = if bare_v6 { format!("[{}]", row.host) } else { row.host.clone() };
        let public = [PUBLIC.parse().unwrap()];
        let answer = if row.resolved.is_empty() { &public[..] } else { &row.resolved };
        let got = match policy_of(&rules) {
            Err(_) => "invalid_rule",
            Ok(policy) => match verdict(&policy, "CONNECT", &format!("{host}:{}", row.port), answer) {
                "allow" => "match",
                // What is not even a host matches nothing.
                "bad_request" if row.expected == "no_match" => "no_match",
                "bad_request" => "bad_request",
                _ => "no_match",
            },
        };
        if got != row.expected && !row.also_ok.iter().any(|also| also == got) {
            failures.push(format!("{row:?}: {got}"));
        }
        if row.expected_address.as_deref() == Some("deny") && got == "match" {
            failures.push(format!("{}: the address is let through", row.id));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
