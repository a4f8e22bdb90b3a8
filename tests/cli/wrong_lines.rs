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
