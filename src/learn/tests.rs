//! What is proposed, what is not, and the laws that hold for all records.

use std::net::IpAddr;

use egret_policy::reader::read_document;
use egret_policy::{Destination, Policy, Problems, SourceFile, Surroundings};
use proptest::prelude::*;

use super::*;
use crate::ledger::{Sighting, Verdict};

/// A policy `p` that takes this, below a denial of the operator.
fn config(text: &str) -> Rules {
    let text = format!("[[deny]]\ndomains = [\"**.bad.example\"]\n[policy.p]\n{text}");
    let file = SourceFile::new("egret.toml", text);
    let mut problems = Problems::default();
    let around = Surroundings { generation: 1, ..Surroundings::default() };
    let mut fetch = |_: &str| Err("there is none".to_owned());
    let policy = read_document(&file, &mut problems, |mut root, problems| {
        Policy::read(&mut root, around, &mut fetch, problems)
    });
    assert!(!problems.any_error(), "{problems}");
    Rules::of(policy)
}

fn sighting(host: &str, port: u16, verdict: Verdict, reason: &str) -> Sighting {
    Sighting {
        ts: "2026-11-29T18:00:00.000000Z".to_owned(),
        sandbox: Some("s".to_owned()),
        policy: Some("p".to_owned()),
        host: Some(host.to_owned()),
        port: Some(port),
        verdict,
        reason: reason.to_owned(),
        rule: None,
        addresses: Vec::new(),
        redirect: false,
        name_alone: false,
    }
}

fn observed(host: &str) -> Sighting {
    sighting(host, 443, Verdict::WouldDeny, "domain_not_allowed")
}

fn tally(sightings: &[Sighting], rules: &Rules) -> Tally {
    let mut tally = Tally::default();
    for sighting in sightings {
        tally.add(sighting, |address| rules.reached(address)).unwrap();
    }
    tally
}

fn report(sightings: &[Sighting], rules: &Rules) -> Report {
    judge(&tally(sightings, rules), &Settings { config: rules, base: None, ports: &[], all: false })
}

fn against(sightings: &[Sighting], rules: &Rules, base: &Base) -> Report {
    judge(&tally(sightings, rules), &Settings { config: rules, base: Some(base), ports: &[], all: false })
}

fn base(text: &str) -> Base {
    Base::read(&SourceFile::new("rules/learned.toml", text.to_owned())).unwrap()
}

/// `domain ports` of each proposal.
fn proposed(proposals: &[Proposal]) -> Vec<String> {
    let ports = |p: &Proposal| p.ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
    proposals.iter().map(|p| format!("{} {}", p.domain, ports(p))).collect()
}

fn codes(report: &Report, host: &str) -> Vec<&'static str> {
    let found = report.not_proposed.iter().find(|one| one.host == host);
    let found = found.unwrap_or_else(|| panic!("{host} is not among {:?}", report.not_proposed));
    found.why.iter().map(|complaint| complaint.reason.code()).collect()
}

#[test]
fn what_was_wanted_is_proposed() {
    let rules = config("");
    let report = report(
        &[
            observed("observed.example"),
            sighting("refused.example", 80, Verdict::Deny, "domain_not_allowed"),
            sighting("port.example", 80, Verdict::Deny, "port_not_allowed"),
            sighting("default.example", 443, Verdict::Allow, "allowed"),
            sighting("down.example", 443, Verdict::Allow, "connect_refused"),
            sighting("slow.example", 443, Verdict::WouldDeny, "dns_timeout"),
            sighting("default.example", 80, Verdict::Allow, "allowed"),
        ],
        &rules,
    );
    assert_eq!(
        proposed(&report.proposed),
        [
            "default.example 80,443",
            "down.example 443",
            "observed.example 443",
            "port.example 80",
            "refused.example 80",
            "slow.example 443",
        ]
    );
    assert!(report.not_proposed.is_empty(), "{:?}", report.not_proposed);
}

