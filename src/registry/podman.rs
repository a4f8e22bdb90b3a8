//! Podman, and what else reads `registries.conf`: registries for short names, places that stand in for
//! others, mirrors, and registries that the user logged in to. Aliases of short names are lists of what
//! there is somewhere, and are not read; nor is what was used to log in.

use std::collections::BTreeSet;
use std::path::PathBuf;

use toml::de::DeTable;

use super::docker::{logged_in, with_scheme};
use super::finding::{Ask, Fault, Origin, Reader};
use super::machine::Text;
use super::tables;

const DROP_INS: &str = "containers/registries.conf.d";
/// The name of a registry that is on other hosts.
const HUB: &str = "docker.io";

/// What stronger files have said.
#[derive(Default)]
struct Settings {
    search: bool,
    prefixes: BTreeSet<String>,
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<(), Fault> {
    let mut settings = Settings::default();
    for path in files(reader)? {
        let Some(file) = reader.text(&path)? else { continue };
        let root = tables::parse(&file)?;
        settings.take(reader, &file, root.get_ref());
    }
    let machine = reader.machine;
    let own = machine.env_path("XDG_RUNTIME_DIR").map(|dir| dir.join("containers/auth.json"));
    let logins = match machine.env_path("REGISTRY_AUTH_FILE") {
        Some(path) => vec![path],
        None => own.into_iter().chain([machine.user_config().join("containers/auth.json")]).collect(),
    };
    for path in logins {
        logged_in(reader, &path, image)?;
    }
    Ok(())
}

/// Its files, the strongest first. Where the user has one, the machine's do not count.
fn files(reader: &Reader<'_>) -> Result<Vec<PathBuf>, Fault> {
    let machine = reader.machine;
    // Not by XDG_CONFIG_HOME.
    let user = machine.home.join(".config");
    let named = machine.env_path("CONTAINERS_REGISTRIES_CONF");
    let own = user.join("containers/registries.conf");
    let (main, is_own) = match named {
        Some(path) => (path, false),
        None if own.is_file() => (own, true),
        None => (machine.system("/etc/containers/registries.conf"), false),
    };
    let mut files = vec![main];
    let folders = [machine.system("/etc").join(DROP_INS), user.join(DROP_INS)];
    for folder in folders.into_iter().skip(usize::from(is_own)) {
        files.extend(machine.list(&folder, &[".conf"])?);
    }
    files.reverse();
    Ok(files)
}

impl Settings {
    fn take(&mut self, reader: &mut Reader<'_>, file: &Text, root: &DeTable<'_>) {
        const SEARCH: &str = "unqualified-search-registries";
        if root.contains_key(SEARCH) && !std::mem::replace(&mut self.search, true) {
            for (place, line) in tables::strings(file, root, SEARCH) {
                image(reader, place, reader.origin(&file.name, Some(line), SEARCH));
            }
        }
        // The format before: [registries.search] and others, each with a list.
        for (name, setting) in [("search", "registries.search"), ("insecure", "registries.insecure")] {
            let Some(table) = tables::table(root, &["registries", name]) else { continue };
            for (place, line) in tables::strings(file, table, "registries") {
                let origin = reader.origin(&file.name, Some(line), setting);
                registry(reader, place, name == "insecure", origin);
            }
        }
        for table in tables::tables(root, "registry") {
            let location = tables::string(file, table, "location");
            let Some((prefix, _)) = tables::string(file, table, "prefix").or(location) else { continue };
            if self.prefixes.insert(prefix.to_owned()) {
                one(reader, file, table);
            }
        }
    }
}

/// Takes a `[[registry]]` and its mirrors.
fn one(reader: &mut Reader<'_>, file: &Text, table: &DeTable<'_>) {
    let is = |table: &DeTable<'_>, key: &str| {
        table.get(key).and_then(|value| value.get_ref().as_bool()) == Some(true)
    };
    let prefix = tables::string(file, table, "prefix");
    let Some((place, line)) = tables::string(file, table, "location").or(prefix) else { return };
    let origin = reader.origin(&file.name, Some(line), "registry");
    if is(table, "blocked") {
        reader.note(origin, "it is blocked");
        return;
    }
    registry(reader, place, is(table, "insecure"), origin);
    for mirror in tables::tables(table, "mirror") {
        if let Some((place, line)) = tables::string(file, mirror, "location") {
            let origin = reader.origin(&file.name, Some(line), "mirror");
            registry(reader, place, is(mirror, "insecure"), origin);
        }
    }
}

fn registry(reader: &mut Reader<'_>, place: &str, insecure: bool, origin: Origin) {
    if insecure && !place.starts_with("*.") {
        // It is asked over TLS first, and then without.
        reader.url(&with_scheme(place, "http"), Ask::Nothing(""), origin.clone());
    }
    image(reader, place, origin);
}

/// Takes a registry by its name, or that of what is in it.
fn image(reader: &mut Reader<'_>, place: &str, origin: Origin) {
    if place.starts_with("*.") {
        reader.note(origin, "a pattern; name the hosts that images come from");
    } else if place.split('/').next() == Some(HUB) {
        reader.note(origin, "docker.io is on other hosts; rule set `docker-hub` has them");
    } else {
        reader.url(&with_scheme(place, "https"), Ask::Images, origin);
    }
}
