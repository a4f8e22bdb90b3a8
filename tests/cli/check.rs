//! `egret check`.

use serde_json::Value;

use super::run::{CONFIG, egret, folder};

const BROKEN: &str = r#"[listen]
prxy = "127.0.0.1:3128"
control = "localhost"

[[sandbox]]
id = "s"
source = ["10.0.0.1/8"]
policy = "q"

[policy.p]
mode = "enforced"
rules = ["set"]

[[policy.p.allow]]
domains = ["*.com"]
ports = [0]
"#;

const BROKEN_SET: &str = "[[allow]]\ndomain = [\"a.example\"]\n";

/// Each problem: where, and what is underlined there.
const PROBLEMS: [(&str, &str, usize); 9] = [
    ("egret.toml:2:1", "unknown key `prxy`", 4),
    ("egret.toml:3:11", "`localhost` is not an address and port", 11),
    ("egret.toml:7:11", "`10.0.0.1/8` has host bits set", 12),
    ("egret.toml:8:10", "there is no policy `q`", 3),
    ("egret.toml:11:8", "`mode` has an unknown value: `enforced`", 10),
    ("egret.toml:15:12", "`*.com` is a wildcard on the public suffix `com`", 7),
    ("egret.toml:16:10", "this is not a port or a range of ports", 1),
    ("rules/set.toml:1:1", "the rule names no destination, so it can never match", 9),
    ("rules/set.toml:2:1", "unknown key `domain`", 6),
];

#[test]
fn a_valid_configuration_is_said_to_be_valid() {
    let dir = folder(&[("egret.toml", CONFIG)]);
    let run = egret(dir.path(), &["check"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "the configuration is valid\n"), "{run:?}");
    assert_eq!(run.stderr, "");
}

#[test]
fn every_problem_of_every_file_is_shown_at_once_and_underlined() {
    let dir = folder(&[("egret.toml", BROKEN), ("rules/set.toml", BROKEN_SET)]);
    let run = egret(dir.path(), &["check"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
    for (place, message, underlined) in PROBLEMS {
        let shown = run.stderr.split("\n\n").find(|part| part.contains(&format!("error: {message}\n")));
        let shown = shown.unwrap_or_else(|| panic!("{message} is not in\n{}", run.stderr));
        assert!(shown.contains(&format!("--> {place}\n")), "{place}:\n{shown}");
        let carets = shown.matches('^').count();
        assert_eq!(carets, underlined, "{place}:\n{shown}");
    }
    let last = run.stderr.lines().last().unwrap();
    assert_eq!(last, format!("egret: {} errors in the configuration", PROBLEMS.len()));
}

#[test]
fn the_same_as_json() {
    let dir = folder(&[("egret.toml", BROKEN), ("rules/set.toml", BROKEN_SET)]);
    let run = egret(dir.path(), &["check", "--json"]);
    assert_eq!(run.code, 2, "{run:?}");
    let shown: Vec<Value> = serde_json::from_str(&run.stdout).unwrap();
    let places = shown.iter().map(|p| {
        let place = format!("{}:{}:{}", p["file"].as_str().unwrap(), p["line"], p["column"]);
        (place, p["message"].as_str().unwrap())
    });
    let wanted = PROBLEMS.map(|(place, message, _)| (place.to_owned(), message));
    assert_eq!(places.collect::<Vec<_>>(), wanted);
    assert!(shown.iter().all(|p| p["severity"] == "error"));
    assert_eq!(shown[0]["help"], "did you mean `proxy`?");
}

#[test]
fn a_warning_leaves_the_configuration_valid() {
    let denied = format!("{CONFIG}\n[[deny]]\ndomains = [\"**.a.example\"]\n");
    let dir = folder(&[("egret.toml", &denied)]);
    let run = egret(dir.path(), &["check"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "the configuration is valid\n"), "{run:?}");
    assert!(run.stderr.contains("warning: `a.example` never matches"), "{run:?}");
}

#[test]
fn files_of_secrets_that_are_missing_are_said_once_with_what_to_write() {
    let text = "[listen]\ncontrol_token_file = \"no-token\"\ncontrol = \"0.0.0.0:3129\"\n\
                [identity]\nregister = [\"10.0.0.0/8\"]\n\
                [upstream]\nproxy = \"http://192.0.2.1:3128\"\ncredentials_file = \"no-credentials\"\n";
    let dir = folder(&[("egret.toml", text)]);
    let run = egret(dir.path(), &["check"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
    for part in [
        "no-token can't be read",
        "write a random token of 16 characters or more into it",
        "the credentials no-credentials can't be used",
        "write one line into it, user:password",
        "egret: 2 errors in the configuration\n",
    ] {
        assert!(run.stderr.contains(part), "{part} is not in\n{}", run.stderr);
    }
}

#[test]
fn a_place_to_write_to_has_a_name() {
    for (table, key) in [("audit", "file"), ("state", "dir")] {
        let config = format!("{CONFIG}[{table}]\n{key} = \"\"\n");
        let dir = folder(&[("egret.toml", &config)]);
        let run = egret(dir.path(), &["check"]);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
        assert!(run.stderr.starts_with(&format!("error: `{key}` is empty\n  --> egret.toml:10:")), "{run:?}");
    }
}

#[test]
fn what_is_diverted_needs_a_listener_of_its_own() {
    for (text, part) in [
        (
            "proxy = \"127.0.0.1:3128\"\ntransparent = \"127.0.0.1:3128\"",
            "`proxy` and `transparent` are both 127.0.0.1:3128",
        ),
        ("transparent = \"127.0.0.1:3129\"", "`transparent` and `control` are both 127.0.0.1:3129"),
        ("transparent = \"3130\"", "`3130` is not an address and port"),
    ] {
        let dir = folder(&[("egret.toml", &format!("[listen]\n{text}\n"))]);
        let run = egret(dir.path(), &["check"]);
        assert!(run.code == 2 && run.stderr.contains(part), "{text}: {run:?}");
    }
}

#[test]
fn rules_need_a_listener_that_can_be_reached() {
    for (text, part) in [
        ("", "all of [listen] is on loopback"),
        (
            "proxy = \"10.0.0.1:3128\"\ntransparent = \"127.0.0.1:3130\"",
            "[listen] transparent is on loopback alone",
        ),
        ("proxy = \"10.0.0.1:0\"", "[listen] leaves a port to the system"),
    ] {
        let dir = folder(&[("egret.toml", &format!("[listen]\n{text}\n"))]);
        let run = egret(dir.path(), &["nft", "--interface", "br0"]);
        assert!(run.code == 2 && run.stderr.contains(part), "{text}: {run:?}");
    }
    // With the proxy alone TCP is not diverted, and the comment says so.
    let dir = folder(&[("egret.toml", "[listen]\nproxy = \"10.0.0.1:3128\"\n")]);
    let run = egret(dir.path(), &["nft", "--interface", "br0"]);
    assert!(run.code == 0 && run.stdout.contains("TCP is dropped, not diverted"), "{run:?}");
    assert!(!run.stdout.contains("redirect"), "{run:?}");
    // Questions for names come as datagrams too.
    let dir = folder(&[("egret.toml", "[listen]\ndns = \"10.0.0.1:53\"\n")]);
    let run = egret(dir.path(), &["nft", "--interface", "br0"]);
    for rule in ["ip daddr 10.0.0.1 tcp dport 53 accept", "ip daddr 10.0.0.1 udp dport 53 accept"] {
        assert!(run.stdout.contains(rule), "{run:?}");
    }
}
