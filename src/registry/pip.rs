//! pip: index-url, extra-index-url and find-links, of the environment and its files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::finding::{Ask, Fault, Origin, Reader};
use super::ini;

/// The settings that name a place, and whether they hold several.
const KEYS: [(&str, &str, bool); 4] = [
    ("index-url", "PIP_INDEX_URL", false),
    ("pypi-url", "PIP_PYPI_URL", false),
    ("extra-index-url", "PIP_EXTRA_INDEX_URL", true),
    ("find-links", "PIP_FIND_LINKS", true),
];

pub(super) fn read(reader: &mut Reader<'_>) -> Result<(), Fault> {
    let machine = reader.machine;
    // By section and key; of every setting the first counts.
    let mut settings: BTreeMap<(String, &'static str), (String, Origin)> = BTreeMap::new();
    let mut without_index = machine.env("PIP_NO_INDEX").is_some();
    for (key, variable, _) in KEYS {
        if let Some(value) = machine.env(variable) {
            let origin = reader.origin("environment", None, key);
            settings.insert((String::new(), key), (value.to_owned(), origin));
        }
    }
    for path in files(reader) {
        let Some(file) = reader.text(&path)? else { continue };
        let entries = ini::configparser(&file.text).map_err(|(line, what)| file.fault(Some(line), what))?;
        for entry in entries.into_iter().rev() {
            let truth = entry.value.to_ascii_lowercase();
            without_index |= entry.key == "no-index" && matches!(truth.as_str(), "1" | "true" | "yes" | "on");
            let Some((key, ..)) = KEYS.into_iter().find(|(key, ..)| *key == entry.key) else { continue };
            // The environment goes before every file.
            if !settings.contains_key(&(String::new(), key)) {
                let origin = reader.origin(&file.name, Some(entry.line), key);
                settings.entry((entry.section, key)).or_insert((entry.value, origin));
            }
        }
    }
    let has_index = |(section, key): &(String, &str)| {
        ["index-url", "pypi-url"].contains(key) && (section.is_empty() || section == "global")
    };
    if without_index || settings.keys().any(has_index) {
        reader.complete();
    }
    for ((_, key), (value, origin)) in settings {
        let ask = if key == "find-links" { Ask::Links } else { Ask::Simple };
        let several = KEYS.iter().any(|(name, _, several)| *name == key && *several);
        if several {
            for url in value.split_whitespace() {
                reader.url(url, ask.clone(), origin.clone());
            }
        } else {
            reader.url(&value, ask, origin);
        }
    }
    Ok(())
}

/// The index that pip's own help names as the default of `--index-url`.
pub(super) fn default_of(help: &str) -> Option<&str> {
    let (_, behind) = help.split_once("--index-url")?;
    let (_, behind) = behind.split_once("(default")?;
    behind.split_whitespace().next()?.split(')').next()
}

/// Its files, the strongest first.
fn files(reader: &Reader<'_>) -> Vec<PathBuf> {
    let machine = reader.machine;
    let mut files = Vec::new();
    if let Some(path) = machine.env_path("PIP_CONFIG_FILE") {
        // The null device stands for none at all.
        if path == std::path::Path::new("/dev/null") {
            return files;
        }
        files.push(path);
    }
    files.extend(machine.env_path("VIRTUAL_ENV").map(|dir| dir.join("pip.conf")));
    files.push(machine.user_config().join("pip/pip.conf"));
    files.push(machine.home.join(".pip/pip.conf"));
    files.push(machine.system("/etc/pip.conf"));
    files.extend(machine.system_configs().into_iter().map(|dir| dir.join("pip/pip.conf")));
    files
}
