//! cargo: registries and replaced sources, of the environment and `config.toml` up the tree, with what
//! these include.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::finding::{Ask, Fault, Origin, Reader};
use super::machine::Text;
use super::tables;
use super::text::line_at;

/// Most replacements of replacements that are followed.
const DEEPEST: usize = 16;
/// Most files that are read, included ones too: they may include each other.
const MOST_FILES: usize = 100;
const IN_GIT: &str = "its index is a git repository, so egret can't ask where its crates are";

/// A text and where it stands.
type Value = (String, Origin);

/// A `[source.NAME]`; of every key the first that is found counts.
#[derive(Default)]
struct Source {
    /// `registry` or `git`.
    place: Option<Value>,
    /// Is it on this machine?
    local: bool,
    replace_with: Option<String>,
}

#[derive(Default)]
struct Settings {
    sources: BTreeMap<String, Source>,
    registries: BTreeMap<String, Value>,
    files: usize,
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<(), Fault> {
    let mut settings = Settings::default();
    for (name, value) in &reader.machine.env {
        let name = name.strip_prefix("CARGO_REGISTRIES_").and_then(|name| name.strip_suffix("_INDEX"));
        if let Some(name) = name.filter(|_| !value.is_empty()) {
            let origin = reader.origin("environment", None, "a registry's index");
            settings.registries.insert(key(name), (value.clone(), origin));
        }
    }
    for path in files(reader) {
        settings.read(reader, &path)?;
    }
    settings.tell(reader);
    Ok(())
}

/// Its files, the strongest first.
fn files(reader: &Reader<'_>) -> Vec<PathBuf> {
    let machine = reader.machine;
    let homes = machine.env_path("CARGO_HOME").unwrap_or_else(|| machine.home.join(".cargo"));
    let mut folders: Vec<_> = machine.upwards().into_iter().map(|dir| dir.join(".cargo")).collect();
    folders.push(homes);
    let file = |dir: PathBuf| {
        // The old name goes before the new one.
        let old = dir.join("config");
        if old.is_file() { old } else { dir.join("config.toml") }
    };
    let mut files: Vec<PathBuf> = Vec::new();
    for path in folders.into_iter().map(file) {
        if !files.contains(&path) {
            files.push(path);
        }
    }
    files
}

/// A registry's name as the environment writes it.
fn key(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

impl Settings {
    /// Takes a file, and then what it includes, as the file's own values go first, and those of the last
    /// file that it includes before those of the others. Is it there?
    fn read(&mut self, reader: &Reader<'_>, path: &Path) -> Result<bool, Fault> {
        let Some(file) = reader.text(path)? else { return Ok(false) };
        self.files += 1;
        if self.files > MOST_FILES {
            return Err(file.fault(None, "more than 100 files; do they include each other?"));
        }
        let root = tables::parse(&file)?;
        let root = root.get_ref();
        self.take(reader, &file, root);
        for item in tables::items(root, "include").into_iter().rev() {
            let line = Some(line_at(&file.text, item.span().start));
            let table = item.get_ref().as_table();
            let named = match table {
                Some(table) => tables::string(&file, table, "path"),
                None => tables::at(&file, item),
            };
            let Some((named, _)) = named.filter(|(named, _)| named.ends_with(".toml")) else {
                return Err(file.fault(line, "`include` takes paths that end in .toml"));
            };
            let optional = table.and_then(|table| table.get("optional"));
            let optional = optional.and_then(|value| value.get_ref().as_bool()) == Some(true);
            let other = match Path::new(named) {
                absolute if absolute.is_absolute() => reader.machine.system(named),
                near => path.parent().unwrap_or(path).join(near),
            };
            if !self.read(reader, &other)? && !optional {
                return Err(file.fault(line, "it includes a file that is not there"));
            }
        }
        Ok(true)
    }

    fn take(&mut self, reader: &Reader<'_>, file: &Text, root: &DeTable<'_>) {
        for (name, table) in named(root, "registries") {
            if let Some((index, line)) = tables::string(file, table, "index") {
                let origin = reader.origin(&file.name, Some(line), "a registry's index");
                self.registries.entry(key(name)).or_insert((index.to_owned(), origin));
            }
        }
        for (name, table) in named(root, "source") {
            let source = self.sources.entry(name.to_owned()).or_default();
            source.local |= table.contains_key("local-registry") || table.contains_key("directory");
            for setting in ["registry", "git"] {
                if let Some((place, line)) = tables::string(file, table, setting) {
                    let origin = reader.origin(&file.name, Some(line), "a source that is used instead");
                    source.place.get_or_insert((place.to_owned(), origin));
                }
            }
            if let Some((other, _)) = tables::string(file, table, "replace-with") {
                source.replace_with.get_or_insert(other.to_owned());
            }
        }
    }

    fn tell(self, reader: &mut Reader<'_>) {
        let mut used: BTreeMap<&str, &Value> = BTreeMap::new();
        let replaced = self.sources.values().filter(|source| source.replace_with.is_some());
        for source in replaced {
            // One that has no place of its own is built into cargo.
            if source.place.is_none() && !source.local {
                reader.complete();
            }
            let mut next = source.replace_with.as_deref();
            for _ in 0..DEEPEST {
                let Some(name) = next else { break };
                let Some(other) = self.sources.get(name) else { break };
                next = other.replace_with.as_deref();
                if let (None, Some(place)) = (next, &other.place) {
                    used.insert(name, place);
                }
            }
        }
        let is_replaced = |index: &str| {
            let same = |source: &&Source| source.place.as_ref().is_some_and(|(place, _)| place == index);
            self.sources.values().filter(same).any(|source| source.replace_with.is_some())
        };
        for (index, origin) in self.registries.values() {
            if is_replaced(index) {
                reader.note(origin.clone(), "another source is used in its place");
            } else {
                take(reader, index, origin);
            }
        }
        for (place, origin) in used.into_values() {
            take(reader, place, origin);
        }
    }
}

fn take(reader: &mut Reader<'_>, index: &str, origin: &Origin) {
    let index = index.strip_prefix("registry+").unwrap_or(index);
    match index.strip_prefix("sparse+") {
        Some(url) => reader.url(url, Ask::Sparse, origin.clone()),
        None => reader.url(index.strip_prefix("git+").unwrap_or(index), Ask::Nothing(IN_GIT), origin.clone()),
    }
}

/// The tables in a table, by name.
fn named<'a, 'i>(root: &'a DeTable<'i>, name: &str) -> Vec<(&'a str, &'a DeTable<'i>)> {
    let inside = root.get(name).and_then(|value| value.get_ref().as_table());
    let each = inside.into_iter().flat_map(|table| table.iter());
    each.filter_map(|(name, value)| Some((name.get_ref().as_ref(), value.get_ref().as_table()?))).collect()
}
