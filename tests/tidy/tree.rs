//! The files of the tree, and how offences are told.

use std::fs;
use std::path::Path;

use crate::code::{blanked, without_tests};

/// A Rust file of the tree.
pub struct Source {
    /// Relative to the root, with `/`.
    pub path: String,
    /// As it stands.
    pub text: String,
    /// The same with comments, literals and test code blanked; lines keep their numbers.
    pub code: String,
}

/// Fails with all offences at once.
pub fn report(offences: Vec<String>) {
    assert!(offences.is_empty(), "\n{}\n", offences.join("\n"));
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every file below a folder, in order, relative to the root.
pub fn files(folder: &str) -> Vec<String> {
    let mut out = Vec::new();
    let entries = fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    for entry in entries {
        let path = format!("{folder}/{}", entry.unwrap().file_name().to_string_lossy());
        if root().join(&path).is_dir() {
            out.extend(files(&path));
        } else {
            out.push(path);
        }
    }
    out.sort();
    out
}

/// The Rust files below a folder that are not tests.
pub fn sources(folder: &str) -> Vec<Source> {
    let paths = files(folder).into_iter().filter(|path| path.ends_with(".rs") && !is_test_file(path));
    let found: Vec<_> = paths
        .map(|path| {
            let text = read(&path);
            let code = without_tests(&blanked(&text));
            Source { path, text, code }
        })
        .collect();
    assert!(!found.is_empty(), "no sources below {folder}: the test looks in the wrong place");
    found
}

/// Files that exist for tests only, by the names that this tree gives them.
pub fn is_test_file(path: &str) -> bool {
    let stem = path.trim_end_matches(".rs");
    path.contains("/tests/")
        || stem.ends_with("/tests")
        || stem.ends_with("_tests")
        || stem.ends_with("/properties")
        || stem.ends_with("/testing")
}

/// `src/audit/id.rs` belongs to `audit`, `src/dial.rs` to `dial`.
pub fn module_of(path: &str) -> String {
    let inside = path.trim_start_matches("src/");
    inside.split('/').next().unwrap_or_default().trim_end_matches(".rs").to_owned()
}
