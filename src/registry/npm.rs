//! npm: `registry` and the registries of scopes, of the environment, the project, the user and all.

use std::collections::BTreeMap;

use super::finding::{Ask, Fault, Origin, Reader};
use super::ini;
use super::text::expand;

/// Where builds of npm look for settings of all users: below their prefix, or in `/etc`.
const GLOBAL: [&str; 3] = ["/usr/local/etc/npmrc", "/usr/etc/npmrc", "/etc/npmrc"];

/// Of every setting the first counts.
type Settings = BTreeMap<String, (String, Origin)>;

pub(super) fn read(reader: &mut Reader<'_>) -> Result<(), Fault> {
    let machine = reader.machine;
    let mut settings = Settings::new();
    for (name, value) in &machine.env {
        if let Some(key) = name.to_ascii_lowercase().strip_prefix("npm_config_")
            && let Some(setting) = kind(key)
        {
            let origin = reader.origin("environment", None, setting);
            settings.entry(key.to_owned()).or_insert_with(|| (value.clone(), origin));
        }
    }
    let mut files = Vec::new();
    // The project's root is the nearest folder with one of these.
    let is_root =
        |dir: &std::path::Path| ["package.json", "node_modules"].iter().any(|n| dir.join(n).exists());
    let upwards = machine.upwards();
    let root = upwards.iter().find(|dir| is_root(dir)).or(upwards.first());
    files.extend(root.map(|dir| dir.join(".npmrc")));
    let named = |name: &str| machine.env_path(name).or_else(|| machine.env_path(&name.to_ascii_uppercase()));
    files.push(named("npm_config_userconfig").unwrap_or_else(|| machine.home.join(".npmrc")));
    match named("npm_config_globalconfig") {
        Some(global) => files.push(global),
        None => files.extend(GLOBAL.map(|path| machine.system(path))),
    }
    for path in files {
        let Some(file) = reader.text(&path)? else { continue };
        // Of a setting that a file has twice, the last counts.
        for entry in ini::npm(&file.text).into_iter().rev().filter(|entry| entry.section.is_empty()) {
            let Some(setting) = kind(&entry.key) else { continue };
            let value = expand(&entry.value, |name| machine.env(name.trim_end_matches('?')));
            let origin = reader.origin(&file.name, Some(entry.line), setting);
            settings.entry(entry.key).or_insert((value, origin));
        }
    }
    if settings.contains_key("registry") {
        reader.complete();
    }
    for (key, (value, origin)) in settings {
        let scope = key.strip_suffix(":registry").map(str::to_owned);
        reader.url(&value, Ask::Npm(scope), origin);
    }
    Ok(())
}

/// What a setting is called here, if it names a registry.
fn kind(key: &str) -> Option<&'static str> {
    match key {
        "registry" => Some("registry"),
        key if key.starts_with('@') && key.ends_with(":registry") => Some("a scope's registry"),
        _ => None,
    }
}