#[test]
fn what_a_person_should_look_at_is_not_proposed() {
    let rules = config("");
    let mut private = observed("private.example");
    private.addresses = vec!["192.0.2.7".parse().unwrap(), "8.8.8.8".parse().unwrap()];
    let mut mapped = observed("nat64.example");
    mapped.addresses = vec!["64:ff9b::a00:1".parse().unwrap()];
    let mut redirect = sighting("next.example", 80, Verdict::Deny, "domain_not_allowed");
    redirect.redirect = true;
    let sightings = [
        observed("8.8.8.8"),
        observed("2001:db8::1"),
        private,
        mapped,
        redirect,
        observed("pastebin.com"),
        observed("x.ngrok-free.app"),
        observed("bit.ly"),
        observed("4f9a1c77e02bd6385a11c0de.example.com"),
        observed("db"),
        observed("a.localhost"),
        observed("x.bad.example"),
        observed("metadata.google.internal"),
        observed("not a host"),
        observed("xn--plain-.example"),
        sighting("odd.example", 8443, Verdict::WouldDeny, "domain_not_allowed"),
        sighting("denied.example", 443, Verdict::Deny, "domain_denied"),
        sighting("method.example", 80, Verdict::WouldDeny, "method_not_allowed"),
        sighting("gone.example", 443, Verdict::WouldDeny, "dns_not_found"),
        sighting("many.example", 443, Verdict::Deny, "quota_exceeded"),
        sighting("who.example", 443, Verdict::Deny, "identity_required"),
        sighting("stop.example", 443, Verdict::Deny, "shutting_down"),
        sighting("inside.example", 443, Verdict::Deny, "address_not_allowed"),
    ];
    let report = report(&sightings, &rules);
    assert_eq!(proposed(&report.proposed), [""; 0]);
    for (host, expected) in [
        ("8.8.8.8", "ip_literal"),
        ("2001:db8::1", "ip_literal"),
        ("private.example", "address"),
        ("nat64.example", "address"),
        ("next.example", "redirect_only"),
        ("pastebin.com", "paste"),
        ("x.ngrok-free.app", "tunnel"),
        ("bit.ly", "shortener"),
        ("4f9a1c77e02bd6385a11c0de.example.com", "random_label"),
        ("db", "local_name"),
        ("a.localhost", "local_name"),
        ("x.bad.example", "denied"),
        ("metadata.google.internal", "denied"),
        ("not a host", "bad_request"),
        ("xn--plain-.example", "no_rule"),
        ("odd.example", "odd_port"),
        ("denied.example", "denied"),
        ("method.example", "rule_limit"),
        ("gone.example", "not_found"),
        ("many.example", "limited"),
        ("who.example", "unidentified"),
        ("stop.example", "undecided"),
        ("inside.example", "address"),
    ] {
        assert_eq!(codes(&report, host), [expected], "{host}");
    }
    assert_eq!(report.not_proposed.len(), sightings.len());
}

#[test]
fn weak_objections_give_way_and_strong_ones_do_not() {
    let rules = config("");
    let twice = |reason: &str| [observed("a.example"), sighting("a.example", 443, Verdict::Deny, reason)];
    for reason in ["rate_limited", "shutting_down", "identity_required", "dns_not_found"] {
        assert_eq!(proposed(&report(&twice(reason), &rules).proposed), ["a.example 443"], "{reason}");
    }
    for reason in ["domain_denied", "address_forbidden", "mixed_answer", "path_not_allowed"] {
        assert!(report(&twice(reason), &rules).proposed.is_empty(), "{reason}");
    }
}

#[test]
fn ports_that_the_operator_names_are_not_odd() {
    let rules = config("");
    let tally = tally(&[sighting("a.example", 5000, Verdict::WouldDeny, "domain_not_allowed")], &rules);
    let report = judge(&tally, &Settings { config: &rules, base: None, ports: &[5000], all: false });
    assert_eq!(proposed(&report.proposed), ["a.example 5000"]);
    // A rule that allows it names it too, where what is allowed already is asked for.
    let rules = config("[[policy.p.allow]]\ndomains = [\"a.example\"]\nports = [5000]\n");
    let seen = ["a.example", "b.example"].map(|host| sighting(host, 5000, Verdict::Allow, "allowed"));
    let report =
        judge(&self::tally(&seen, &rules), &Settings { config: &rules, base: None, ports: &[], all: true });
    assert_eq!(proposed(&report.proposed), ["a.example 5000"]);
    assert_eq!(codes(&report, "b.example"), ["odd_port"]);
}

