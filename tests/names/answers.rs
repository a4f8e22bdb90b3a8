//! Names that the sandbox may reach.

use std::net::IpAddr;

use serde_json::json;

use crate::asker::{Connection, Question, ask};
use crate::support::dns_message::{A, AAAA, HTTPS};
use crate::support::dns_server::Answer;
use crate::{PUBLIC, TREE, at, building, egret, last, records, server, upstream};

#[test]
fn an_allowed_name_is_answered_and_recorded() {
    let both = Answer { aaaa: vec![("2606:2800:21f::1".parse().unwrap(), 300)], ..at("93.184.215.14", 300) };
    let dns = server(&[("www.allowed.test", both)]);
    let egret = egret(&dns, TREE);
    let answer = ask(egret.names, &Question::new("wWw.AlloweD.test", A));
    assert_eq!((answer.rcode, answer.truncated, &*answer.name), (0, false, "wWw.AlloweD.test"));
    assert_eq!(answer.addresses(), [IpAddr::from(PUBLIC)]);
    assert_eq!(answer.records[0].name, "wWw.AlloweD.test");
    assert_eq!(answer.error, None);
    let record = last(&egret);
    for (key, value) in [
        ("protocol", json!("dns")),
        ("sandbox", json!("box")),
        ("identity", json!("source")),
        ("host", json!("www.allowed.test")),
        ("qtype", json!("A")),
        ("verdict", json!("allow")),
        ("reason", json!("allowed")),
        ("status", json!(0)),
        ("policy", json!("p")),
        ("addresses", json!(["2606:2800:21f::1", "93.184.215.14"])),
    ] {
        assert_eq!(record[key], value, "{key} of {record}");
    }
    assert!(record["rule"].as_str().unwrap().contains("egret.toml:"), "{record}");
    assert!(record["dns_ms"].is_u64() && record.get("port").is_none() && record.get("dialed").is_none());
    let answer = ask(egret.names, &Question::new("www.allowed.test", AAAA));
    assert_eq!(answer.addresses(), ["2606:2800:21f::1".parse::<IpAddr>().unwrap()]);
    // One question for each family, whatever the client asks.
    assert_eq!(upstream(&dns).len(), 2);
    // A question is no connection: nothing is open, and nothing is closed.
    assert!(egret.events("close").is_empty());
}

#[test]
fn lives_are_clamped() {
    let dns = server(&[
        ("long.allowed.test", at("93.184.215.14", 86_400)),
        ("short.allowed.test", at("93.184.215.14", 0)),
        ("middle.allowed.test", at("93.184.215.14", 30)),
    ]);
    let egret = egret(&dns, &format!("{TREE}[[policy.p.allow]]\ndomains = [\"fixed.test\"]\n"));
    let ttl = |name: &str| ask(egret.names, &Question::new(name, A)).records[0].ttl;
    assert_eq!(ttl("long.allowed.test"), 60);
    assert_eq!(ttl("short.allowed.test"), 1);
    assert!((1..=30).contains(&ttl("middle.allowed.test")));
}

#[test]
fn what_dns_does_not_know_is_told_as_such() {
    let half_broken = Answer { aaaa_rcode: Some("SERVFAIL".to_owned()), ..Answer::address(PUBLIC.into()) };
    let dns = server(&[
        ("gone.allowed.test", Answer::rcode("NXDOMAIN")),
        ("empty.allowed.test", Answer::default()),
        ("broken.allowed.test", Answer::rcode("SERVFAIL")),
        ("silent.allowed.test", Answer::rcode("TIMEOUT")),
        ("half.allowed.test", half_broken),
    ]);
    let egret = egret(&dns, TREE);
    for (name, kind, rcode, extended, reason) in [
        ("gone.allowed.test", A, 3, None, "dns_not_found"),
        ("empty.allowed.test", A, 0, None, "dns_not_found"),
        ("broken.allowed.test", A, 2, Some(23), "dns_failed"),
        ("silent.allowed.test", A, 2, Some(22), "dns_timeout"),
        // That it has no address of this family is more than anybody said.
        ("half.allowed.test", AAAA, 2, Some(23), "dns_failed"),
        ("half.allowed.test", AAAA, 2, Some(23), "dns_failed"),
    ] {
        let answer = ask(egret.names, &Question::new(name, kind));
        assert_eq!((answer.rcode, answer.records.len()), (rcode, 0), "{name}");
        assert_eq!(answer.error, extended.map(|code| (code, reason.to_owned())), "{name}");
        let record = last(&egret);
        assert_eq!((record["verdict"].as_str(), record["reason"].as_str()), (Some("allow"), Some(reason)));
    }
    assert_eq!(ask(egret.names, &Question::new("half.allowed.test", A)).addresses(), [IpAddr::from(PUBLIC)]);
    // A name without an address of this family.
    let answer = ask(egret.names, &Question::new("www.allowed.test", AAAA));
    assert_eq!((answer.rcode, answer.records.len(), answer.error), (0, 0, None));
}

