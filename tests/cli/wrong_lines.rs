//! Wrong command lines: exit code 2, nothing on standard output, and what to type instead.

use super::run::{CONFIG, egret, folder};

/// The arguments, and what standard error says.
const WRONG: &[(&[&str], &str)] = &[
    (&[], "Usage: egret <COMMAND>"),
    (&["chekc"], "'check'"),
    (&["serve", "--alow", "a.example"], "'--allow'"),
    (&["serve", "--config", "egret.toml", "--allow", "b.example"], "write the rule into the file"),
    (&["check", "--config", "none.toml"], "none.toml can't be read"),
    (&["explain"], "<TARGET>"),
    (&["explain", "--address", "a", "a.example:443"], "--address <IP>"),
    (&["explain", "--batch", "-", "a.example:443"], "cannot be used with '[TARGET]'"),
    (&["explain", "--batch", "none.jsonl"], "none.jsonl can't be read"),
    (&["test"], "<FILE>..."),
    (&["test", "none.toml"], "none.toml can't be read"),
    (&["completions"], "<SHELL>"),
    (&["completions", "csh"], "[possible values: bash, elvish, fish, powershell, zsh]"),
    (&["man"], "--out <DIR>"),
    (&["schema", "rule"], "'rules'"),
    (&["ready", "--control", "localhost"], "--control <ADDR>"),
];

#[test]
fn wrong_lines_say_what_to_type() {
    let dir = folder(&[("egret.toml", CONFIG)]);
    for (args, said) in WRONG {
        let run = egret(dir.path(), args);
        assert_eq!(run.code, 2, "{args:?}: {run:?}");
        assert_eq!(run.stdout, "", "{args:?}");
        assert!(run.stderr.contains(said), "{args:?}: {said} is not in\n{}", run.stderr);
    }
}

/// A first try in an empty folder, where what comes before was left out; and what to do then.
const TOO_EARLY: &[(&[&str], i32, &str)] = &[
    (&["check"], 0, "there is no configuration here; the built-in defaults are valid"),
    (&["explain", "--sandbox", "build", "a.example:443"], 2, "name it with --config FILE"),
    (&["explain", "--batch", "notes.txt"], 2, r#"not a question like {"sandbox":"ID","#),
    (&["test", "cases.toml"], 2, "name it with --config FILE"),
    (&["check", "--config", "rules.toml"], 2, "rule sets lie in rules/ beside the configuration"),
    (&["check", "--config", "tls.toml"], 2, "make it with `egret cert server`"),
    (&["check", "--config", "tls.toml"], 2, "make it with `egret cert ca`"),
    (&["check", "--config", "names.toml"], 2, "write each name by itself"),
    (&["test", "--config", "names.toml", "cases.toml"], 2, "write each name by itself"),
    (&["explain", "--config", "nobody.toml", "a.example:443"], 2, "no sandbox `local`, nor any other"),
    (&["domains", "--config", "nobody.toml"], 1, "start `egret serve`"),
    (&["sandbox", "list", "--config", "nobody.toml"], 1, "start `egret serve`"),
    (&["token", "mint", "--sandbox", "a", "--policy", "p"], 2, "make one with `egret token keygen`"),
    (&["cert", "server", "--name", "a.example"], 2, "make an authority with `egret cert ca`"),
    (&["learn"], 2, "name the audit files"),
    (&["nft", "--user", "nobody"], 2, "`id -u NAME`"),
];

#[test]
fn what_comes_too_early_says_the_next_step() {
    let tls = "[listen]\ntls = \"127.0.0.1:1\"\ntls_certificate = \"a.crt\"\ntls_key = \"a.key\"\ntls_client_ca = \"ca.crt\"\n";
    let dir = folder(&[
        ("notes.txt", "what to ask\n"),
        ("cases.toml", "[[case]]\nsandbox = \"s\"\ntarget = \"a.example:443\"\nexpect = \"deny\"\n"),
        ("rules.toml", "[policy.p]\nrules = [\"github-read\"]\n"),
        ("tls.toml", tls),
        ("names.toml", "[policy.p]\n[[policy.p.allow]]\ndomains = [\"a.example, b.example\"]\n"),
        ("nobody.toml", "[listen]\ncontrol = \"127.0.0.1:1\"\n[state]\ndir = \"none\"\n"),
    ]);
    for (args, code, said) in TOO_EARLY {
        let run = egret(dir.path(), args);
        let told = format!("{}{}", run.stdout, run.stderr);
        assert_eq!(run.code, *code, "{args:?}: {run:?}");
        assert!(told.contains(said), "{args:?}: {said} is not in\n{told}");
        assert!(!told.contains("error: error"), "{args:?}: {told}");
    }
}

#[test]
fn rules_without_a_configuration_are_refused() {
    let dir = folder(&[]);
    let run = egret(dir.path(), &["check", "--rules", "rules"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
    assert_eq!(run.stderr, "egret: --rules needs a configuration file; add --config FILE\n");
}

#[test]
fn help_and_version_are_no_errors() {
    let dir = folder(&[]);
    let version = egret(dir.path(), &["--version"]);
    assert_eq!((version.code, version.stderr.as_str()), (0, ""), "{version:?}");
    assert_eq!(version.stdout, format!("egret {}\n", env!("CARGO_PKG_VERSION")));
    let help = egret(dir.path(), &["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (0, ""), "{help:?}");
}
