//! What registries answer, read: the places that they name. All of it is the word of somebody else:
//! what is no place is left out, and nothing of it is kept but places.

use std::collections::BTreeSet;

use serde_json::Value;

use super::apt;
use super::place::Place;

/// Most different hosts that are taken from one answer.
const MOST: usize = 20;
/// Most links of a page that are looked at.
const LINKS: usize = 20_000;

/// Only the first place of each host.
fn distinct(places: impl Iterator<Item = Place>) -> Vec<Place> {
    let mut seen = BTreeSet::new();
    places.filter(|place| seen.insert(place.origin())).take(MOST).collect()
}

/// The files of a page of a project (PEP 503, PEP 691), by host.
pub(super) fn files(body: &[u8], page: &Place) -> Vec<Place> {
    if let Ok(json) = serde_json::from_slice::<Value>(body) {
        let files = json.get("files").and_then(Value::as_array);
        let urls = files.into_iter().flatten().filter_map(|file| file.get("url")?.as_str());
        return distinct(urls.filter_map(|url| page.join(url).ok()));
    }
    let links = links(body);
    // HTML 4.2.3: a document may say what its links are relative to.
    let base = links.iter().find(|link| link.is_base).and_then(|link| page.join(&link.href).ok());
    let base = base.unwrap_or_else(|| page.clone());
    distinct(links.iter().filter(|link| !link.is_base).filter_map(|link| base.join(&link.href).ok()))
}

/// The first project that the root of a repository names, where that is beside it.
pub(super) fn first_project(body: &[u8], root: &Place) -> Option<Place> {
    if let Ok(json) = serde_json::from_slice::<Value>(body) {
        let name =
            json.get("projects")?.as_array()?.iter().find_map(|project| project.get("name")?.as_str())?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        return name.chars().all(is_plain).then(|| root.below(&format!("{name}/")));
    }
    let below = |place: &Place| place.is_beside(root) && place.path().len() > root.path().len();
    links(body).iter().filter_map(|link| root.join(&link.href).ok()).find(below)
}

struct Link {
    href: String,
    is_base: bool,
}

/// The targets of `a` and `base` elements. What is no HTML has none.
fn links(body: &[u8]) -> Vec<Link> {
    let text = String::from_utf8_lossy(body);
    let tags = text.split('<').skip(1).filter_map(|tag| {
        let (name, rest) = tag.split_once(|c: char| c.is_ascii_whitespace())?;
        let is_base = name.eq_ignore_ascii_case("base");
        if !is_base && !name.eq_ignore_ascii_case("a") {
            return None;
        }
        let rest = rest.split('>').next().unwrap_or_default();
        Some(Link { href: href(rest)?, is_base })
    });
    tags.take(LINKS).collect()
}

/// The value of `href` among attributes.
fn href(attributes: &str) -> Option<String> {
    let mut rest = attributes;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
        let end = rest.find(|c: char| c == '=' || c.is_ascii_whitespace())?;
        let (name, behind) = rest.split_at_checked(end)?;
        let behind = behind.trim_start();
        let Some(value) = behind.strip_prefix('=').map(str::trim_start) else {
            rest = behind;
            continue;
        };
        let quoted = ['"', '\''].into_iter().find_map(|quote| value.strip_prefix(quote)?.split_once(quote));
        let (value, behind) =
            quoted.or_else(|| value.split_once(|c: char| c.is_ascii_whitespace())).unwrap_or((value, ""));
        if name.eq_ignore_ascii_case("href") {
            return Some(value.replace("&amp;", "&"));
        }
        rest = behind;
    }
}

/// What the `config.json` of a sparse index names: where crates are, and where its interface is. A
/// place with a marker in its host is none.
pub(super) fn sparse(body: &[u8], index: &Place) -> Option<(Option<Place>, Option<Place>)> {
    let json = serde_json::from_slice::<Value>(body).ok()?;
    let text = |key: &str| json.get(key).and_then(Value::as_str);
    // Markers as {crate} are filled in for each crate; in a path they do not matter here.
    let place = |url: &str| {
        let (scheme, rest) = url.split_once("://")?;
        let authority = rest.split('/').next().unwrap_or_default();
        if authority.contains('{') {
            return None;
        }
        Place::parse(&format!("{scheme}://{}", rest.replace(['{', '}'], ""))).ok()
    };
    let dl = text("dl")?;
    let dl = place(dl).or_else(|| if dl.contains("://") { None } else { index.join(dl).ok() });
    Some((dl, text("api").and_then(place)))
}

/// Where the tarballs of a package or of one version are, by host.
pub(super) fn tarballs(body: &[u8], page: &Place) -> Vec<Place> {
    let Ok(json) = serde_json::from_slice::<Value>(body) else { return Vec::new() };
    let versions = json.get("versions").and_then(Value::as_object);
    let each = std::iter::once(&json).chain(versions.into_iter().flat_map(|all| all.values()));
    let urls = each.filter_map(|version| version.get("dist")?.get("tarball")?.as_str());
    distinct(urls.filter_map(|url| page.join(url).ok()))
}

