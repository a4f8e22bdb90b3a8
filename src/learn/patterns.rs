//! Finds where one wildcard stands for several names. Knows names alone; who may have a wildcard
//! is a question to the caller.

use std::collections::{BTreeMap, BTreeSet};

/// Names that must be siblings before a wildcard stands for them.
const SIBLINGS: usize = 3;
/// Labels of a name beyond which no wildcard is looked for: it bounds the work for names that
/// somebody made up.
const DEPTH: usize = 10;

/// The wildcards, by the name that each is relative to, with the names that it stands for.
///
/// A wildcard needs names below it with three different next labels, none of which a deeper
/// wildcard stands for already; so the narrowest suffix wins. It covers no name of `blocked`.
pub(super) fn wildcards<'a>(
    names: &BTreeSet<&'a str>,
    blocked: &BTreeSet<&str>,
    mut may: impl FnMut(&str) -> bool,
) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let blocked: BTreeSet<&str> = blocked.iter().flat_map(|name| suffixes(name)).collect();
    let mut below: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for name in names.iter().filter(|name| depth(name) <= DEPTH) {
        for suffix in suffixes(name) {
            below.entry(suffix).or_default().insert(name);
        }
    }
    let mut candidates: Vec<_> = below.into_iter().filter(|(_, names)| names.len() >= SIBLINGS).collect();
    candidates.sort_by_key(|(suffix, _)| std::cmp::Reverse(depth(suffix)));
    let mut covered: BTreeSet<&str> = BTreeSet::new();
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (suffix, mut names) in candidates {
        names.retain(|name| !covered.contains(name));
        let next: BTreeSet<_> = names.iter().filter_map(|name| next_label(name, suffix)).collect();
        if next.len() >= SIBLINGS && !blocked.contains(suffix) && may(suffix) {
            covered.extend(&names);
            // A deeper wildcard has nothing left to say.
            for (_, inner) in found.extract_if(.., |inner, _| next_label(inner, suffix).is_some()) {
                names.extend(inner);
            }
            found.insert(suffix, names);
        }
    }
    found
}

/// The names above a name, the nearest first, as far as a wildcard may be relative to them.
fn suffixes(name: &str) -> impl Iterator<Item = &str> {
    let above = std::iter::successors(Some(name), |name| name.split_once('.').map(|(_, rest)| rest));
    above.skip(1).filter(|name| depth(name) < DEPTH)
}

fn depth(name: &str) -> usize {
    name.split('.').count()
}

/// The label of a name that stands before a suffix.
fn next_label<'a>(name: &'a str, suffix: &str) -> Option<&'a str> {
    name.strip_suffix(suffix)?.strip_suffix('.')?.rsplit('.').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(names: &[&str], blocked: &[&str]) -> Vec<String> {
        let (names, blocked) = (names.iter().copied().collect(), blocked.iter().copied().collect());
        let found = wildcards(&names, &blocked, |suffix| suffix.contains('.'));
        found.into_iter().map(|(suffix, names)| format!("{suffix} {}", names.len())).collect()
    }

    #[test]
    fn three_siblings_and_the_narrowest_suffix() {
        assert!(found(&["a.e.test", "b.e.test"], &[]).is_empty());
        assert_eq!(found(&["a.e.test", "b.e.test", "c.e.test"], &[]), ["e.test 3"]);
        let deep = ["a.x.e.test", "b.x.e.test", "c.x.e.test", "www.e.test", "e.test"];
        assert_eq!(found(&deep, &[]), ["x.e.test 3"]);
        assert_eq!(found(&["a.x.e.test", "b.y.e.test", "c.z.e.test"], &[]), ["e.test 3"]);
        let both = ["a.x.e.test", "b.x.e.test", "c.x.e.test", "d.e.test", "f.e.test", "g.e.test"];
        assert_eq!(found(&both, &[]), ["e.test 6"]);
        // Two next labels are no three siblings.
        assert!(found(&["a.x.e.test", "b.x.e.test", "c.y.e.test"], &[]).is_empty());
        // The name itself is not below itself, and a top-level name may have none.
        assert!(found(&["e.test", "a.e.test", "b.e.test", "f.test", "g.test"], &[]).is_empty());
    }

    #[test]
    fn no_wildcard_over_what_is_blocked() {
        let names = ["a.e.test", "b.e.test", "c.e.test"];
        assert!(found(&names, &["bad.e.test"]).is_empty());
        assert!(found(&names, &["very.bad.e.test"]).is_empty());
        assert_eq!(found(&names, &["e.test", "bad.test"]), ["e.test 3"]);
    }

    #[test]
    fn names_without_end_are_left_alone() {
        let long: Vec<_> = (0..5).map(|i| format!("{i}.{}e.test", "a.".repeat(60))).collect();
        let names: Vec<_> = long.iter().map(String::as_str).collect();
        assert!(found(&names, &[]).is_empty());
        // What can't be counted still blocks.
        assert!(found(&["a.e.test", "b.e.test", "c.e.test"], &names).is_empty());
    }
}
