//! `egret explain`.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::run::{CONFIG, egret, folder};

fn explain(args: &[&str]) -> super::run::Run {
    let dir = folder(&[("egret.toml", CONFIG)]);
    egret(dir.path(), &[&["explain", "--sandbox", "s"], args].concat())
}

#[test]
fn an_allowed_destination() {
    let run = explain(&["--address", "93.184.216.34", "https://a.example/x"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    assert_eq!(
        run.stdout,
        "allow: allowed\n  \
         target    a.example:443\n  \
         sandbox   s\n  \
         policy    p\n  \
         rule      egret.toml:7\n  \
         addresses 93.184.216.34\n"
    );
}

#[test]
fn a_denied_destination_with_its_near_misses() {
    let run = explain(&["a.example:8443"]);
    assert_eq!((run.code, run.stderr.as_str()), (3, ""), "{run:?}");
    assert_eq!(
        run.stdout,
        "deny: port_not_allowed (403)\n  \
         target    a.example:8443\n  \
         sandbox   s\n  \
         policy    p\n  \
         rule      egret.toml:7\n  \
         near miss egret.toml:7 allows ports 80, 443, not 8443\n  \
         default   policy p denies by default, enforced\n"
    );
}

#[test]
fn a_scheme_is_read_in_any_case() {
    for (url, place) in [
        ("HTTPS://a.example/x", "a.example:443"),
        ("Https://a.example:443?x", "a.example:443"),
        ("hTTp://a.example", "a.example:80"),
    ] {
        let run = explain(&["--address", "93.184.216.34", url]);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
        assert!(run.stdout.contains(&format!("\n  target    {place}\n")), "{run:?}");
    }
}

#[test]
fn a_rule_that_fits_is_no_near_miss() {
    let config = format!(
        "{CONFIG}[[policy.p.allow]]\ndomains = [\"m.example\"]\nmethods = [\"GET\"]\npaths = [\"/a/**\"]\n\
         [dns]\nhosts = {{ \"m.example\" = [] }}\n"
    );
    let dir = folder(&[("egret.toml", &config)]);
    let near = |args: &[&str]| {
        let run = egret(dir.path(), &[&["explain", "--sandbox", "s"], args].concat());
        assert_eq!((run.code, run.stderr.as_str()), (3, ""), "{run:?}");
        let headline = run.stdout.lines().next().unwrap_or_default().to_owned();
        let near: String = run.stdout.lines().filter(|line| line.contains("near miss")).collect();
        (headline, near.rsplit_once(".toml:").map_or(String::new(), |(_, why)| why[2..].trim().to_owned()))
    };
    let found = |headline: &str, why: &str| (headline.to_owned(), why.to_owned());
    assert_eq!(near(&["http://m.example/a/b"]), found("deny: dns_not_found (502)", ""));
    assert_eq!(near(&["http://m.example/b"]), found("deny: path_not_allowed (403)", "allows paths /a/**"));
    assert_eq!(
        near(&["--method", "PUT", "http://m.example/a/b"]),
        found("deny: method_not_allowed (403)", "allows methods GET, not PUT")
    );
    assert_eq!(
        near(&["https://m.example/a/b"]),
        found(
            "deny: method_not_allowed (403)",
            "is limited to methods or paths, which a tunnel does not show"
        )
    );
}

#[test]
fn the_same_as_json() {
    let run = explain(&["--json", "--address", "10.1.2.3", "https://a.example"]);
    assert_eq!((run.code, run.stderr.as_str()), (3, ""), "{run:?}");
    let answer: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(answer["verdict"], "deny");
    assert_eq!(answer["reason"], "address_not_allowed");
    assert_eq!(answer["status"], 403);
    assert_eq!(answer["policy"], "p");
    assert_eq!(answer["generation"], 1);
    assert_eq!((&answer["host"], &answer["port"]), (&json!("a.example"), &json!(443)));
    assert_eq!(answer["addresses"], json!(["10.1.2.3"]));
}

#[test]
fn a_bad_target_is_bad_input_and_says_why() {
    let run = explain(&["a.example"]);
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stdout.starts_with("deny: bad_request (400)\n"), "{run:?}");
    assert!(run.stdout.contains("\n  detail    "), "{run:?}");
}

#[test]
fn an_unknown_sandbox_is_bad_input() {
    let dir = folder(&[("egret.toml", CONFIG)]);
    let run = egret(dir.path(), &["explain", "--sandbox", "t", "a.example:443"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
    assert_eq!(
        run.stderr,
        "egret: there is no sandbox `t`; known: s; name one with --sandbox ID, a token's with --policy NAME as well\n"
    );
}

#[test]
fn an_address_in_an_id_is_one_of_the_sources() {
    let config = "[policy.p]\n[[sandbox]]\nid = \"x-{ip}\"\nsource = [\"172.30.0.0/24\", \"fd00:1:2:3:4::/80\"]\npolicy = \"p\"\n";
    let dir = folder(&[("egret.toml", config)]);
    for (id, code) in
        [("x-172.30.0.9", 3), ("x-10.0.0.9", 2), ("x-fd00-1-2-3--", 3), ("x-fd00-1-2-4--", 2), ("x-other", 3)]
    {
        let run = egret(dir.path(), &["explain", "--sandbox", id, "a.example:443"]);
        assert_eq!(run.code, code, "{id}: {run:?}");
    }
}

#[test]
fn a_sandbox_that_only_its_token_knows() {
    let dir = folder(&[("egret.toml", CONFIG)]);
    let ask = |policy| {
        let args = ["explain", "--sandbox", "t", "--policy", policy, "b.example:443"];
        egret(dir.path(), &args)
    };
    let run = ask("p");
    assert_eq!((run.code, run.stderr.as_str()), (3, ""), "{run:?}");
    assert!(run.stdout.contains("\n  sandbox   t\n  policy    p\n"), "{run:?}");
    let run = ask("q");
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
    assert_eq!(run.stderr, "egret: there is no policy `q`; write [policy.NAME] in the configuration\n");
}

#[test]
fn patterns_of_the_built_in_defaults() {
    let dir = folder(&[]);
    let args = ["explain", "--allow", "a.example", "--address", "93.184.216.34", "https://a.example/"];
    let run = egret(dir.path(), &args);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    let dir = folder(&[("egret.toml", CONFIG)]);
    let run = egret(dir.path(), &[&args[..], &["--config", "egret.toml"]].concat());
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
    assert!(run.stderr.contains("--allow goes with the built-in defaults"), "{run:?}");
}

#[test]
fn a_batch_has_one_answer_a_question() {
    let questions = "\n{\"sandbox\":\"s\",\"target\":\"a.example:443\",\"addresses\":[\"93.184.216.34\"]}\n\
                     not json\n\
                     {\"sandbox\":\"s\",\"target\":\"b.example:443\"}\n \t\n";
    let dir = folder(&[("egret.toml", CONFIG), ("questions", questions)]);
    let stdin = std::fs::File::open(dir.path().join("questions")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_egret"));
    let command = command.args(["explain", "--batch", "-"]).current_dir(dir.path());
    let output = command.stdin(Stdio::from(stdin)).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let answers: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), 3);
    assert_eq!(answers[0]["verdict"], "allow");
    assert!(answers[1]["error"].is_string());
    assert_eq!(answers[2]["reason"], "domain_not_allowed");
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("egret: line 3: "));
}
