//! go: module proxies, the checksum database and hosts of private modules.

use super::finding::{Ask, Fault, Origin, Reader};

/// Where distributions put the go command's own defaults (`$GOROOT/go.env`).
const ROOTS: [&str; 3] = ["/usr/local/go", "/usr/lib/go", "/usr/lib/golang"];
const NAMES: [&str; 5] = ["GOPROXY", "GOSUMDB", "GOPRIVATE", "GONOPROXY", "GONOSUMDB"];
const FILES: &str = "a module proxy has no index that says where its files are";

pub(super) fn read(reader: &mut Reader<'_>) -> Result<(), Fault> {
    let machine = reader.machine;
    let mut settings: Vec<(&'static str, String, Origin)> = Vec::new();
    for name in NAMES {
        if let Some(value) = machine.env(name) {
            settings.push((name, value.to_owned(), reader.origin("environment", None, name)));
        }
    }
    let user = machine.env_path("GOENV").unwrap_or_else(|| machine.user_config().join("go/env"));
    let roots = match machine.env_path("GOROOT") {
        Some(root) => vec![root],
        None => ROOTS.map(|root| machine.system(root)).to_vec(),
    };
    for path in std::iter::once(user).chain(roots.into_iter().map(|root| root.join("go.env"))) {
        // `GOENV=off` names no file, and leads to none.
        let Some(file) = reader.text(&path)? else { continue };
        for (number, line) in (1..).zip(file.text.lines()) {
            let Some((name, value)) = line.trim().split_once('=') else { continue };
            let Some(name) = NAMES.into_iter().find(|known| *known == name.trim()) else { continue };
            if !settings.iter().any(|(known, ..)| *known == name) {
                let origin = reader.origin(&file.name, Some(number), name);
                settings.push((name, value.trim().to_owned(), origin));
            }
        }
    }
    let own_list = settings.iter().any(|(name, ..)| *name == "GONOPROXY");
    for (name, value, origin) in settings {
        match name {
            "GOPROXY" => proxies(reader, &value, &origin),
            "GOSUMDB" => sum_database(reader, &value, origin),
            "GONOPROXY" => private(reader, &value, &origin),
            "GOPRIVATE" if !own_list => private(reader, &value, &origin),
            _ => {}
        }
    }
    Ok(())
}

/// Reads what `go env GOPROXY GOSUMDB` prints.
pub(super) fn answer(reader: &mut Reader<'_>, text: &str, origin: &Origin) {
    let mut lines = text.lines();
    proxies(reader, lines.next().unwrap_or_default(), origin);
    sum_database(reader, lines.next().unwrap_or_default(), origin.clone());
}

fn proxies(reader: &mut Reader<'_>, value: &str, origin: &Origin) {
    reader.complete();
    for proxy in value.split([',', '|']).map(str::trim) {
        match proxy {
            "" | "off" => {}
            "direct" => reader.note(
                origin.clone(),
                "`direct`: where no proxy has a module, it comes from the host in its name, which needs a rule",
            ),
            url => reader.url(url, Ask::Nothing(FILES), origin.clone()),
        }
    }
}

/// `NAME`, `NAME+HASH+KEY`, and a URL behind it.
fn sum_database(reader: &mut Reader<'_>, value: &str, origin: Origin) {
    let mut words = value.split_whitespace();
    let name = words.next().and_then(|name| name.split('+').next()).unwrap_or_default();
    if matches!(name, "" | "off") {
        return;
    }
    let place = words.next().unwrap_or(name);
    if place.contains("://") {
        reader.url(place, Ask::Nothing(""), origin);
    } else {
        host(reader, place, Ask::Nothing(""), origin);
    }
}

/// Takes what stands for a host alone.
fn host(reader: &mut Reader<'_>, host: &str, ask: Ask, origin: Origin) {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if host.contains('.') && host.chars().all(is_plain) {
        reader.url(&format!("https://{host}"), ask, origin);
    } else {
        reader.note(origin, "not the name of a host");
    }
}

/// Patterns of modules that come from the hosts in their names.
fn private(reader: &mut Reader<'_>, value: &str, origin: &Origin) {
    for pattern in value.split(',').map(str::trim).filter(|pattern| !matches!(*pattern, "" | "none")) {
        let name = pattern.split('/').next().unwrap_or_default();
        if name.contains(['*', '?', '[']) {
            reader.note(origin.clone(), "a pattern; name the hosts that private modules come from");
        } else {
            host(reader, name, Ask::Nothing(""), origin.clone());
        }
    }
}