#[test]
fn wildcards_need_three_siblings_and_a_suffix_of_one_owner() {
    let rules = config("");
    let three = |suffix: &str| ["a", "b", "c"].map(|label| observed(&format!("{label}.{suffix}")));
    for suffix in ["example.com", "x.example.co.uk", "user.github.io", "pkgs.internal"] {
        let report = report(&three(suffix), &rules);
        assert_eq!(proposed(&report.proposed), [format!("*.{suffix} 443")], "{suffix}");
        assert_eq!(report.proposed[0].stands_for.len(), 3);
        assert_eq!(report.proposed[0].summary.requests, 3);
    }
    for suffix in [
        "github.io",
        "amazonaws.com",
        "s3.amazonaws.com",
        "cloudfront.net",
        "com",
        "co.uk",
        "kobe.jp",
        "internal",
    ] {
        let report = report(&three(suffix), &rules);
        assert!(report.proposed.iter().all(|p| !p.domain.starts_with('*')), "{suffix}: {report:?}");
        assert_eq!(report.proposed.len(), 3, "{suffix}");
    }
    let two = &three("example.com")[..2];
    assert_eq!(proposed(&report(two, &rules).proposed), ["a.example.com 443", "b.example.com 443"]);
}

#[test]
fn a_wildcard_covers_nothing_that_is_not_proposed_or_limited_by_a_rule() {
    let limited = "[[policy.p.allow]]\ndomains = [\"api.example.com\"]\nmethods = [\"GET\"]\n";
    let three = ["a.example.com", "b.example.com", "c.example.com"].map(observed);
    let wildcards = |rules: &Rules, also: Sighting| {
        let sightings: Vec<_> = three.iter().cloned().chain([also]).collect();
        let report = report(&sightings, rules);
        report.proposed.iter().filter(|p| p.domain.starts_with('*')).count()
    };
    let fine = sighting("ok.example.com", 443, Verdict::Allow, "allowed");
    assert_eq!(wildcards(&config(""), fine), 1);
    let odd = sighting("odd.example.com", 22, Verdict::WouldDeny, "domain_not_allowed");
    assert_eq!(wildcards(&config(""), odd), 1);
    let denied = sighting("d.example.com", 443, Verdict::Deny, "domain_denied");
    assert_eq!(wildcards(&config(""), denied), 0);
    let by_rule = sighting("api.example.com", 443, Verdict::Allow, "allowed");
    assert_eq!(wildcards(&config(limited), by_rule), 0);
}

#[test]
fn what_a_rule_allows_already_is_told_and_not_proposed() {
    let rules = config("[[policy.p.allow]]\ndomains = [\"git.example\"]\n");
    let sightings = [sighting("git.example", 443, Verdict::Allow, "allowed"), observed("new.example")];
    let found = report(&sightings, &rules);
    assert_eq!(proposed(&found.proposed), ["new.example 443"]);
    assert_eq!(
        (found.allowed[0].host.as_str(), found.allowed[0].rule.as_str()),
        ("git.example", "egret.toml:4")
    );
    let all = Settings { config: &rules, base: None, ports: &[], all: true };
    let found = judge(&tally(&sightings, &rules), &all);
    assert_eq!(proposed(&found.proposed), ["git.example 443", "new.example 443"]);
    // What another policy saw, that one may not allow.
    let mut other = sightings[0].clone();
    other.policy = Some("q".to_owned());
    assert_eq!(proposed(&report(&[sightings[0].clone(), other], &rules).proposed), ["git.example 443"]);
}

#[test]
fn data_in_labels_below_a_wildcard_is_told() {
    let rules = config("[[policy.p.allow]]\ndomains = [\"*.example.com\"]\n");
    let random = "q7w8e9r1t2y3u4i5o6p7.example.com";
    let sightings = [sighting(random, 443, Verdict::Allow, "allowed")];
    for found in [
        report(&sightings, &rules),
        against(&sightings, &config(""), &base("[[allow]]\ndomains = [\"*.example.com\"]\n")),
    ] {
        let doubts: Vec<_> = found.allowed[0].doubts.iter().map(|doubt| doubt.reason).collect();
        assert_eq!(doubts, [Objection::RandomLabel]);
        assert!(found.allowed[0].to_line().contains(" although: a label looks random"));
    }
}

#[test]
fn a_difference_has_what_is_new_and_what_nobody_used() {
    let base = base(
        "[[allow]]\ndomains = [\"a.example\", \"old.example:*\", \"*.cdn.example\"]\nports = [443]\n\n[[allow]]\naddresses = [\"203.0.113.0/24\"]\n\n[[allow]]\ndomains = [\"by-hand.example:5000\"]\n",
    );
    let sightings = [
        observed("a.example"),
        sighting("a.example", 80, Verdict::Deny, "port_not_allowed"),
        observed("x.cdn.example"),
        sighting("by-hand.example", 5000, Verdict::Allow, "allowed"),
    ];
    let found = against(&sightings, &config(""), &base);
    assert_eq!(proposed(found.new.as_deref().unwrap()), ["a.example 80"]);
    let unused: Vec<_> =
        found.unused.iter().flatten().map(|u| format!("{} {} {}", u.entry, u.ports, u.rule)).collect();
    assert_eq!(
        unused,
        ["old.example:* * rules/learned.toml:1", "203.0.113.0/24 80, 443 rules/learned.toml:5"]
    );
    let text = found.to_difference();
    assert!(
        text.starts_with(
            "+ a.example  ports 80  # 1 request by s, 2026-11-29T18:00:00Z\n- old.example:*  ports *"
        ),
        "{text}"
    );
    // Whoever wrote the odd port there has looked.
    assert!(found.not_proposed.is_empty(), "{:?}", found.not_proposed);
}

