//! uv: its indexes and mirrors, of the environment, `uv.toml` and `pyproject.toml`.

use std::path::PathBuf;

use toml::de::DeTable;

use super::finding::{Ask, Fault, Reader};
use super::machine::Text;
use super::tables;

/// Variables with one place or several, and whether the default index is among them.
const VARIABLES: [(&str, &str, bool); 7] = [
    ("UV_DEFAULT_INDEX", "default-index", true),
    ("UV_INDEX_URL", "index-url", true),
    ("UV_INDEX", "index", false),
    ("UV_EXTRA_INDEX_URL", "extra-index-url", false),
    ("UV_FIND_LINKS", "find-links", false),
    ("UV_PYTHON_INSTALL_MIRROR", "python-install-mirror", false),
    ("UV_PYPY_INSTALL_MIRROR", "pypy-install-mirror", false),
];

pub(super) fn read(reader: &mut Reader<'_>) -> Result<(), Fault> {
    let machine = reader.machine;
    for (variable, setting, default) in VARIABLES {
        let Some(value) = machine.env(variable) else { continue };
        if default {
            reader.complete();
        }
        for url in value.split([' ', ',', '\n']).filter(|url| !url.is_empty()) {
            // An index may have a name: NAME=URL.
            let named = url.split_once('=').filter(|(name, _)| !name.contains(['/', ':']));
            let url = named.map_or(url, |(_, url)| url);
            let origin = reader.origin("environment", None, setting);
            reader.url(url, ask(setting), origin);
        }
    }
    if machine.env("UV_NO_CONFIG").is_some() {
        return Ok(());
    }
    for (path, is_project) in files(reader) {
        let Some(file) = reader.text(&path)? else { continue };
        let root = tables::parse(&file)?;
        let root = root.get_ref();
        if let Some(root) = if is_project { tables::table(root, &["tool", "uv"]) } else { Some(root) } {
            read_table(reader, &file, root);
        }
    }
    Ok(())
}

/// Its files, and whether each is a `pyproject.toml`.
fn files(reader: &Reader<'_>) -> Vec<(PathBuf, bool)> {
    let machine = reader.machine;
    if let Some(path) = machine.env_path("UV_CONFIG_FILE") {
        return vec![(path, false)];
    }
    let mut files = Vec::new();
    // The nearest folder with one of them; uv.toml goes before the other.
    for dir in machine.upwards() {
        let (own, shared) = (dir.join("uv.toml"), dir.join("pyproject.toml"));
        if own.exists() {
            files.push((own, false));
            break;
        }
        if shared.exists() {
            files.push((shared, true));
            break;
        }
    }
    files.push((machine.user_config().join("uv/uv.toml"), false));
    files.push((machine.system("/etc/uv/uv.toml"), false));
    files.extend(machine.system_configs().into_iter().map(|dir| (dir.join("uv/uv.toml"), false)));
    files
}

fn read_table(reader: &mut Reader<'_>, file: &Text, root: &DeTable<'_>) {
    for index in tables::tables(root, "index") {
        if index.get("default").and_then(|value| value.get_ref().as_bool()) == Some(true) {
            reader.complete();
        }
        let Some((url, line)) = tables::string(file, index, "url") else { continue };
        let flat = tables::string(file, index, "format").is_some_and(|(format, _)| format == "flat");
        let origin = reader.origin(&file.name, Some(line), "index");
        reader.url(url, if flat { Ask::Links } else { Ask::Simple }, origin);
    }
    for table in [Some(root), tables::table(root, &["pip"])].into_iter().flatten() {
        for (_, setting, default) in VARIABLES.into_iter().filter(|(_, setting, _)| *setting != "index") {
            for (url, line) in tables::strings(file, table, setting) {
                if default {
                    reader.complete();
                }
                let origin = reader.origin(&file.name, Some(line), setting);
                reader.url(url, ask(setting), origin);
            }
        }
    }
}

fn ask(setting: &str) -> Ask {
    match setting {
        "find-links" => Ask::Links,
        "python-install-mirror" | "pypy-install-mirror" => {
            Ask::Nothing("a mirror of interpreters has no index that says where its files are")
        }
        _ => Ask::Simple,
    }
}
