//! `egret test`.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::run::{CONFIG, Run, egret, folder};

const PASSING: &str = r#"
[[case]]
name = "the allowed name"
sandbox = "s"
target = "https://a.example/"
addresses = ["93.184.216.34"]
expect = "allow"
reason = "allowed"
rule = "egret.toml:7"
policy = "p"

[[case]]
sandbox = "s"
method = "GET"
target = "http://b.example/"
expect = "deny"
reason = "domain_not_allowed"
"#;

/// A folder with the cases in `t.toml`.
fn cases(text: &str) -> TempDir {
    folder(&[("egret.toml", CONFIG), ("t.toml", text)])
}

fn test(text: &str) -> Run {
    egret(cases(text).path(), &["test", "t.toml"])
}

#[test]
fn cases_that_hold_pass() {
    let run = test(PASSING);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    assert_eq!(run.stdout, "2 passed, 0 failed\n");
}

#[test]
fn a_failed_case_says_where_what_and_why() {
    let run = test(
        "[[case]]\nname = \"b\"\nsandbox = \"s\"\ntarget = \"b.example:443\"\nexpect = \"allow\"\n\
         [[case]]\nsandbox = \"s\"\ntarget = \"a.example:443\"\naddresses = [\"10.0.0.1\"]\n\
         expect = \"deny\"\nreason = \"mixed_answer\"\nrule = \"other.toml:1\"\npolicy = \"q\"\n",
    );
    assert_eq!((run.code, run.stderr.as_str()), (1, ""), "{run:?}");
    let lines: Vec<_> = run.stdout.lines().collect();
    assert_eq!(lines[0], "t.toml:1: b: expected allow, got deny: domain_not_allowed (403)");
    assert_eq!(lines[1], "  target    b.example:443");
    assert!(lines.contains(&"  default   policy p denies by default, enforced"), "{run:?}");
    let second = "t.toml:6: expected the reason mixed_answer, got address_not_allowed; \
                  expected the rule other.toml:1, got none; expected the policy q, got p";
    assert!(lines.contains(&second), "{run:?}");
    assert_eq!(lines.last(), Some(&"0 passed, 2 failed"));
}

#[test]
fn would_deny_is_a_verdict_of_its_own() {
    let config = format!("{CONFIG}\n[policy.p]\nmode = \"observe\"\n")
        .replace("[[policy.p.allow]]\ndomains = [\"a.example\"]\n", "");
    let case = "[[case]]\nsandbox = \"s\"\ntarget = \"b.example:443\"\naddresses = [\"93.184.216.34\"]\n\
                expect = \"would_deny\"\nreason = \"domain_not_allowed\"\n";
    let dir = folder(&[("egret.toml", &config), ("t.toml", case)]);
    let run = egret(dir.path(), &["test", "t.toml"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "1 passed, 0 failed\n"), "{run:?}");
}

#[test]
fn a_case_that_needs_dns_is_bad_input() {
    let text = "[[case]]\nsandbox = \"s\"\ntarget = \"a.example:443\"\nexpect = \"allow\"\n";
    let run = test(text);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
    assert!(run.stderr.contains("--> t.toml:1:1"), "{run:?}");
    assert!(run.stderr.contains("tests never ask DNS; add `addresses`"), "{run:?}");
}

#[test]
fn static_hosts_of_the_configuration_answer() {
    let config = format!("{CONFIG}\n[dns]\nhosts = {{ \"a.example\" = \"93.184.216.34\" }}\n");
    let text = "[[case]]\nsandbox = \"s\"\ntarget = \"a.example:443\"\nexpect = \"allow\"\n";
    let dir = folder(&[("egret.toml", &config), ("t.toml", text)]);
    let run = egret(dir.path(), &["test", "t.toml"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "1 passed, 0 failed\n"), "{run:?}");
}

#[test]
fn everything_wrong_in_all_files_is_said_at_once() {
    let first = "[[case]]\nsandbox = \"s\"\ntarget = \"b.example:443\"\nexpect = \"no\"\nexpct = 1\n";
    let second = "[[case]]\nsandbox = \"t\"\ntarget = \"b.example:443\"\nexpect = \"deny\"\n";
    let dir = folder(&[("egret.toml", CONFIG), ("1.toml", first), ("2.toml", second)]);
    let run = egret(dir.path(), &["test", "1.toml", "2.toml", "3.toml"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
    for part in [
        "--> 1.toml:4:10",
        "`expect` has an unknown value: `no`",
        "--> 1.toml:5:1",
        "did you mean `expect`?",
        "--> 2.toml:1:1",
        "there is no sandbox `t`; known: s",
        "3.toml can't be read",
    ] {
        assert!(run.stderr.contains(part), "{part} is not in\n{}", run.stderr);
    }
}

#[test]
fn a_configuration_that_does_not_load_runs_no_case() {
    let dir = folder(&[("egret.toml", "[lisen]\n"), ("t.toml", PASSING)]);
    let run = egret(dir.path(), &["test", "t.toml"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
    assert!(run.stderr.contains("did you mean `listen`?"), "{run:?}");
}

#[test]
fn results_as_json() {
    let failing = "[[case]]\nname = \"c\"\nsandbox = \"s\"\ntarget = \"c.example:443\"\nexpect = \"allow\"\n";
    let dir = folder(&[("egret.toml", CONFIG), ("t.toml", PASSING), ("u.toml", failing)]);
    let run = egret(dir.path(), &["test", "--json", "t.toml", "u.toml"]);
    assert_eq!((run.code, run.stderr.as_str()), (1, ""), "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&report["passed"], &report["failed"]), (&json!(2), &json!(1)));
    let last = &report["cases"][2];
    assert_eq!((&last["file"], &last["line"]), (&json!("u.toml"), &json!(1)));
    assert_eq!((&last["name"], &last["passed"]), (&json!("c"), &json!(false)));
    assert_eq!(last["answer"]["reason"], "domain_not_allowed");
    let differences = last["differences"].as_array().unwrap();
    assert_eq!(differences, &[json!("expected allow, got deny: domain_not_allowed (403)")]);
}
