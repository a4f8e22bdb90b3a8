//! Docker: mirrors and insecure registries of the engine, and registries that the user logged in to.
//! Of what was used to log in nothing is read.

use std::path::Path;

use serde_json::Value;

use super::finding::{Ask, Fault, Origin, Reader};
use super::machine::Text;

pub(super) fn read(reader: &mut Reader<'_>) -> Result<(), Fault> {
    let machine = reader.machine;
    let daemons =
        [machine.system("/etc/docker/daemon.json"), machine.user_config().join("docker/daemon.json")];
    for path in daemons {
        let Some(file) = reader.text(&path)? else { continue };
        let settings = parse(&file)?;
        for mirror in texts(&settings, "registry-mirrors") {
            let origin = reader.origin(&file.name, None, "registry-mirrors");
            reader.url(&with_scheme(mirror, "https"), Ask::Images, origin);
        }
        for place in texts(&settings, "insecure-registries") {
            let origin = reader.origin(&file.name, None, "insecure-registries");
            if place.parse::<ipnet::IpNet>().is_ok() {
                reader.note(origin, "a network, not a registry");
                continue;
            }
            // It is asked over TLS first, and then without.
            reader.url(&with_scheme(place, "https"), Ask::Images, origin.clone());
            reader.url(&with_scheme(place, "http"), Ask::Nothing(""), origin);
        }
    }
    let folder = machine.env_path("DOCKER_CONFIG").unwrap_or_else(|| machine.home.join(".docker"));
    logged_in(reader, &folder.join("config.json"), |reader, registry, origin| {
        reader.url(&with_scheme(registry, "https"), Ask::Images, origin);
    })
}

/// Takes the names of the registries in a file of logins.
pub(super) fn logged_in(
    reader: &mut Reader<'_>,
    path: &Path,
    take: impl Fn(&mut Reader<'_>, &str, Origin),
) -> Result<(), Fault> {
    let Some(file) = reader.text(path)? else { return Ok(()) };
    let settings = parse(&file)?;
    for setting in ["auths", "credHelpers"] {
        let registries = settings.get(setting).and_then(Value::as_object);
        for registry in registries.into_iter().flat_map(|each| each.keys()) {
            let origin = reader.origin(&file.name, None, setting);
            take(reader, registry, origin);
        }
    }
    Ok(())
}

fn parse(file: &Text) -> Result<Value, Fault> {
    let parsed = serde_json::from_str(&file.text);
    let parsed: Value = parsed.map_err(|error| file.fault(Some(error.line().max(1)), "not JSON"))?;
    if parsed.is_object() { Ok(parsed) } else { Err(file.fault(Some(1), "not a JSON object")) }
}

fn texts<'a>(settings: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    settings.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

pub(super) fn with_scheme(place: &str, scheme: &str) -> String {
    if place.contains("://") { place.to_owned() } else { format!("{scheme}://{place}") }
}
