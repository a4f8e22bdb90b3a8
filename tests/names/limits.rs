//! How fast a sandbox may ask, and for how many names.

use std::time::Duration;

use serde_json::json;

use crate::asker::{Question, ask};
use crate::support::dns_message::A;
use crate::support::egret::Egret;
use crate::support::wait_for;
use crate::{TREE, building, config, egret, last, records, server, upstream};

#[test]
fn a_sandbox_may_ask_only_so_fast() {
    let dns = server(&[]);
    let mut egret = egret(&dns, &format!("{TREE}[policy.p.limits]\ndns_queries = \"1/h burst 5\"\n"));
    let question = Question::new("www.allowed.test", A);
    for _ in 0..3 {
        assert_eq!(ask(egret.names, &question).rcode, 0);
    }
    // Refused and malformed ones count too.
    ask(egret.names, &Question::new("other.test", A));
    ask(egret.names, &Question::new("other.test", 16));
    let refused = [question, Question::new("other.test", A), Question::new("www.allowed.test", 16)];
    for question in &refused {
        let answer = ask(egret.names, question);
        assert_eq!((answer.refusal(), answer.error.clone().unwrap().0), ((5, "rate_limited"), 18));
    }
    let metrics = egret.control("GET", "/metrics").body;
    let metrics = String::from_utf8_lossy(&metrics).into_owned();
    assert!(
        metrics.contains("egret_decisions_total{verdict=\"deny\",reason=\"rate_limited\"} 3"),
        "{metrics}"
    );
    // What was within the rate is recorded each, and the first beyond it; the others together.
    assert_eq!(records(&egret).len(), 6);
    let record = last(&egret);
    assert_eq!((&record["reason"], &record["policy"]), (&"rate_limited".into(), &"p".into()), "{record}");
    assert_eq!(record["detail"], "limit: dns_queries");
    let told = || egret.events("limit");
    wait_for("what was counted", Duration::from_secs(60), || !told().is_empty());
    let sum = told().remove(0);
    let said = ["sandbox", "limit", "reason", "count"].map(|key| sum[key].clone());
    assert_eq!(said, [json!("box"), json!("dns_queries"), json!("rate_limited"), json!(2)], "{sum}");
    assert!(sum["since"].is_string(), "{sum}");
    // Then it begins anew; a stop tells what was counted until then.
    for _ in 0..5 {
        ask(egret.names, &refused[0]);
    }
    assert_eq!(records(&egret).len(), 7);
    assert!(egret.stop().success());
    assert_eq!(egret.events("limit").iter().map(|sum| sum["count"].as_u64().unwrap()).sum::<u64>(), 6);
}

#[test]
fn a_restart_refills_no_rate() {
    let dns = server(&[]);
    let mut egret = egret(&dns, &format!("{TREE}[policy.p.limits]\ndns_queries = \"1/h burst 2\"\n"));
    let question = Question::new("www.allowed.test", A);
    assert_eq!(ask(egret.names, &question).rcode, 0);
    assert_eq!(ask(egret.names, &question).rcode, 0);
    egret.kill();
    egret.restart();
    assert_eq!(ask(egret.names, &question).refusal(), (5, "rate_limited"));
}

#[test]
fn a_restart_forgets_no_names() {
    let dns = server(&[]);
    let mut egret = egret(&dns, &format!("{TREE}[policy.p.limits]\ndns_names = \"3/h\"\n"));
    let ask =
        |egret: &Egret, n: usize| ask(egret.names, &Question::new(&format!("n{n}.allowed.test"), A)).rcode;
    assert_eq!([0, 1].map(|n| ask(&egret, n)), [0, 0]);
    egret.kill();
    egret.restart();
    assert_eq!([0, 2, 3].map(|n| ask(&egret, n)), [0, 0, 5]);
    assert!(egret.stop().success());
    egret.restart();
    assert_eq!([3, 2].map(|n| ask(&egret, n)), [5, 0]);
}

#[test]
fn names_below_a_wildcard_run_out() {
    let dns = server(&[]);
    let policy = format!(
        "{TREE}[[policy.p.allow]]\ndomains = [\"exact.allowed.test\", \"*.other.test\"]\n\
         [policy.p.limits]\ndns_names = \"30/h\"\n"
    );
    let egret = egret(&dns, &policy);
    let rcode = |name: &str| ask(egret.names, &Question::new(name, A)).rcode;
    // Labels that may carry data count ten.
    for label in ["q7w8e9r1t2y3u4i5o6p7", "4f9a1c77e02bd6385a11c0de"] {
        assert_eq!(rcode(&format!("{label}.allowed.test")), 0);
    }
    for n in 0..10 {
        assert_eq!(rcode(&format!("n{n}.deep.allowed.test")), 0);
    }
    let before = upstream(&dns).len();
    for name in ["n10.allowed.test", "zq7w8e9r1t2y3u4i5o6p.allowed.test"] {
        let answer = ask(egret.names, &Question::new(name, A));
        assert_eq!((answer.refusal(), answer.error.clone().unwrap().0), ((5, "quota_exceeded"), 18));
        assert_eq!(last(&egret)["detail"], "limit: dns_names");
    }
    assert_eq!(upstream(&dns).len(), before);
    // What was asked for, what a rule names, and other domains are not affected.
    assert_eq!(rcode("n3.deep.allowed.test"), 0);
    assert_eq!(rcode("exact.allowed.test"), 0);
    assert_eq!(rcode("n10.other.test"), 0);
}

#[test]
fn distinct_hosts_count_together_with_requests() {
    let dns = server(&[]);
    let egret = egret(&dns, &format!("{TREE}[policy.p.limits]\ndomains = \"2/h\"\n"));
    let ask = |name: &str| ask(egret.names, &Question::new(name, A));
    assert_eq!(ask("a.allowed.test").rcode, 0);
    assert_eq!(ask("b.allowed.test").rcode, 0);
    assert_eq!(ask("c.allowed.test").refusal(), (5, "quota_exceeded"));
    assert_eq!(ask("a.allowed.test").rcode, 0);
}

#[test]
fn the_ledger_shows_names_without_a_port() {
    let dns = server(&[]);
    let egret = building(&dns, TREE).start();
    for name in ["www.allowed.test", "www.allowed.test", "other.test"] {
        ask(egret.names, &Question::new(name, A));
    }
    ask(egret.names, &Question::new("bad name.test", A));
    let mut rows = Vec::new();
    wait_for("the ledger", Duration::from_secs(20), || {
        let body = egret.control("GET", "/v1/sandboxes/box/domains").body;
        let answer: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        rows = answer["domains"].as_array().cloned().unwrap_or_default();
        rows.iter().map(|row| row["requests"].as_u64().unwrap()).sum::<u64>() == 4
    });
    let shown: Vec<_> = rows
        .iter()
        .map(|row| (row["host"].as_str().unwrap(), row["port"].as_u64(), row["requests"].as_u64().unwrap()))
        .collect();
    assert_eq!(shown, [("(none)", None, 1), ("other.test", None, 1), ("www.allowed.test", None, 2)]);
    assert_eq!(records(&egret).len(), 4);
    // It loads anew as it stands.
    egret.configure(&config(&dns, TREE));
    assert_eq!(egret.reload().status, 200);
}
