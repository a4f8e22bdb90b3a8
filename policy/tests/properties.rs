//! Laws that hold for whatever is written and asked.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "support/model.rs"]
mod model;
mod support;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use egret_policy::{Class, Nat64Prefix, classify};
use model::{Level, Model, Question};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use support::{Outcome, World};

/// What the engine says, and by which line.
fn engine(text: &str, question: &Question) -> (Level, Option<String>, Outcome) {
    let policy = support::load(text, &World::default());
    let (method, target) = question.method_and_target();
    let request = support::parse_request(method, &target).expect(&target);
    let outcome = support::ask(&policy, IpAddr::from([10, 9, 9, 9]), request, &question.answer, &[]);
    let level = match outcome.route() {
        None => Level::Refused,
        Some(route) if route.would_deny.is_some() => Level::Observed,
        Some(_) => Level::Allowed,
    };
    let rule = outcome.route().and_then(|route| route.rule.as_deref()).map(str::to_owned);
    (level, rule, outcome)
}

fn level(model: &Model, question: &Question) -> Level {
    engine(&model.write().0, question).0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn decisions_equal_those_of_a_naive_reading(model in model::model(), question in model::question()) {
        let (text, lines) = model.write();
        let (level, rule, outcome) = engine(&text, &question);
        let (expected, by) = model.decide(&question);
        let by = by.map(|number| format!("egret.toml:{}", lines[number]));
        prop_assert_eq!((level, rule), (expected, by), "{}\n{:?}\n{:?}", text, question, outcome);
    }

    #[test]
    fn one_more_denial_never_opens_anything(
        model in model::model(), rule in model::rule(), operator in any::<bool>(), question in model::question(),
    ) {
        let mut more = model.clone();
        if operator { &mut more.operator } else { &mut more.deny }.push(rule);
        prop_assert!(level(&more, &question) <= level(&model, &question), "{}", more.write().0);
    }

    #[test]
    fn one_allow_rule_less_never_opens_anything(
        model in model::model(), which in any::<Index>(), question in model::question(),
    ) {
        prop_assume!(!model.allow.is_empty());
        let mut less = model.clone();
        less.allow.remove(which.index(model.allow.len()));
        prop_assert!(level(&less, &question) <= level(&model, &question), "{}", model.write().0);
    }

    #[test]
    fn a_route_holds_the_whole_answer_and_only_what_its_rule_may_reach(
        model in model::model(), question in model::question(),
    ) {
        let (text, lines) = model.write();
        let (_, rule, outcome) = engine(&text, &question);
        if let Some(route) = outcome.route() {
            let pinned: Vec<_> = route.addresses().iter().map(|a| a.socket_addr()).collect();
            let asked: Vec<_> = question.answer.iter().map(|a| (*a, question.port).into()).collect();
            prop_assert_eq!(&pinned, &asked);
            let number = rule.map(|cite| {
                let line = cite.strip_prefix("egret.toml:").unwrap().parse().unwrap();
                lines.iter().position(|l| *l == line).unwrap()
            });
            for address in pinned {
                match classify(address.ip(), &[]) {
                    Class::Public => {}
                    Class::Private(_) => {
                        let unlocked = number.is_some_and(|n| model.allow[n].holds(address.ip()));
                        prop_assert!(unlocked, "{address} by\n{text}");
                    }
                    Class::Forbidden(range) => prop_assert!(false, "{address}, {}, by\n{text}", range.name),
                }
            }
        }
    }

    #[test]
    fn both_spellings_of_a_name_are_one_rule(
        labels in prop::collection::vec(select(LABELS), 1..3), asked in prop::collection::vec(select(LABELS), 1..4),
        stars in select(vec!["", "*.", "**."]), table in select(vec!["allow", "deny"]),
    ) {
        let policy = |name: &str| {
            let rule = format!("[policy.p]\ndefault = \"allow\"\n[[policy.p.{table}]]\ndomains = \"{stars}{name}\"\n");
            let ports = if table == "allow" { "ports = [8443]\n" } else { "" };
            let sandbox = "[[sandbox]]\nid = \"box\"\nsource = \"0.0.0.0/0\"\npolicy = \"p\"\n";
            format!("{rule}{ports}{sandbox}")
        };
        let unicode = format!("{}.z.test", labels.join("."));
        let ascii = idna::domain_to_ascii(&unicode).unwrap();
        let host = idna::domain_to_ascii(&format!("{}.z.test", asked.join("."))).unwrap();
        for port in [443, 8443] {
            let question =
                Question { host: host.clone(), port, request: None, answer: vec![IpAddr::from([8, 8, 8, 8])] };
            let (by_unicode, by_ascii) = (engine(&policy(&unicode), &question), engine(&policy(&ascii), &question));
            prop_assert_eq!((by_unicode.0, by_unicode.1), (by_ascii.0, by_ascii.1));
            let covers = match stars {
                "" => host == ascii,
                "*." => host.ends_with(&format!(".{ascii}")),
                _ => host == ascii || host.ends_with(&format!(".{ascii}")),
            };
            let expected = if table == "allow" { port == 443 || covers } else { port == 443 && !covers };
            prop_assert_eq!(by_unicode.0 == Level::Allowed, expected, "{} for {}", unicode, host);
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,200}", control in any::<String>()) {
        support::read(&text, &World::default());
        support::read(&control, &World::default());
    }

    #[test]
    fn no_broken_file_makes_the_reader_panic(
        model in model::model(),
        edits in prop::collection::vec((any::<Index>(), select(PIECES), 0_usize..12), 1..6),
    ) {
        let mut text = format!("{}{SAMPLE}", model.write().0);
        for (at, piece, cut) in edits {
            let mut start = at.index(text.len());
            while !text.is_char_boundary(start) {
                start -= 1;
            }
            let mut end = (start + cut).min(text.len());
            while !text.is_char_boundary(end) {
                end += 1;
            }
            text.replace_range(start..end, piece);
        }
        let world = World { rule_sets: vec![("set".to_owned(), text.clone())], ..World::default() };
        let (policy, problems) = support::read(&text, &world);
        problems.iter().for_each(|problem| assert!(!problem.to_string().is_empty()));
        // Even what must not be used holds no surprise.
        if let Ok(request) = support::parse_request("GET", "http://a.z.test/a") {
            support::ask(&policy, IpAddr::from([10, 0, 0, 1]), request, &[IpAddr::from([8, 8, 8, 8])], &[]);
        }
    }

    #[test]
    fn a_nat64_address_is_what_it_embeds(v4 in v4(), prefix in any::<u64>(), length in select(LENGTHS)) {
        let well_known = u128::from(0x64_ff9b_u32) << 96 | u128::from(v4.to_bits());
        prop_assert_eq!(classify(v6(well_known), &[]), classify(IpAddr::V4(v4), &[]));
        // Any prefix in public space; bits 64 to 71 stay zero.
        let base = u128::from(prefix >> 3 | 1 << 61) << 64 & (u128::MAX << (128 - length));
        let net = ipnet::Ipv6Net::new(Ipv6Addr::from_bits(base), length).unwrap();
        let own = [Nat64Prefix::new(net).unwrap()];
        let address = embed(base, length, v4);
        prop_assert_eq!(classify(v6(address), &own), classify(IpAddr::V4(v4), &[]), "{}", v6(address));
    }

    #[test]
    fn other_forms_that_embed_are_forbidden_whatever_they_embed(v4 in v4(), low in any::<u64>(), own in any::<u16>()) {
        let bits = u128::from(v4.to_bits());
        let compatible = bits;
        let mut forms = vec![
            0xffff << 32 | bits,                                            // mapped
            0xffff << 48 | bits,                                            // translated
            0x2002 << 112 | bits << 80 | u128::from(low),                   // 6to4
            0x2001 << 112 | u128::from(low) << 32 | (!bits & 0xffff_ffff),  // Teredo
            u128::from(0x64_ff9b_u32) << 96 | 1 << 80 | u128::from(own) << 64 | bits, // local NAT64
        ];
        if compatible != 1 {
            forms.push(compatible);
        }
        for form in forms {
            prop_assert!(matches!(classify(v6(form), &[]), Class::Forbidden(_)), "{}", v6(form));
        }
    }

    #[test]
    fn isatap_is_forbidden_around_what_is_not_public(v4 in v4(), prefix in any::<u64>(), global in any::<bool>()) {
        let high = u128::from(prefix) << 64;
        let marker: u128 = if global { 0x0200_5efe } else { 0x5efe };
        let class = classify(v6(high | marker << 32 | u128::from(v4.to_bits())), &[]);
        if classify(IpAddr::V4(v4), &[]) == Class::Public {
            // Then it is what any other address under the prefix is.
            prop_assert_eq!(class, classify(v6(high | 0x1111_2222_3333_4444), &[]));
        } else {
            prop_assert!(matches!(class, Class::Forbidden(_)));
        }
    }
}

