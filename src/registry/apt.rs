//! apt: `sources.list`, in lines and in stanzas (sources.list(5)). Proxies of apt are no registries.

use super::finding::{Ask, Fault, Origin, Reader};
use super::machine::Text;

pub(super) fn read(reader: &mut Reader<'_>) -> Result<(), Fault> {
    let machine = reader.machine;
    let mut files = vec![machine.system("/etc/apt/sources.list")];
    files.extend(machine.list(&machine.system("/etc/apt/sources.list.d"), &[".list", ".sources"])?);
    for path in files {
        let Some(file) = reader.text(&path)? else { continue };
        let stanzas = path.extension().is_some_and(|ending| ending == "sources");
        let entries = if stanzas { read_stanzas(&file)? } else { read_lines(&file)? };
        for Entry { uris, suite, line } in entries {
            reader.complete();
            for uri in uris {
                let origin = reader.origin(&file.name, Some(line), "a source");
                take(reader, &uri, &suite, origin)?;
            }
        }
    }
    Ok(())
}

/// A source, in either way of writing.
struct Entry {
    uris: Vec<String>,
    suite: String,
    line: usize,
}

fn take(reader: &mut Reader<'_>, uri: &str, suite: &str, origin: Origin) -> Result<(), Fault> {
    let release = match suite.strip_suffix('/') {
        // An exact path, not the name of a suite.
        Some(folder) => format!("{}/InRelease", folder.trim_start_matches("./")),
        None => format!("dists/{suite}/InRelease"),
    };
    let release = Ask::Release(release.trim_start_matches(['.', '/']).to_owned());
    let scheme = uri.split_once(':').map_or(uri, |(scheme, _)| scheme).to_ascii_lowercase();
    match scheme.as_str() {
        "cdrom" | "copy" => {}
        "mirror+file" => {
            let path = uri.get("mirror+file:".len()..).unwrap_or_default();
            let path = reader.machine.system(path.trim_start_matches('/'));
            let Some(list) = reader.text(&path)? else {
                reader.note(origin, "its list of mirrors is not there");
                return Ok(());
            };
            for (number, line) in (1..).zip(list.text.lines()) {
                if let Some(mirror) = mirror(line) {
                    let origin = Origin { file: list.name.clone(), line: Some(number), ..origin.clone() };
                    reader.url(mirror, release.clone(), origin);
                }
            }
        }
        "mirror+http" | "mirror+https" => {
            reader.url(uri.get("mirror+".len()..).unwrap_or_default(), Ask::Mirrors, origin);
        }
        // The old way to write it.
        "mirror" => reader.url(&uri.replacen("mirror:", "http:", 1), Ask::Mirrors, origin),
        _ => reader.url(uri, release, origin),
    }
    Ok(())
}

/// The mirror in a line of a list of mirrors (apt-transport-mirror(1)).
pub(super) fn mirror(line: &str) -> Option<&str> {
    line.split_whitespace().next().filter(|word| !word.starts_with('#'))
}

/// `deb [options] uri suite component…`, a line each.
fn read_lines(file: &Text) -> Result<Vec<Entry>, Fault> {
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(file.text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let fault = |what| file.fault(Some(number), what);
        let (kind, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if !matches!(kind, "deb" | "deb-src") {
            return Err(fault("neither deb nor deb-src at the beginning"));
        }
        let rest = rest.trim_start();
        let rest = match rest.strip_prefix('[') {
            Some(options) => {
                options.split_once(']').ok_or_else(|| fault("options without their closing bracket"))?.1
            }
            None => rest,
        };
        // Its name may have spaces in brackets, and it is no network.
        if rest.trim_start().starts_with("cdrom:") {
            continue;
        }
        let mut words = rest.split_whitespace();
        let (Some(uri), Some(suite)) = (words.next(), words.next()) else {
            return Err(fault("a source without its URI or suite"));
        };
        entries.push(Entry { uris: vec![uri.to_owned()], suite: suite.to_owned(), line: number });
    }
    Ok(entries)
}

/// `Field: value`, with an empty line between sources (deb822(5)).
fn read_stanzas(file: &Text) -> Result<Vec<Entry>, Fault> {
    let (mut entries, mut fields) = (Vec::new(), Vec::<(String, String, usize)>::new());
    for (number, line) in (1..).zip(file.text.lines().chain([""])) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            entries.extend(stanza(file, &std::mem::take(&mut fields))?);
        } else if line.starts_with([' ', '\t']) {
            let (_, value, _) =
                fields.last_mut().ok_or_else(|| file.fault(Some(number), "an indented line of no field"))?;
            value.push(' ');
            value.push_str(line.trim());
        } else {
            let (name, value) = line
                .split_once(':')
                .ok_or_else(|| file.fault(Some(number), "neither FIELD: VALUE nor its continuation"))?;
            fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned(), number));
        }
    }
    Ok(entries)
}

fn stanza(file: &Text, fields: &[(String, String, usize)]) -> Result<Option<Entry>, Fault> {
    let field = |name: &str| fields.iter().rfind(|(field, ..)| field == name);
    let Some((_, _, first)) = fields.first() else { return Ok(None) };
    let off = |value: &str| {
        matches!(value.to_ascii_lowercase().as_str(), "no" | "false" | "without" | "off" | "disable")
    };
    if field("enabled").is_some_and(|(_, value, _)| off(value)) {
        return Ok(None);
    }
    let missing = |what| file.fault(Some(*first), what);
    let (_, uris, line) = field("uris").ok_or_else(|| missing("a source without URIs"))?;
    let (_, suites, _) = field("suites").ok_or_else(|| missing("a source without Suites"))?;
    let suite = suites.split_whitespace().next().unwrap_or_default().to_owned();
    Ok(Some(Entry { uris: uris.split_whitespace().map(str::to_owned).collect(), suite, line: *line }))
}
