//! Questions for names: the verdict is that of the best port, tried one by one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use egret_policy::{
    Action, Destination, DnsName, Entry, Host, Intent, NameVerdict, Policy, Reason, Registered, Resolution,
    Scheme, Verdict,
};
use proptest::prelude::*;
use proptest::sample::select;
use support::World;

/// How far a name gets: refused, only observed, allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Refused,
    Observed,
    Allowed,
}

fn level(refused: bool, observed: bool) -> Level {
    match (refused, observed) {
        (true, _) => Level::Refused,
        (false, true) => Level::Observed,
        (false, false) => Level::Allowed,
    }
}

fn load(rules: &str) -> Arc<Policy> {
    let sandbox = "[[sandbox]]\nid = \"box\"\nsource = [\"0.0.0.0/0\"]\npolicy = \"p\"\n";
    support::load(&format!("{sandbox}{rules}"), &World::default())
}

fn by_name(policy: &Arc<Policy>, name: &DnsName, answer: &Resolution) -> (Level, Option<Reason>) {
    let client = policy.sandboxes.identify([10, 0, 0, 9].into(), &Registered::default()).unwrap();
    match policy.decide_name(&client, name) {
        NameVerdict::Deny(refusal) => (Level::Refused, Some(refusal.reason)),
        NameVerdict::Allow(grant) => match grant.pin(answer, |_| false) {
            Ok(found) => {
                assert_eq!(found.addresses().collect::<Vec<_>>(), answer.addresses);
                (level(false, found.route.would_deny.is_some()), None)
            }
            Err(refusal) => (Level::Refused, Some(refusal.reason)),
        },
    }
}

fn by_port(policy: &Arc<Policy>, name: &DnsName, answer: &Resolution, port: u16) -> Level {
    let client = policy.sandboxes.identify([10, 0, 0, 9].into(), &Registered::default()).unwrap();
    let destination = Destination::new(Scheme::Tunnel, Host::Name(name.clone()), port);
    match policy.decide(&Intent { client, entry: Entry::Dns, destination, action: Action::Place }) {
        Verdict::Deny(_) => Level::Refused,
        Verdict::Allow(grant) => match grant.pin(answer, |_| false) {
            Ok(route) => level(false, route.would_deny.is_some()),
            Err(_) => Level::Refused,
        },
    }
}

fn name(text: &str) -> DnsName {
    DnsName::parse(text.as_bytes()).unwrap()
}

fn answer(addresses: &[&str]) -> Resolution {
    Resolution { addresses: addresses.iter().map(|text| text.parse::<IpAddr>().unwrap()).collect() }
}

#[test]
fn reasons_are_those_of_the_name() {
    let policy = load(
        "[[deny]]\ndomains = [\"**.bad.test\"]\n[policy.p]\n\
         [[policy.p.allow]]\ndomains = [\"**.a.test\"]\nports = [8443]\n\
         [[policy.p.allow]]\ndomains = [\"put.b.test\"]\nmethods = [\"PUT\"]\n\
         [[policy.p.deny]]\ndomains = [\"x.a.test\"]\nports = [\"8000-9000\"]\n\
         [[policy.p.deny]]\ndomains = [\"y.a.test\"]\nports = [443]\n",
    );
    let public = answer(&["93.184.215.14"]);
    for (asked, expected) in [
        ("a.test", (Level::Allowed, None)),
        ("put.b.test", (Level::Allowed, None)),
        ("y.a.test", (Level::Allowed, None)),
        ("x.a.test", (Level::Refused, Some(Reason::DomainDenied))),
        ("www.bad.test", (Level::Refused, Some(Reason::DomainDenied))),
        ("metadata.google.internal", (Level::Refused, Some(Reason::DomainDenied))),
        ("b.test", (Level::Refused, Some(Reason::DomainNotAllowed))),
    ] {
        assert_eq!(by_name(&policy, &name(asked), &public), expected, "{asked}");
    }
    let cases = [
        (&["10.0.0.1"][..], Reason::AddressNotAllowed),
        (&["169.254.169.254"], Reason::AddressForbidden),
        (&["93.184.215.14", "10.0.0.1"], Reason::MixedAnswer),
        (&[], Reason::DnsNotFound),
    ];
    for (addresses, reason) in cases {
        let found = by_name(&policy, &name("a.test"), &answer(addresses));
        assert_eq!(found, (Level::Refused, Some(reason)), "{addresses:?}");
    }
}

