//! The table of keys against the loader that it describes.

use std::collections::BTreeSet;
use std::fs;

use super::*;
use crate::config::{self, ConfigSource};

/// A key that no table has, and that is near to none.
const NO_KEY: &str = "qqqqqqqqqqqq";

/// A table of the schema: its header line and its keys.
type Place = (String, &'static [Key]);

/// All tables in and below one with this header; the root has none.
fn places(header: &str, keys: &'static [Key]) -> Vec<Place> {
    let inside = |name: &str| match header.trim_matches(['[', ']']) {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    let mut out = vec![(header.to_owned(), keys)];
    for key in keys {
        let name = inside(key.name);
        match key.kind {
            Kind::Table(keys) => out.extend(places(&format!("[{name}]"), keys)),
            Kind::Tables(keys) => out.extend(places(&format!("[[{name}]]"), keys)),
            Kind::Named(keys) => out.extend(places(&format!("[{name}.any]"), keys)),
            _ => {}
        }
    }
    out
}

/// What the loader says to a file; a rule set gets a configuration that uses it.
fn problems(described: Described, text: &str) -> Vec<(String, String)> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("egret.toml");
    match described {
        Described::Config => fs::write(&file, text).unwrap(),
        Described::Rules => {
            fs::write(&file, "[policy.p]\nrules = [\"set\"]\n").unwrap();
            fs::create_dir(dir.path().join("rules")).unwrap();
            fs::write(dir.path().join("rules/set.toml"), text).unwrap();
        }
    }
    match config::load(&ConfigSource::File { path: file, rules: None }, 1, None) {
        Ok(loaded) => panic!("{text}\nloads: {loaded:?}"),
        Err(problems) => {
            problems.iter().map(|p| (p.message.clone(), p.help.clone().unwrap_or_default())).collect()
        }
    }
}

fn all_places() -> Vec<(Described, Place)> {
    let config = places("", CONFIGURATION).into_iter().map(|place| (Described::Config, place));
    let rules = places("", RULE_SET).into_iter().map(|place| (Described::Rules, place));
    config.chain(rules).collect()
}

#[test]
fn the_loader_knows_every_key_of_the_schema() {
    for (described, (header, keys)) in all_places() {
        for key in keys {
            // No key takes a date.
            let text = format!("{header}\n{} = 1979-05-27\n", key.name);
            let wrong_type = format!("`{}` has the wrong type", key.name);
            let said = problems(described, &text);
            assert!(said.iter().any(|(message, _)| message.starts_with(&wrong_type)), "{text}{said:?}");
        }
    }
}

#[test]
fn the_schema_has_every_key_that_the_loader_knows() {
    for (described, (header, keys)) in all_places() {
        let text = format!("{header}\n{NO_KEY} = 1\n");
        let said = problems(described, &text);
        let help = said.iter().find(|(message, _)| message.contains(NO_KEY)).map(|(_, help)| help);
        let known = help.and_then(|help| help.strip_prefix("known keys here: ")).expect(&text);
        let known: BTreeSet<_> = known.split(", ").collect();
        let described: BTreeSet<_> = keys.iter().map(|key| key.name).collect();
        assert_eq!(known, described, "in {text}");
    }
}

#[test]
fn what_the_schema_requires_the_loader_requires() {
    for (described, (header, keys)) in all_places() {
        for key in keys.iter().filter(|key| key.required) {
            let said = problems(described, &format!("{header}\n{NO_KEY} = 1\n"));
            let needs = format!("needs `{}`", key.name);
            assert!(said.iter().any(|(message, _)| message.contains(&needs)), "{header} {}", key.name);
        }
    }
}

#[test]
fn a_word_of_the_schema_is_a_word_of_the_loader() {
    for (described, (header, keys)) in all_places() {
        for key in keys {
            let Kind::Words(words) = key.kind else { continue };
            for word in words {
                // The other key makes the load fail, so that there are problems to look at.
                let text = format!("{header}\n{} = \"{word}\"\n{NO_KEY} = 1\n", key.name);
                let unknown = format!("`{}` has an unknown value", key.name);
                let said = problems(described, &text);
                assert!(!said.iter().any(|(message, _)| message.starts_with(&unknown)), "{text}{said:?}");
            }
        }
    }
}

#[test]
fn it_is_a_schema_that_refuses_unknown_keys() {
    for described in [Described::Config, Described::Rules] {
        let schema = described.schema();
        assert_eq!(schema["$schema"], DIALECT);
        assert_eq!(schema["additionalProperties"], false);
    }
    let sandbox = &Described::Config.schema()["properties"]["sandbox"];
    assert_eq!(sandbox["items"]["required"], serde_json::json!(["id", "policy"]));
    assert_eq!(sandbox["items"]["additionalProperties"], false);
}