/// The mirrors of a list, by host.
pub(super) fn mirrors(body: &[u8]) -> Vec<Place> {
    let text = String::from_utf8_lossy(body);
    distinct(text.lines().filter_map(apt::mirror).filter_map(|url| Place::parse(url).ok()))
}

/// Where a registry of images sends its clients for tokens: the realm of a Bearer challenge (RFC 6750
/// section 3).
pub(super) fn realm(challenge: &str, registry: &Place) -> Option<Place> {
    let (scheme, rest) = challenge.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let mut parameters = rest.split(',').filter_map(|parameter| parameter.trim().split_once('='));
    let (_, realm) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("realm"))?;
    registry.join(realm.trim().trim_matches('"')).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(url: &str) -> Place {
        Place::parse(url).unwrap()
    }

    fn origins(places: &[Place]) -> Vec<String> {
        places.iter().map(Place::origin).collect()
    }

    #[test]
    fn pages_name_the_hosts_of_files() {
        let page = place("https://index.example/simple/x/");
        let html = b"<!DOCTYPE html><html><head><base href='https://base.example/'></head><body>\n\
            <A data-x=\"a b\" HREF = \"https://files.example/a.whl?x=1&amp;y#sha256=0\">a</a>\
            <a href=b.whl class=c>b</a><a href='//other.example:8443/c'>c</a><a name=x>d</a><abbr href=\"https://no.example\">\
            <a href=\"javascript:x\">e</a><a href=\"https://files.example/z\">";
        assert_eq!(
            origins(&files(html, &page)),
            ["https://files.example:443", "https://base.example:443", "https://other.example:8443"]
        );
        let json = br#"{"files": [{"url": "https://f.example/x"}, {"url": "../y"}, {"no": 1}]}"#;
        assert_eq!(origins(&files(json, &page)), ["https://f.example:443", "https://index.example:443"]);
        assert!(files(b"<a href", &page).is_empty() && files(b"\xff<a\xff href=\"", &page).len() <= 1);
    }

    #[test]
    fn a_root_names_projects() {
        let root = place("https://index.example/simple/");
        let html = b"<a href=\"https://elsewhere.example/x/\"><a href=\"/\"><a href=\"/simple/one/\">";
        assert_eq!(first_project(html, &root).unwrap().path(), "/simple/one/");
        let json = br#"{"projects": [{"name": "two"}]}"#;
        assert_eq!(first_project(json, &root).unwrap().path(), "/simple/two/");
        assert!(
            first_project(br#"{"projects": [{"name": "../x"}]}"#, &root).is_none_or(|p| p.is_beside(&root))
        );
        assert!(first_project(b"", &root).is_none());
    }

    #[test]
    fn indexes_of_crates_and_packages() {
        let index = place("https://index.example/sparse/");
        let read = |text: &str| sparse(text.as_bytes(), &index);
        let (dl, api) =
            read(r#"{"dl": "https://dl.example/{crate}/{version}", "api": "https://api.example"}"#).unwrap();
        assert_eq!(
            (dl.unwrap().origin(), api.unwrap().origin()),
            ("https://dl.example:443".into(), "https://api.example:443".into())
        );
        assert_eq!(read(r#"{"dl": "https://{prefix}.dl.example/x"}"#), Some((None, None)));
        assert_eq!(read("{}"), None);
        let tarball = br#"{"versions": {"1.0.0": {"dist": {"tarball": "http://t.example/x.tgz"}}, "2": {}}}"#;
        assert_eq!(origins(&tarballs(tarball, &index)), ["http://t.example:80"]);
        assert_eq!(
            origins(&tarballs(br#"{"dist": {"tarball": "/x.tgz"}}"#, &index)),
            ["https://index.example:443"]
        );
        assert!(tarballs(b"[", &index).is_empty());
    }

    #[test]
    fn mirrors_and_realms() {
        assert_eq!(
            origins(&mirrors(b"# x\nhttps://m.example/x priority:1\nfile:/x\nhttps://m.example/y\n")),
            ["https://m.example:443"]
        );
        let registry = place("https://r.example/v2/");
        let of = |text: &str| realm(text, &registry).map(|place| place.origin());
        assert_eq!(
            of(r#"Bearer realm="https://auth.example/token",service="r.example""#).unwrap(),
            "https://auth.example:443"
        );
        assert_eq!(of(r#"bearer service="a", Realm="/token""#).unwrap(), "https://r.example:443");
        assert_eq!(of(r#"Basic realm="https://no.example""#), None);
        assert_eq!(of("Bearer"), None);
    }
}