#[test]
fn no_text_from_outside_ends_a_line() {
    let mut evil = observed("x\n[[allow]]\ndomains = [\"evil.example\"]");
    evil.sandbox = Some("s\n[[allow]]".to_owned());
    evil.reason = "bad_request".to_owned();
    evil.rule = Some("r\nx".to_owned());
    let mut fine = observed("a.example");
    fine.sandbox.clone_from(&evil.sandbox);
    fine.ts = "2026-11-29T18:00:0\n.000000Z".to_owned();
    let rules = config("");
    let text = report(&[evil, fine], &rules).to_rule_set();
    let code: Vec<_> = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    assert_eq!(code, ["[[allow]]", "domains = [\"a.example\"]", "ports = [443]"], "{text}");
}

#[test]
fn objections_have_codes_of_their_own_and_are_documented() {
    let documented = include_str!("../../docs/learn.md");
    for objection in Objection::ALL {
        assert!(documented.contains(&format!("| `{}` |", objection.code())), "{}", objection.code());
    }
    let mut codes: Vec<_> = Objection::ALL.iter().map(|objection| objection.code()).collect();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), Objection::ALL.len());
}

#[test]
fn too_many_destinations_are_an_error() {
    let mut tally = Tally::default();
    let add = |tally: &mut Tally, number: usize| {
        tally.add(&observed(&format!("h{number}.example")), |address| address)
    };
    for number in 0..100_000 {
        add(&mut tally, number).unwrap();
    }
    assert_eq!(add(&mut tally, 100_000), Err(Full));
    assert_eq!(add(&mut tally, 5), Ok(()));
}

/// A record of a kind that occurs, or of one that somebody made up.
fn any_sighting() -> impl Strategy<Value = Sighting> {
    let host = prop_oneof![
        8 => "[a-e]\\.(x\\.|y\\.)?(one|two)\\.(com|co\\.uk|example|github\\.io)",
        2 => "[a-d]\\.(github\\.io|cloudfront\\.net|s3\\.amazonaws\\.com|com|kobe\\.jp)",
        2 => prop::sample::select(vec![
            "pastebin.com", "8.8.8.8", "::1", "db", "git.example", "api.one.com", "x.bad.example",
            "q7w8e9r1t2y3u4i5o6p7.one.com", "metadata.google.internal", "xn--plain-.one.com", "bad host", "",
        ]).prop_map(str::to_owned),
    ];
    let said = prop::sample::select(vec![
        (Verdict::WouldDeny, "domain_not_allowed"),
        (Verdict::WouldDeny, "domain_not_allowed"),
        (Verdict::Deny, "domain_not_allowed"),
        (Verdict::Deny, "port_not_allowed"),
        (Verdict::Allow, "allowed"),
        (Verdict::Allow, "dns_not_found"),
        (Verdict::WouldDeny, "method_not_allowed"),
        (Verdict::Deny, "domain_denied"),
        (Verdict::Deny, "address_not_allowed"),
        (Verdict::Deny, "rate_limited"),
        (Verdict::Deny, "bad_request"),
    ]);
    let address = prop::sample::select(vec![None, None, None, Some("8.8.4.4"), Some("10.0.0.1")]);
    let port = prop::sample::select(vec![443_u16, 443, 443, 80, 8443]);
    let policy = prop::sample::select(vec![Some("p"), Some("p"), Some("gone"), None]);
    (host, port, said, address, policy, 0_u32..60, any::<bool>()).prop_map(
        |(host, port, (verdict, reason), address, policy, second, redirect)| {
            let mut sighting = sighting(&host, port, verdict, reason);
            sighting.addresses = address.map(|text| text.parse::<IpAddr>().unwrap()).into_iter().collect();
            sighting.policy = policy.map(str::to_owned);
            sighting.ts = format!("2026-11-29T18:00:{second:02}.000000Z");
            sighting.redirect = redirect && reason == "domain_not_allowed";
            if redirect && second % 7 == 0 {
                (sighting.name_alone, sighting.port) = (true, None);
            }
            sighting
        },
    )
}