const LABELS: &[&str] = &["bücher", "straße", "münchen", "例え", "plain", "пример"];
const LENGTHS: &[u8] = &[32, 40, 48, 56, 64, 96];
/// Keys and tables that the models do not write.
const SAMPLE: &str = "[policy.q]\nrules = [\"set\"]\ndefault = \"allow\"\ndefault_tls = \"any\"\n\
    [policy.q.limits]\nrequests = \"50/s burst 200\"\nbytes = \"2GiB/day\"\ntunnel_idle = \"15m\"\n\
    [[policy.q.allow]]\ndomains = [\"bücher.example\"]\ntls = \"required\"\nreason = \"x\"\nports = [\"1-9\"]\n\
    [[sandbox]]\nid = \"b-{ip}\"\nsource = [\"10.0.0.0/8\", \"::/0\"]\npolicy = \"q\"\nauth = \"source\"\n";
/// What a slip of the hand, or malice, puts into a file.
const PIECES: &[&str] = &[
    "",
    "\"",
    "'''",
    "[",
    "]",
    "[[",
    "{",
    "}",
    "=",
    "\n",
    ",",
    "#",
    "*",
    "**.",
    ":",
    "/",
    "-",
    "0",
    "99999999999",
    "\u{0}",
    "ü",
    "\u{202e}",
    "xn--",
    "{ip}",
    "%",
    "\\u0000",
    "\\",
    "true",
    "1979-05-27",
    "é\u{301}",
    "::1",
    "/129",
];

fn v4() -> impl Strategy<Value = Ipv4Addr> {
    let special =
        ["0.0.0.0", "10.0.0.1", "127.0.0.1", "169.254.169.254", "168.63.129.16", "224.0.0.1", "8.8.8.8"];
    let special = select(special.map(|a| a.parse::<Ipv4Addr>().unwrap()).to_vec());
    prop_oneof![any::<u32>().prop_map(Ipv4Addr::from_bits), special]
}

fn v6(bits: u128) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from_bits(bits))
}

/// RFC 6052 section 2.2, octet by octet: the address follows the prefix and skips octet 8.
fn embed(base: u128, length: u8, v4: Ipv4Addr) -> u128 {
    let mut octets = base.to_be_bytes();
    let mut at = usize::from(length / 8);
    for octet in v4.octets() {
        if at == 8 {
            at += 1;
        }
        octets[at] = octet;
        at += 1;
    }
    u128::from_be_bytes(octets)
}
