//! How big files and functions get, and that each file says what it is for.

use crate::code::functions;
use crate::tree::{report, sources};

/// Lines of code in a file: not blank, not a comment, not a test.
const FILE_BUDGET: usize = 500;
/// Lines of a function, from `fn` to its closing brace.
const FUNCTION_BUDGET: usize = 90;
/// Files and functions that may be bigger, with the reason.
const BIGGER: &[(&str, &str)] = &[];

#[test]
fn files_and_functions_stay_small() {
    let mut offences = Vec::new();
    for source in sources("src").iter().chain(&sources("policy/src")) {
        let size = source.code.lines().filter(|line| !line.trim().is_empty()).count();
        if size > FILE_BUDGET && !is_excused(&source.path) {
            offences.push(format!(
                "{}:1: {size} lines of code, more than {FILE_BUDGET}; make it a folder of the same name, or list it in BIGGER with a reason",
                source.path
            ));
        }
        for (line, name, length) in functions(&source.code) {
            if length > FUNCTION_BUDGET && !is_excused(&format!("{}:{name}", source.path)) {
                offences.push(format!(
                    "{}:{line}: fn {name} has {length} lines, more than {FUNCTION_BUDGET}; split it, or list \"{}:{name}\" in BIGGER with a reason",
                    source.path, source.path
                ));
            }
        }
    }
    report(offences);
}

#[test]
fn every_file_says_what_it_is_for() {
    let all = sources("src").into_iter().chain(sources("policy/src"));
    let silent = all.filter(|source| !source.text.starts_with("//!"));
    report(
        silent.map(|source| format!("{}:1: open with `//!` and what the file is for", source.path)).collect(),
    );
}

fn is_excused(what: &str) -> bool {
    BIGGER.iter().any(|(known, _)| *known == what)
}
