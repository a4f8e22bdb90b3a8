//! What is made of the command line and of the keys: completions, manual pages, schemas.

use std::fs;

use serde_json::Value;

use super::run::{egret, folder};

/// The commands, as the help lists them.
fn commands() -> Vec<String> {
    let help = egret(folder(&[]).path(), &["--help"]).stdout;
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names: Vec<_> = names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect();
    assert!(names.contains(&"serve".to_owned()), "{names:?}");
    names
}

#[test]
fn completions_name_every_command() {
    let dir = folder(&[]);
    let commands = commands();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = egret(dir.path(), &["completions", shell]);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{shell}");
        for command in &commands {
            assert!(run.stdout.contains(command.as_str()), "{command} is not completed in {shell}");
        }
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = folder(&[]);
    let run = egret(dir.path(), &["man", "--out", "man/man1"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    let page = |name: &str| fs::read_to_string(dir.path().join("man/man1").join(name)).unwrap();
    let main = page("egret.1");
    for command in commands() {
        assert!(main.contains(&format!("egret\\-{command}")), "{command} is not in egret.1");
        let own = page(&format!("egret-{command}.1"));
        assert!(own.contains(".SH SYNOPSIS") && own.contains("\\-\\-help"), "{command}: {own}");
    }
}

#[test]
fn a_folder_that_can_not_be_made_is_an_error() {
    let dir = folder(&[("man", "a file")]);
    let run = egret(dir.path(), &["man", "--out", "man/man1"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:?}");
    assert!(run.stderr.contains("can't be written to man/man1"), "{run:?}");
}

#[test]
fn schemas_are_of_the_named_dialect() {
    let dir = folder(&[]);
    for (args, key) in [
        (&["schema"][..], "listen"),
        (&["schema", "config"], "sandbox"),
        (&["schema", "rules"], "documentation"),
    ] {
        let run = egret(dir.path(), args);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
        let schema: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(schema["type"], "object");
        assert!(schema["properties"][key]["description"].is_string(), "{key}");
    }
}
