//! The form of the data files: cases of a main file, sections that begin with `---`, and lines.

use std::path::{Path, PathBuf};

use egret_policy::Nat64Prefix;

use super::{MAIN, World};

/// One case.
#[derive(Default)]
pub struct Case {
    pub title: String,
    /// The main file.
    pub text: String,
    /// From the sections `rules/NAME.toml` and `around`.
    pub world: World,
    /// The lines of the section that the reader asked for, without blank ones and remarks.
    pub lines: Vec<String>,
}

/// The data files with this extension.
pub fn files(extension: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    files.sort();
    assert!(!files.is_empty(), "no *.{extension}");
    files
}

/// Reads the cases of a file whose last section is `wanted`.
pub fn parse(path: &Path, wanted: &str) -> Vec<Case> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut cases: Vec<Case> = Vec::new();
    let mut section = String::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("=== ") {
            cases.push(Case { title: title.to_owned(), ..Case::default() });
            section = MAIN.to_owned();
            continue;
        }
        let Some(case) = cases.last_mut() else {
            continue; // the remarks before the first case
        };
        if let Some(name) = line.strip_prefix("--- ") {
            section = name.to_owned();
            if let Some(name) = rule_set(&section) {
                case.world.rule_sets.push((name.to_owned(), String::new()));
            }
        } else if section == MAIN {
            case.text += &format!("{line}\n");
        } else if rule_set(&section).is_some() {
            let (_, text) = case.world.rule_sets.last_mut().unwrap();
            *text += &format!("{line}\n");
        } else if line.is_empty() || line.starts_with('#') {
            continue;
        } else if section == "around" {
            surround(&mut case.world, line);
        } else {
            assert_eq!(section, wanted, "in {}", path.display());
            case.lines.push(line.to_owned());
        }
    }
    cases
}

/// The name of a rule set by its file.
pub fn rule_set(file: &str) -> Option<&str> {
    file.strip_prefix("rules/")?.strip_suffix(".toml")
}

fn surround(world: &mut World, line: &str) {
    let (key, value) = line.split_once(' ').expect(line);
    match key {
        "listener" => world.listeners.push(value.parse().unwrap()),
        "local" => world.local.push(value.parse().unwrap()),
        "nat64" => world.nat64.push(Nat64Prefix::new(value.parse().unwrap()).unwrap()),
        "tokens" => world.tokens = value == "on",
        "certificates" => world.certificates = value == "on",
        "anonymous" => world.anonymous = Some(value.to_owned()),
        other => panic!("no such surrounding: {other}"),
    }
}
