//! Policies as text with questions and the answers that the contract gives: `data/*.cases`.
//!
//! A file is a list of cases. A case is a title (`=== …`), a main file, sections that begin with
//! `---`, and last `--- questions`. A comment behind a table's header labels the rule:
//!
//! ```text
//! === A title
//! [[policy.p.allow]] # web
//! domains = ["a.example"]
//! --- rules/NAME.toml
//! --- around
//! listener 127.0.0.1:3128 | local ADDRESS | nat64 PREFIX | anonymous POLICY
//! --- questions
//! CONNECT a.example:443 @ 93.184.215.14 => allow by web, tls required
//! GET http://b.example/ => deny domain_not_allowed
//! from 10.0.0.9: CONNECT c.example:443 @ 10.0.0.1 => would_deny domain_not_allowed
//! who 10.0.0.9 => box p source
//! cert build-7 from 10.0.0.9 => build-7 p cert
//! ```
//!
//! `@` gives the answer of DNS. A question without it must be decided before a look-up, one with
//! it must not. Without `by` no rule may be cited. Without a `[[sandbox]]` there is one for every
//! client, `box`, with the policy `p`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::net::IpAddr;
use std::sync::Arc;

use egret_policy::{Certificate, Client, Policy, Refusal, Registered, TlsRule};
use support::cases::{self, Case};
use support::{Outcome, World};

const SANDBOX: &str = "\n[[sandbox]]\nid = \"box\"\nsource = [\"0.0.0.0/0\", \"::/0\"]\npolicy = \"p\"\n";

#[test]
fn every_question_has_the_answer_of_the_contract() {
    let mut failures = Vec::new();
    let mut asked = 0;
    for path in cases::files("cases") {
        for mut case in cases::parse(&path, "questions") {
            if !case.text.contains("[[sandbox]]") {
                case.text += SANDBOX;
            }
            let policy = support::load(&case.text, &case.world);
            assert!(!case.lines.is_empty(), "no question under {:?}", case.title);
            for question in &case.lines {
                asked += 1;
                let (asked, expected) = question.split_once(" => ").expect(question);
                let got = answer(&case, &policy, asked);
                if got != expected {
                    failures
                        .push(format!("{}: {asked}\n  is       {got}\n  expected {expected}", case.title));
                }
            }
        }
    }
    assert!(asked > 150, "only {asked} questions were found");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The answer in the words of the data files.
fn answer(case: &Case, policy: &Arc<Policy>, question: &str) -> String {
    let told = |identified: Result<Client, Refusal>| match identified {
        Ok(client) => format!("{} {} {}", client.sandbox, client.policy, client.identity.as_str()),
        Err(refusal) => refusal.reason.to_string(),
    };
    if let Some(source) = question.strip_prefix("who ") {
        return told(policy.sandboxes.identify(source.parse().unwrap(), &Registered::default()));
    }
    if let Some((id, source)) = question.strip_prefix("cert ").and_then(|rest| rest.split_once(" from ")) {
        let sandbox = (id != "-").then(|| id.into());
        let chain = Vec::new();
        let read = Certificate { sandbox, chain, begins: 0, expires: 0, verified: 0, trust: [0; 32] };
        return told(policy.sandboxes.identify_certificate(source.parse().unwrap(), &Arc::new(read)));
    }
    let (source, question) = match question.strip_prefix("from ") {
        Some(rest) => rest.split_once(": ").expect(question),
        None => ("10.255.0.1", question),
    };
    let (request, addresses) = match question.split_once(" @ ") {
        Some((request, list)) => (request, Some(list)),
        None => (question, None),
    };
    let (method, target) = request.split_once(' ').expect(question);
    let request = match support::parse_request(method, target) {
        Ok(request) => request,
        Err(_) => return "bad_request".to_owned(),
    };
    let answers: Vec<IpAddr> =
        addresses.unwrap_or_default().split_ascii_whitespace().map(|a| a.parse().unwrap()).collect();
    let is_literal = request.0.host().name().is_none();
    let outcome = support::ask(policy, source.parse().unwrap(), request, &answers, &case.world.local);
    let looked_up = !matches!(outcome, Outcome::Refused(_));
    if !is_literal && looked_up != addresses.is_some() {
        return format!("wrong stage: {outcome:?}");
    }
    describe(case, &outcome)
}

fn describe(case: &Case, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Refused(refusal) | Outcome::RefusedAfterLookup(refusal) => {
            format!("deny {}", by_rule(case, refusal))
        }
        Outcome::Routed(route) => {
            let tls = match route.tls {
                TlsRule::Required => "tls required",
                TlsRule::Any => "tls any",
            };
            match &route.would_deny {
                Some(refusal) => format!("would_deny {}", by_rule(case, refusal)),
                None => format!("allow{}, {tls}", by(case, route.rule.as_deref())),
            }
        }
    }
}

