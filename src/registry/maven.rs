//! Maven: mirrors and repositories of `settings.xml` and of the project's `pom.xml`.

use roxmltree::{Document, Node};

use super::finding::{Ask, Fault, Reader};
use super::machine::Text;
use super::text::expand;

/// Where distributions put settings for all users.
const GLOBAL: [&str; 2] = ["/etc/maven/settings.xml", "/usr/share/maven/conf/settings.xml"];
const FILES: &str = "a repository has no index that says where its files are";

pub(super) fn read(reader: &mut Reader<'_>) -> Result<(), Fault> {
    let machine = reader.machine;
    let mut files = vec![machine.home.join(".m2/settings.xml")];
    let home = machine.env_path("MAVEN_HOME").or_else(|| machine.env_path("M2_HOME"));
    match home {
        Some(home) => files.push(home.join("conf/settings.xml")),
        // One is a link to the other.
        None => files.extend(GLOBAL.map(|path| machine.system(path)).into_iter().find(|path| path.exists())),
    }
    files.extend(machine.project.iter().map(|dir| dir.join("pom.xml")));
    for path in files {
        if let Some(file) = reader.text(&path)? {
            read_file(reader, &file)?;
        }
    }
    Ok(())
}

fn read_file(reader: &mut Reader<'_>, file: &Text) -> Result<(), Fault> {
    let document = Document::parse(&file.text).map_err(|error| {
        file.fault(Some(error.pos().row as usize), "not XML that settings are written in")
    })?;
    let root = document.root_element();
    let env = |name: &str| reader.machine.env(name.strip_prefix("env.")?);
    let mut places = Vec::new();
    let mut everything = false;
    for mirror in path(root, &["mirrors", "mirror"]) {
        let Some(url) = text(mirror, "url") else { continue };
        if text(mirror, "blocked").is_some_and(|(blocked, _)| blocked == "true") {
            continue;
        }
        let of = text(mirror, "mirrorOf").map(|(of, _)| of).unwrap_or_default();
        everything |= of.split(',').any(|of| matches!(of.trim(), "*" | "central" | "external:*"));
        places.push((url, "a mirror"));
    }
    let profiles = path(root, &["profiles", "profile"]);
    for holder in std::iter::once(root).chain(profiles) {
        for names in [["repositories", "repository"], ["pluginRepositories", "pluginRepository"]] {
            let each = path(holder, &names);
            places.extend(
                each.into_iter().filter_map(|node| text(node, "url")).map(|url| (url, "a repository")),
            );
        }
    }
    let places: Vec<_> =
        places.into_iter().map(|((url, offset), setting)| (expand(url, env), offset, setting)).collect();
    if everything {
        reader.complete();
    }
    for (url, offset, setting) in places {
        let line = document.text_pos_at(offset).row as usize;
        let origin = reader.origin(&file.name, Some(line), setting);
        reader.url(&url, Ask::Nothing(FILES), origin);
    }
    Ok(())
}

/// The elements at the end of a path of names, whatever their namespace.
fn path<'a, 'i>(from: Node<'a, 'i>, names: &[&str]) -> Vec<Node<'a, 'i>> {
    names.iter().fold(vec![from], |nodes, name| {
        let inside = |node: Node<'a, 'i>| node.children().filter(|child| child.tag_name().name() == *name);
        nodes.into_iter().flat_map(inside).collect()
    })
}

/// The text of a child, and where it stands.
fn text<'a>(node: Node<'a, '_>, name: &str) -> Option<(&'a str, usize)> {
    let child = node.children().find(|child| child.tag_name().name() == name)?;
    Some((child.text()?.trim(), child.range().start))
}
