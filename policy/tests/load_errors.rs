//! Files that do not load, or load with a warning, with every problem word for word:
//! `data/*.errors`.
//!
//! A case is a title (`=== …`), a main file, sections `--- rules/NAME.toml` and `--- around`, and
//! last `--- problems`: the lines that `check` prints, all of them and in order.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use egret_policy::{Problems, Severity};
use support::World;
use support::cases;

#[test]
fn every_problem_is_told_with_its_place_and_what_to_write_instead() {
    let mut failures = Vec::new();
    let mut count = 0;
    for path in cases::files("errors") {
        for case in cases::parse(&path, "problems") {
            let (_, problems) = support::read(&case.text, &case.world);
            let got = lines(&problems);
            count += got.len();
            if got != case.lines {
                let got = got.join("\n");
                let expected = case.lines.join("\n");
                failures.push(format!("=== {}\n{got}\n--- expected\n{expected}\n", case.title));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(count > 150, "only {count} problems");
}

/// A warning is marked as one, as a person would see it.
fn lines(problems: &Problems) -> Vec<String> {
    let mark = |severity| if severity == Severity::Warning { "warning: " } else { "" };
    problems.iter().map(|problem| format!("{}{problem}", mark(problem.severity))).collect()
}

#[test]
fn a_problem_is_one_line_whatever_the_file_holds() {
    let odd = "a\\nb\\u0085c\\u2028d\\u001b[31m\\u202e";
    for text in [
        format!("\"{odd}\" = 1\n"),
        format!("[policy]\n\"{odd}\" = 1\n"),
        format!("[policy.p]\nmode = \"{odd}\"\nrules = [\"{odd}\", \"{odd}\"]\n"),
        format!("[policy.p]\nrules = \"{odd}\"\nlimits.bytes = \"{odd}\"\n"),
        format!("[[deny]]\ndomains = [\"{odd}\", \".{odd}\", \"!{odd}\", \"{odd}:{odd}\", \" {odd}\"]\n"),
        format!("[[deny]]\naddresses = [\"{odd}\", \"{odd}/8\"]\nports = [\"{odd}\"]\n"),
        format!(
            "[[deny]]\ndomains = \"a.example\"\nmethods = \"{odd}\"\npaths = \"{odd}\"\ntls = \"{odd}\"\n"
        ),
        format!("[[sandbox]]\nid = \"{odd}\"\npolicy = \"{odd}\"\nsource = \"{odd}\"\nauth = \"{odd}\"\n"),
    ] {
        let (_, problems) = support::read(&text, &World::default());
        assert!(problems.any_error(), "{text}");
        for problem in problems.iter().map(ToString::to_string) {
            let plain = !problem.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{202e}'));
            assert!(plain, "{problem:?}");
        }
    }
}

#[test]
fn a_warning_does_not_keep_a_file_from_loading() {
    let text = "[[deny]]\ndomains = \"**.a.example\"\n[[policy.p.allow]]\ndomains = \"b.a.example\"\n";
    let (_, problems) = support::read(text, &World::default());
    assert_eq!(lines(&problems).len(), 1);
    assert!(!problems.any_error());
}