#[test]
fn long_answers_come_over_tcp() {
    let many = Answer { a: (0..100).map(|n| ([93, 184, 215, n].into(), 60)).collect(), ..Answer::default() };
    let dns = server(&[("many.allowed.test", many)]);
    let egret = egret(&dns, TREE);
    for (payload, most) in [(None, 512), (Some(100), 512), (Some(800), 800), (Some(4096), 1232)] {
        let answer = ask(egret.names, &Question::with("many.allowed.test", A, payload));
        assert!(answer.truncated && answer.records.is_empty() && answer.octets.len() <= most, "{answer:?}");
    }
    let mut connection = Connection::open(egret.names);
    let answer = connection.ask(&Question::new("many.allowed.test", A));
    assert_eq!((answer.truncated, answer.records.len()), (false, 100));
    // The connection goes on.
    assert_eq!(connection.ask(&Question::new("www.allowed.test", A)).addresses(), [IpAddr::from(PUBLIC)]);
    assert_eq!(records(&egret).len(), 6);
}

/// Parameters of an HTTPS record's data behind its priority and its root target, by key.
fn parameters(data: &[u8]) -> Vec<(u16, Vec<u8>)> {
    assert_eq!(data[2], 0, "another target: {data:?}");
    let (mut at, mut out) = (3, Vec::new());
    while at < data.len() {
        let word = |at: usize| u16::from_be_bytes([data[at], data[at + 1]]);
        let length = usize::from(word(at + 2));
        out.push((word(at), data[at + 4..at + 4 + length].to_vec()));
        at += 4 + length;
    }
    out
}

#[test]
fn services_come_without_keys_for_hidden_names() {
    let https = |text: serde_json::Value| serde_json::from_value(text).unwrap();
    let own = https(json!({
        "priority": 1, "target": ".", "alpn": ["h3", "h2"], "ipv4hint": ["93.184.215.14"], "ech": "yes"
    }));
    let aside = https(json!({ "priority": 2, "target": "elsewhere.test", "alpn": ["h2"] }));
    let alias = https(json!({ "priority": 0, "target": "elsewhere.test" }));
    let port = |port: u16| https(json!({ "priority": 3, "target": ".", "port": port }));
    let lying = https(json!({ "priority": 4, "target": ".", "ipv4hint": ["10.0.0.1"] }));
    let script =
        Answer { https: vec![own, aside, alias, port(80), port(8443), lying], ..at("93.184.215.14", 300) };
    let plain =
        Answer { https: vec![https(json!({ "priority": 1, "target": "." }))], ..at("93.184.215.14", 300) };
    let dns = server(&[("www.allowed.test", script), ("half.other.test", plain)]);
    let half = "[[policy.p.allow]]\ndomains = [\"half.other.test\"]\nports = [80]\n";
    let egret = egret(&dns, &format!("{TREE}{half}"));
    let answer = ask(egret.names, &Question::new("www.allowed.test", HTTPS));
    assert_eq!(answer.rcode, 0);
    let priorities: Vec<_> = answer.records.iter().map(|record| record.data[1]).collect();
    assert_eq!(priorities, [1, 3, 4]);
    let parameters: Vec<_> = answer.records.iter().map(|record| parameters(&record.data)).collect();
    assert_eq!(parameters[0], [(1, b"\x02h3\x02h2".to_vec()), (4, vec![93, 184, 215, 14])]);
    assert_eq!(parameters[1], [(3, 80_u16.to_be_bytes().to_vec())]);
    assert_eq!(parameters[2], []);
    assert!(!answer.octets.windows(4).any(|four| four == b"ECH!"));
    assert!(upstream(&dns).contains(&("www.allowed.test".to_owned(), "HTTPS".to_owned())));
    assert_eq!(last(&egret)["qtype"], "HTTPS");
    // Without a port it is 443, and a client would go there instead of where it may go.
    let answer = ask(egret.names, &Question::new("half.other.test", HTTPS));
    assert_eq!((answer.rcode, answer.records.len()), (0, 0));
    // A name without such records has none, and says so.
    let answer = ask(egret.names, &Question::new("plain.allowed.test", HTTPS));
    assert_eq!((answer.rcode, answer.records.len()), (0, 0));
}

#[test]
fn an_observing_policy_answers_and_says_what_it_would_do() {
    let dns = server(&[]);
    let egret = egret(&dns, "mode = \"observe\"\n");
    let answer = ask(egret.names, &Question::new("www.other.test", A));
    assert_eq!(answer.addresses(), [IpAddr::from(PUBLIC)]);
    let record = last(&egret);
    assert_eq!(
        (record["verdict"].as_str(), record["reason"].as_str()),
        (Some("would_deny"), Some("domain_not_allowed"))
    );
    assert_eq!(ask(egret.names, &Question::new("www.denied.test", A)).refusal(), (5, "domain_denied"));
}

#[test]
fn fixed_names_and_unlocked_addresses_are_answered_without_a_question() {
    let dns = server(&[("inside.test", at("10.1.2.3", 60))]);
    let policy = "[[policy.p.allow]]\ndomains = [\"localhost\", \"inside.test\"]\n\
                  addresses = [\"127.0.0.1\", \"::1\", \"10.0.0.0/8\"]\nports = [8443]\n";
    let egret = building(&dns, policy).start();
    let local = ask(egret.names, &Question::new("LocalHost", A));
    assert_eq!(local.addresses(), ["127.0.0.1".parse::<IpAddr>().unwrap()]);
    assert!(upstream(&dns).is_empty());
    let inside = ask(egret.names, &Question::new("inside.test", A));
    assert_eq!(inside.addresses(), ["10.1.2.3".parse::<IpAddr>().unwrap()]);
}
