//! Documents speak of what exists, and every reason is documented and tested.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::code::{has_word, is_word_char};
use crate::tree::{files, is_test_file, read, report, root};

/// Reasons that no test names yet, with the cause. Empty is the aim.
const UNTESTED: &[(&str, &str)] = &[("upstream_tls", "nothing in this version speaks TLS to a destination")];

#[test]
fn the_architecture_names_what_exists() {
    let mut offences = Vec::new();
    for (number, line) in prose("ARCHITECTURE.md") {
        for span in line.split('`').skip(1).step_by(2).filter(|span| is_path(span)) {
            if !root().join(span).exists() {
                offences.push(format!(
                    "ARCHITECTURE.md:{number}: `{span}` does not exist; correct the path or the text"
                ));
            }
        }
    }
    report(offences);
}

#[test]
fn every_reason_is_documented_and_tested() {
    let documented = read("docs/reasons.md");
    let tests = test_text();
    let mut offences = Vec::new();
    for (line, variant, code) in reasons() {
        if !documented.contains(&format!("| `{code}` |")) {
            offences.push(format!(
                "policy/src/reason.rs:{line}: `{code}` has no row in docs/reasons.md; add one"
            ));
        }
        let excused = UNTESTED.iter().any(|(known, _)| *known == code);
        let tested = has_word(&tests, &code) || tests.contains(&format!("Reason::{variant}"));
        if !tested && !excused {
            offences.push(format!(
                "policy/src/reason.rs:{line}: no test names `{code}`; add one that provokes it"
            ));
        }
        if tested && excused {
            offences
                .push(format!("tests/tidy/documents.rs: `{code}` is tested now; take it out of UNTESTED"));
        }
    }
    report(offences);
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut offences = Vec::new();
    for document in documents() {
        for (number, line) in prose(&document) {
            for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                if link.contains("://") {
                    continue;
                }
                let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
                let folder = Path::new(&document).parent().unwrap_or(Path::new(""));
                let target = if file.is_empty() {
                    document.clone()
                } else {
                    folder.join(file).to_string_lossy().into_owned()
                };
                let path = root().join(&target);
                if !path.exists() {
                    offences
                        .push(format!("{document}:{number}: the link to {link} leads nowhere; correct it"));
                } else if !anchor.is_empty() && !anchors(&path).contains(anchor) {
                    offences.push(format!(
                        "{document}:{number}: {target} has no heading for #{anchor}; correct it"
                    ));
                }
            }
        }
    }
    report(offences);
}

/// The reasons as `policy/src/reason.rs` lists them: line, variant, code.
fn reasons() -> Vec<(usize, String, String)> {
    let text = read("policy/src/reason.rs");
    let row = |(number, line): (usize, &str)| {
        let (variant, rest) = line.trim().split_once(", \"")?;
        let (code, _) = rest.split_once("\", ")?;
        let plain = variant.chars().all(char::is_alphanumeric);
        plain.then(|| (number + 1, variant.to_owned(), code.to_owned()))
    };
    let found: Vec<_> = text.lines().enumerate().filter_map(row).collect();
    assert!(found.len() > 30, "policy/src/reason.rs is not written as this test reads it");
    found
}

/// All that tests consist of: their files, their data, and the test code inside `src/`.
fn test_text() -> String {
    let outside = files("tests").into_iter().chain(files("policy/tests"));
    let mut out: String =
        outside.filter(|path| !path.starts_with("tests/tidy/")).map(|path| read(&path)).collect();
    for path in files("src").into_iter().chain(files("policy/src")) {
        let text = read(&path);
        match text.find("#[cfg(test)]") {
            _ if is_test_file(&path) => out.push_str(&text),
            Some(at) => out.push_str(&text[at..]),
            None => {}
        }
    }
    out
}

/// The Markdown files of the tree.
fn documents() -> Vec<String> {
    let top =
        fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let folders = ["docs", "rules", "certs"].into_iter().filter(|folder| root().join(folder).is_dir());
    let below = folders.flat_map(files);
    top.chain(below).filter(|path| path.ends_with(".md")).collect()
}

/// The numbered lines of a document that are not in a code block.
fn prose(document: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut out = Vec::new();
    for (number, line) in read(document).lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            out.push((number + 1, line.to_owned()));
        }
    }
    out
}

fn is_path(span: &str) -> bool {
    let plain = !span.is_empty() && !span.contains(|c: char| c.is_whitespace() || "*{}()<>:".contains(c));
    let named = [".rs", ".md", ".toml", "/"].iter().any(|end| span.ends_with(end));
    plain && named && !span.starts_with('/')
}

/// The anchors that headings of a document get.
fn anchors(document: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(document).unwrap_or_default();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| is_word_char(*c) || matches!(c, ' ' | '-'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}
