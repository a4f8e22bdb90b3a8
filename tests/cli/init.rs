//! `egret init`, and that what it writes is right.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use super::run::{egret, folder};

#[test]
fn what_it_writes_is_valid_and_passes_its_tests() {
    let dir = folder(&[]);
    let run = egret(dir.path(), &["init", "--dir", "new/etc"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    let next: Vec<_> = run.stdout.lines().filter_map(|line| line.strip_prefix("  egret ")).collect();
    assert_eq!(
        next,
        [
            "check --config new/etc/egret.toml",
            "test --config new/etc/egret.toml new/etc/policy-tests.toml",
            "serve --config new/etc/egret.toml",
        ]
    );
    let check = egret(dir.path(), &next[0].split(' ').collect::<Vec<_>>());
    assert_eq!((check.code, check.stderr.as_str()), (0, ""), "{check:?}");
    let test = egret(dir.path(), &next[1].split(' ').collect::<Vec<_>>());
    assert_eq!((test.code, test.stderr.as_str()), (0, ""), "{test:?}");
    assert_eq!(test.stdout, "6 passed, 0 failed\n");
}

#[test]
fn it_overwrites_nothing_unless_told_to() {
    let dir = folder(&[("rules/example.toml", "mine\n")]);
    let read = || fs::read_to_string(dir.path().join("rules/example.toml")).unwrap();
    let run = egret(dir.path(), &["init"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
    assert!(run.stderr.contains("./rules/example.toml exists"), "{run:?}");
    assert!(run.stderr.contains("--force"), "{run:?}");
    assert_eq!(read(), "mine\n");
    assert!(!dir.path().join("egret.toml").exists(), "nothing of it is written");
    let run = egret(dir.path(), &["init", "--force"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    assert_ne!(read(), "mine\n");
}

#[test]
fn a_link_that_leads_nowhere_is_a_file_that_exists() {
    let dir = folder(&[]);
    symlink("elsewhere.toml", dir.path().join("egret.toml")).unwrap();
    let run = egret(dir.path(), &["init"]);
    assert_eq!(run.code, 2, "{run:?}");
    assert!(!dir.path().join("elsewhere.toml").exists());
}

#[test]
fn the_settings_that_are_commented_out_are_valid_too() {
    let dir = folder(&[]);
    assert_eq!(egret(dir.path(), &["init"]).code, 0);
    let file = dir.path().join("egret.toml");
    let written = fs::read_to_string(&file).unwrap();
    // Settings that name files which only the operator has stay as they are.
    let setting = |line: &str| {
        let key = line.strip_prefix('#').filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
        let of_files = |key: &str| key.ends_with("_file") || key.starts_with("tls_");
        key.filter(|rest| !of_files(rest.split(' ').next().unwrap())).map(str::to_owned)
    };
    let lines = written.lines().map(|line| setting(line).unwrap_or_else(|| line.to_owned()));
    let all = lines.collect::<Vec<_>>().join("\n");
    assert!(all.contains("\nproxy = ") && all.contains("\ntunnel_lifetime = "), "{all}");
    fs::write(&file, all).unwrap();
    let run = egret(dir.path(), &["check"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
}

#[test]
fn it_shows_every_setting() {
    let dir = folder(&[]);
    assert_eq!(egret(dir.path(), &["init"]).code, 0);
    let written = fs::read_to_string(dir.path().join("egret.toml")).unwrap();
    let shown: BTreeSet<_> = written
        .lines()
        .filter_map(|line| line.trim_start_matches(['#', ' ']).split_once(" = "))
        .map(|l| l.0)
        .collect();
    let schema: Value = serde_json::from_str(&egret(dir.path(), &["schema"]).stdout).unwrap();
    let tables = &schema["properties"];
    let policy = &tables["policy"]["additionalProperties"]["properties"];
    for table in
        ["listen", "dns", "audit", "state", "identity", "timeouts", "upstream"].map(|name| &tables[name])
    {
        assert_all_shown(table, &shown);
    }
    assert_all_shown(&policy["limits"], &shown);
    assert_all_shown(&tables["sandbox"]["items"], &shown);
}

fn assert_all_shown(table: &Value, shown: &BTreeSet<&str>) {
    for key in table["properties"].as_object().unwrap().keys() {
        assert!(shown.contains(key.as_str()), "`{key}` is not in the starter configuration");
    }
}