fn by_rule(case: &Case, refusal: &Refusal) -> String {
    format!("{}{}", refusal.reason, by(case, refusal.rule.as_deref()))
}

/// The label of a cited rule.
fn by(case: &Case, cite: Option<&str>) -> String {
    let Some(cite) = cite else {
        return String::new();
    };
    let (file, line) = cite.rsplit_once(':').unwrap();
    let text = match cases::rule_set(file) {
        Some(name) => &case.world.rule_sets.iter().find(|(known, _)| known == name).unwrap().1,
        None => &case.text,
    };
    let header = text.lines().nth(line.parse::<usize>().unwrap() - 1).unwrap();
    let (table, label) = header.split_once("# ").expect(header);
    assert!(table.trim_end().ends_with("]]"), "{cite} is not a rule: {header}");
    format!(" by {label}")
}

#[test]
fn a_refusal_carries_the_words_of_its_rule_and_a_route_the_limits_of_its_policy() {
    let text = format!(
        "[[policy.p.deny]]\ndomains = [\"bad.example\"]\nreason = \"ask the platform team\"\n\
         [[policy.p.allow]]\ndomains = [\"good.example\"]\n\
         [policy.p.limits]\nconnections = 3\n{SANDBOX}"
    );
    let policy = support::load(&text, &World::default());
    assert_eq!(policy.generation, 7);
    let source: IpAddr = "10.0.0.1".parse().unwrap();
    let ask = |target: &str| {
        let request = support::parse_request("CONNECT", target).unwrap();
        support::ask(&policy, source, request, &["93.184.215.14".parse().unwrap()], &[])
    };
    let refused = ask("bad.example:443");
    assert_eq!(refused.refusal().unwrap().words.as_deref(), Some("ask the platform team"));
    let routed = ask("good.example:443");
    assert_eq!(routed.route().unwrap().limits.connections, Some(3));
    let pinned: Vec<_> = routed.route().unwrap().addresses().iter().map(|a| a.socket_addr()).collect();
    assert_eq!(pinned, ["93.184.215.14:443".parse().unwrap()]);
}

#[test]
fn a_client_can_be_named_by_its_id() {
    let text = "[policy.p]\n[[sandbox]]\nid = \"build-{ip}\"\nsource = [\"10.0.0.0/24\"]\npolicy = \"p\"\n";
    let world = World { anonymous: Some("p".to_owned()), ..World::default() };
    let policy = support::load(text, &world);
    let named = |id: &str| policy.sandboxes.by_id(id).map(|client| client.identity.as_str());
    assert_eq!(named("build-10.0.0.7"), Some("source"));
    assert_eq!(named("anonymous"), Some("listener"));
    assert_eq!(named("build-"), None);
    assert_eq!(named("build-a b"), None);
    assert_eq!(named("other"), None);
    assert_eq!(policy.sandboxes.ids().collect::<Vec<_>>(), ["build-{ip}"]);
}