#[test]
fn a_question_for_a_name_is_no_connection() {
    let rules = config("mode = \"observe\"\n");
    let question = |host: &str, verdict, reason: &str| Sighting {
        port: None,
        name_alone: true,
        ..sighting(host, 1, verdict, reason)
    };
    let report = report(
        &[
            question("asked.example", Verdict::WouldDeny, "domain_not_allowed"),
            question("asked.example", Verdict::Allow, "allowed"),
            question("used.example", Verdict::WouldDeny, "domain_not_allowed"),
            observed("used.example"),
            question("bad name", Verdict::Deny, "bad_request"),
        ],
        &rules,
    );
    assert_eq!(proposed(&report.proposed), ["used.example 443"]);
    let refused: Vec<_> = report
        .not_proposed
        .iter()
        .map(|not| (not.host.as_str(), not.port, not.why[0].reason.code()))
        .collect();
    assert_eq!(refused, [("asked.example", None, "name_only"), ("bad name", None, "bad_request")]);
}

fn place(host: &str, port: u16) -> Destination {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    Destination::parse_authority(format!("{host}:{port}").as_bytes()).unwrap()
}

const OWN: &str = "[[policy.p.allow]]\ndomains = [\"git.example\"]\n[[policy.p.allow]]\ndomains = [\"api.one.com\"]\nmethods = [\"GET\"]\n";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_proposed_passes_and_nothing_else_does(sightings in prop::collection::vec(any_sighting(), 0..40)) {
        let config = config(OWN);
        let report = report(&sightings, &config);
        let text = report.to_rule_set();
        let learned = Rules::read(&SourceFile::new("learned", text.clone()));
        prop_assert!(learned.is_ok(), "{learned:?}\n{text}");
        let learned = learned.unwrap();
        let passes = |place: &Destination| {
            learned.denial_alone(place).is_none() && !learned.accepting_alone(place).is_empty()
        };
        let is_told = |host: &str, port: Option<u16>| report.not_proposed.iter().any(|n| n.host == host && n.port == port);
        let is_allowed = |host: &str, port: u16| report.allowed.iter().any(|a| a.host == host && a.port == port);
        for sighting in &sightings {
            let host = sighting.host.as_deref().unwrap();
            let Some(port) = sighting.port else {
                // A question for a name: it proposes nothing by itself.
                continue;
            };
            if is_told(host, Some(port)) {
                let valid = !host.contains(' ') && !host.is_empty();
                prop_assert!(!valid || !passes(&place(host, port)), "{host}:{port} passes\n{text}");
            } else if !is_allowed(host, port) {
                prop_assert!(passes(&place(host, port)), "{host}:{port} does not pass\n{text}");
            }
        }
        for proposal in &report.proposed {
            if let Some(suffix) = proposal.domain.strip_prefix("*.") {
                prop_assert!(proposal.stands_for.len() >= 3);
                let strange = ["com", "co.uk", "github.io", "cloudfront.net", "s3.amazonaws.com", "kobe.jp", "example"];
                prop_assert!(!strange.contains(&suffix), "{suffix}");
            }
        }
    }

    #[test]
    fn the_order_of_records_makes_no_difference(
        (sightings, shuffled) in prop::collection::vec(any_sighting(), 0..40)
            .prop_flat_map(|list| (Just(list.clone()), Just(list).prop_shuffle())),
    ) {
        let config = config(OWN);
        prop_assert_eq!(report(&sightings, &config), report(&shuffled, &config));
    }

    #[test]
    fn what_was_added_is_not_new_again(
        before in prop::collection::vec(any_sighting(), 0..20),
        after in prop::collection::vec(any_sighting(), 0..20),
    ) {
        let config = config(OWN);
        let written = report(&before, &config).to_rule_set();
        let present = base(&written);
        let found = against(&before, &config, &present);
        prop_assert_eq!(found.to_difference(), "", "{}", written);
        prop_assert_eq!(found.to_addition(&written), "");
        let found = against(&after, &config, &present);
        let text = format!("{written}{}", found.to_addition(&written));
        let more = base(&text);
        let again = against(&after, &config, &more);
        prop_assert!(again.new.as_deref().unwrap().is_empty(), "{}", text);
        prop_assert_eq!(again.to_addition(&text), "");
    }
}