#[test]
fn the_rule_of_any_port_may_unlock_the_answer() {
    let policy = load(
        "[policy.p]\n[[policy.p.allow]]\ndomains = [\"a.test\"]\n\
         [[policy.p.allow]]\ndomains = [\"a.test\"]\naddresses = [\"10.0.0.0/8\"]\nports = [5432]\n",
    );
    assert_eq!(by_name(&policy, &name("a.test"), &answer(&["10.0.0.1"])), (Level::Allowed, None));
    let refused = by_name(&policy, &name("a.test"), &answer(&["10.0.0.1", "93.184.215.14"]));
    assert_eq!(refused, (Level::Refused, Some(Reason::MixedAnswer)));
}

#[test]
fn names_that_a_rule_names_are_told_apart() {
    let policy = load("[policy.p]\n[[policy.p.allow]]\ndomains = [\"a.test\", \"*.a.test\", \"b.a.test\"]\n");
    let client = policy.sandboxes.identify([10, 0, 0, 9].into(), &Registered::default()).unwrap();
    for (asked, named) in [("a.test", true), ("b.a.test", true), ("c.a.test", false)] {
        let NameVerdict::Allow(grant) = policy.decide_name(&client, &name(asked)) else { panic!("{asked}") };
        assert_eq!(grant.is_named(), named, "{asked}");
    }
}

/// A rule on some ports and addresses.
fn rule() -> impl Strategy<Value = String> {
    let domain = select(vec!["a.test", "**.test", "*.a.test", "b.a.test:9000", "**.a.test:*"]);
    let ports =
        select(vec!["", "443", "80, 443", "\"8000-8010\"", "1", "65535", "\"2-65534\"", "\"8005-9001\""]);
    let address = select(vec!["", "", "10.0.0.0/8", "93.184.215.0/24", "192.168.0.0/16"]);
    (select(vec!["allow", "allow", "deny"]), domain, ports, address, any::<bool>()).prop_map(
        |(kind, domain, ports, address, literal)| {
            let mut text = format!("[[policy.p.{kind}]]\n");
            if !(literal && kind == "deny" && !address.is_empty()) {
                text += &format!("domains = [\"{domain}\"]\n");
            }
            if !ports.is_empty() {
                text += &format!("ports = [{ports}]\n");
            }
            if !address.is_empty() {
                text += &format!("addresses = [\"{address}\"]\n");
            }
            text
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_name_gets_as_far_as_its_best_port(
        rules in prop::collection::vec(rule(), 0..5), observe: bool, open: bool,
        asked in select(vec!["a.test", "b.a.test", "c.test"]),
        addresses in prop::collection::vec(select(vec!["93.184.215.14", "10.0.0.1", "192.168.0.1", "169.254.169.254"]), 1..3),
    ) {
        let mode = if observe { "observe" } else { "enforce" };
        let default = if open { "allow" } else { "deny" };
        let text = format!("[policy.p]\nmode = \"{mode}\"\ndefault = \"{default}\"\n{}", rules.concat());
        let (_, problems) = support::read(&text, &World::default());
        prop_assume!(!problems.any_error());
        let policy = load(&text);
        let (name, answer) = (name(asked), answer(&addresses));
        let (found, _) = by_name(&policy, &name, &answer);
        // Every edge of every range above and its neighbours, and some ports that no rule knows.
        let edges = [1, 2, 80, 443, 8000, 8005, 8010, 9000, 9001, 65534, 65535_u16];
        let near = edges.into_iter().flat_map(|port| port.saturating_sub(1).max(1)..=port.saturating_add(1));
        let ports: BTreeSet<u16> = near.chain([22, 3000, 30_000]).collect();
        let best = ports.into_iter().map(|port| by_port(&policy, &name, &answer, port)).max().unwrap();
        prop_assert_eq!(found, best, "{} for {} at {:?}", text, asked, addresses);
    }
}
