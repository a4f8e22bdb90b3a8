//! The rule sets and the complete configurations that come with egret.

use std::fs;
use std::path::{Path, PathBuf};

use egret_policy::reader::{Table, read_document};
use egret_policy::{Problems, SourceFile};

use super::run::{egret, folder};

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The files of a folder of this repository with `.toml`: their names without it, and their texts.
fn files(folder: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(root(folder)).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.extension().is_some_and(|e| e == "toml"));
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    let mut files: Vec<_> = files.map(read).collect();
    files.sort();
    assert!(!files.is_empty(), "no files in {folder}");
    files
}

/// A configuration that uses these rule sets must load without a word.
fn assert_loads(sets: &[&str]) {
    let config = format!(
        "[[sandbox]]\nid = \"s\"\nsource = \"10.0.0.0/8\"\npolicy = \"p\"\n[policy.p]\nrules = {sets:?}\n"
    );
    let dir = folder(&[("egret.toml", &config)]);
    let rules = root("rules");
    let run =
        egret(dir.path(), &["check", "--json", "--config", "egret.toml", "--rules", rules.to_str().unwrap()]);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "[]\n", ""), "{sets:?}");
}

#[test]
fn each_loads_alone_and_all_load_together() {
    let files = files("rules");
    let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    for name in &names {
        assert_loads(&[name]);
    }
    assert_loads(&names);
}

#[test]
fn each_says_what_it_is_for_and_where_that_is_documented() {
    for (name, text) in files("rules") {
        let mut problems = Problems::default();
        let file = SourceFile::new(&name, text);
        read_document(&file, &mut problems, |mut root, problems| {
            let description = root.string("description", problems).expect(&name);
            assert!(description.value.len() > 10, "{name}: {}", description.value);
            let links = root.strings("documentation", problems).expect(&name);
            assert!(!links.is_empty(), "{name}");
            assert!(links.iter().all(|link| link.value.starts_with("https://")), "{name}");
        });
        assert_eq!(problems.to_string(), "");
    }
}

#[test]
fn each_names_exact_hosts_and_their_ports() {
    for (name, text) in files("rules") {
        let mut problems = Problems::default();
        let file = SourceFile::new(&name, text);
        read_document(&file, &mut problems, |mut root, problems| {
            let rules = root.tables("allow", problems);
            assert!(!rules.is_empty(), "{name}");
            for rule in rules {
                assert_exact(&name, rule, problems);
            }
        });
        assert_eq!(problems.to_string(), "");
    }
}

fn assert_exact(name: &str, mut rule: Table<'_, '_>, problems: &mut Problems) {
    assert!(!rule.has("shared_suffix") && !rule.has("addresses"), "{name}");
    assert!(rule.has("ports"), "{name}: a rule without ports");
    for domain in rule.strings("domains", problems).expect(name) {
        let host = &domain.value;
        assert!(!host.contains(['*', ':']), "{name}: {host} is not one host");
    }
}

#[test]
fn the_readme_lists_each() {
    let readme = fs::read_to_string(root("rules/README.md")).unwrap();
    for (name, _) in files("rules") {
        assert!(readme.contains(&format!("`{name}`")), "{name} is not in rules/README.md");
    }
}

#[test]
fn complete_configurations_load_without_a_word() {
    for (name, text) in files("examples") {
        let dir = folder(&[("egret.toml", &text)]);
        let run = egret(dir.path(), &["check", "--json"]);
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "[]\n", ""), "{name}");
    }
}

#[test]
fn the_research_policy_reads_the_web_but_reaches_neither_paste_sites_nor_private_networks() {
    let config = fs::read_to_string(root("examples/research.toml")).unwrap();
    let cases = [
        ("https://any.example/", "93.184.216.34", "allow", "allowed"),
        ("https://any.example/", "10.0.0.1", "deny", "address_not_allowed"),
        ("any.example:22", "93.184.216.34", "deny", "port_not_allowed"),
        ("https://pastebin.com/", "93.184.216.34", "deny", "domain_denied"),
        ("https://x.trycloudflare.com/", "93.184.216.34", "deny", "domain_denied"),
    ];
    let case = |(target, address, verdict, reason): (&str, &str, &str, &str)| {
        format!(
            "[[case]]\nsandbox = \"research-172.31.0.5\"\ntarget = {target:?}\n\
             addresses = {address:?}\nexpect = {verdict:?}\nreason = {reason:?}\n"
        )
    };
    let tests: String = cases.into_iter().map(case).collect();
    let dir = folder(&[("egret.toml", &config), ("t.toml", &tests)]);
    let run = egret(dir.path(), &["test", "t.toml"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "5 passed, 0 failed\n"), "{run:?}");
}
