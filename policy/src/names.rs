//! Name patterns of rules, and the suffix index that finds the ones that match a name.
//!
//! A look-up probes a hash table once a label of the name, however many patterns there are.
//! Never matches an IP literal and never looks at anything but the canonical name.

use std::fmt;
use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use hashbrown::HashTable;

use crate::host::{DnsName, HostError};
use crate::ports::{PortSet, parse_port};

/// Which names a pattern covers, relative to its own name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// `a.example`: the name alone.
    Exact,
    /// `*.a.example`: every subdomain at any depth, not the name itself.
    Below,
    /// `**.a.example`: the name and every subdomain.
    Tree,
}

/// A pattern of a rule's `domains`, such as `*.a.example:8443`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern {
    /// What is covered.
    pub reach: Reach,
    /// The name that the pattern is relative to, as A-labels.
    pub name: DnsName,
    /// The entry's own ports, which then count instead of the rule's.
    pub ports: Option<PortSet>,
}

/// Why some text is not a name pattern, with what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PatternError {
    message: String,
    /// What to write instead.
    pub help: String,
}

impl NamePattern {
    /// Parses a pattern as rules write it; Unicode is converted to A-labels (UTS 46).
    ///
    /// # Errors
    /// Everything that is not exactly a name, `*.name` or `**.name` with an optional port.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        reject_other_syntax(text)?;
        let (pattern, ports) = split_port(text)?;
        let (reach, name) = split_stars(pattern);
        if name.contains('*') || name.trim_matches('.').is_empty() {
            return Err(star_error(text));
        }
        if name.starts_with('.') {
            let bare = name.trim_start_matches('.');
            let help = format!("write `*.{bare}` for its subdomains or `**.{bare}` for both");
            return Err(error(format!("`{text}` begins with a dot"), help));
        }
        let name = to_ascii(name)?;
        Ok(Self { reach, name, ports })
    }

    /// Does it cover this name? Ports are not looked at.
    #[must_use]
    pub fn covers(&self, name: &DnsName) -> bool {
        let below = || {
            let prefix = name.as_str().strip_suffix(self.name.as_str());
            prefix.is_some_and(|prefix| prefix.ends_with('.'))
        };
        match self.reach {
            Reach::Exact => *name == self.name,
            Reach::Below => below(),
            Reach::Tree => *name == self.name || below(),
        }
    }

    /// Does it cover every name that `other` covers?
    #[must_use]
    pub fn covers_all_of(&self, other: &Self) -> bool {
        match (self.reach, other.reach) {
            (_, Reach::Exact) => self.covers(&other.name),
            (Reach::Exact, _) => false,
            (Reach::Below, Reach::Below) => self.name == other.name || self.covers(&other.name),
            (Reach::Below, Reach::Tree) => self.covers(&other.name),
            (Reach::Tree, _) => self.covers(&other.name),
        }
    }
}

/// The pattern as a rule would write it.
impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.reach {
            Reach::Exact => "",
            Reach::Below => "*.",
            Reach::Tree => "**.",
        })?;
        self.name.fmt(f)?;
        match &self.ports {
            Some(ports) => write!(f, ":{ports}"),
            None => Ok(()),
        }
    }
}

fn error(message: String, help: impl Into<String>) -> PatternError {
    PatternError { message, help: help.into() }
}

fn star_error(text: &str) -> PatternError {
    error(
        format!("`{text}` is not a name pattern: a star stands alone as the first label, before a name"),
        "write `a.example`, `*.a.example` (subdomains) or `**.a.example` (both); for an open policy use `default = \"allow\"`",
    )
}

/// Names what other tools' syntax means here, before the character check would just say no.
fn reject_other_syntax(text: &str) -> Result<(), PatternError> {
    if text.trim().is_empty() {
        return Err(error("a domain is empty".to_owned(), "write a name such as `a.example`"));
    }
    if text.chars().any(char::is_control) {
        return Err(error(format!("`{text}` holds a control character"), "write it without"));
    }
    if text.trim() != text {
        let help = format!("write `{}`", text.trim());
        return Err(error("a domain has white space around it".to_owned(), help));
    }
    if text.contains("://") {
        return Err(error(format!("`{text}` is a URL"), "write the host alone, and its paths under `paths`"));
    }
    if text.contains('/') {
        let help = "write the host alone; networks go under `addresses`, paths under `paths`";
        return Err(error(format!("`{text}` holds a slash"), help));
    }
    if let Some(name) = text.strip_prefix('!') {
        let help = format!("write `domains = [\"{name}\"]` in a [[deny]] table");
        return Err(error(format!("`{text}` is a negation"), help));
    }
    if text.starts_with('[') {
        let help = "write IPv6 addresses under `addresses`, and their ports under `ports`";
        return Err(error(format!("`{text}` is an IP address"), help));
    }
    Ok(())
}

fn split_port(text: &str) -> Result<(&str, Option<PortSet>), PatternError> {
    let Some((pattern, port)) = text.split_once(':') else {
        return Ok((text, None));
    };
    if port.contains(':') {
        let help = "write one port after the name; IPv6 addresses go under `addresses`";
        return Err(error(format!("`{text}` has more than one colon"), help));
    }
    let ports = match port {
        "*" => PortSet::all(),
        digits => PortSet::one(parse_port(digits).ok_or_else(|| {
            let help = "write a port from 1 to 65535, or `*` for every port";
            error(format!("`{port}` is not a port"), help)
        })?),
    };
    Ok((pattern, Some(ports)))
}

fn split_stars(pattern: &str) -> (Reach, &str) {
    if let Some(name) = pattern.strip_prefix("**.") {
        (Reach::Tree, name)
    } else if let Some(name) = pattern.strip_prefix("*.") {
        (Reach::Below, name)
    } else {
        (Reach::Exact, pattern)
    }
}

fn to_ascii(name: &str) -> Result<DnsName, PatternError> {
    let ascii = if name.is_ascii() {
        name.to_owned()
    } else {
        idna::domain_to_ascii(name).map_err(|_| {
            error(format!("`{name}` is not a valid internationalised name"), "write its A-labels")
        })?
    };
    let parsed = DnsName::parse(ascii.as_bytes()).map_err(|cause| match cause {
        HostError::Address => {
            error(format!("`{name}` is an IP address"), format!("write `addresses = [\"{name}\"]`"))
        }
        HostError::Numeric { .. } => {
            let help = "write addresses as four decimal parts, under `addresses`";
            error(format!("`{name}` ends in a number, so it is never a name"), help)
        }
        cause => {
            let several = name.contains(|c: char| c == ',' || c.is_whitespace());
            let help = if several { "write each name by itself" } else { "write letters, digits, - and _" };
            error(format!("`{name}` is not a domain name: {cause}"), help)
        }
    })?;
    check_a_labels(&parsed)?;
    Ok(parsed)
}

/// A label that begins with `xn--` must be one that decodes and encodes to itself.
fn check_a_labels(name: &DnsName) -> Result<(), PatternError> {
    for label in name.as_str().split('.').filter(|label| label.starts_with("xn--")) {
        let (unicode, result) = idna::domain_to_unicode(label);
        let same = idna::domain_to_ascii(&unicode).is_ok_and(|again| again == label);
        if result.is_err() || !same || unicode.is_ascii() {
            let help = "write the name in Unicode, or its correct A-label";
            return Err(error(format!("`{label}` is not a valid A-label"), help));
        }
    }
    Ok(())
}

/// An index of patterns: name → the rules whose patterns cover it.
///
/// Names lie in one string and entries are small, so a million patterns take about 60 MB.
#[derive(Debug)]
pub struct NameIndex {
    hasher: RandomState,
    text: String,
    table: HashTable<u32>,
    names: Vec<NameEntry>,
    postings: Vec<Posting>,
    ports: Vec<PortSet>,
}

#[derive(Debug)]
struct NameEntry {
    start: u32,
    length: u8,
    /// The first posting of a list linked by `next`.
    head: u32,
}

#[derive(Debug)]
struct Posting {
    rule: u32,
    next: u32,
    /// Index of the entry's own ports, or `NONE`.
    ports: u32,
    reach: Reach,
}

const NONE: u32 = u32::MAX;

/// A pattern that covers the name that was looked up.
#[derive(Debug, Clone, Copy)]
pub struct Match<'a> {
    /// The rule's number in its list.
    pub rule: u32,
    /// The pattern's own ports.
    pub ports: Option<&'a PortSet>,
    /// What the pattern covers, relative to its name.
    pub reach: Reach,
}

impl Default for NameIndex {
    fn default() -> Self {
        Self {
            hasher: RandomState::default(),
            text: String::new(),
            table: HashTable::new(),
            names: Vec::new(),
            postings: Vec::new(),
            ports: Vec::new(),
        }
    }
}

/// The index would need more than 2³² - 1 octets or entries.
#[derive(Debug, thiserror::Error)]
#[error("too many domain patterns")]
pub struct IndexFull;

impl NameIndex {
    /// Adds a pattern of a rule.
    ///
    /// # Errors
    /// [`IndexFull`]: the patterns together exceed what 32 bits can count.
    pub fn insert(&mut self, pattern: &NamePattern, rule: u32) -> Result<(), IndexFull> {
        let ports = match &pattern.ports {
            None => NONE,
            Some(ports) => self.intern_ports(ports)?,
        };
        let name = self.intern_name(pattern.name.as_str())?;
        let posting = next_number(self.postings.len())?;
        let entry = usize::try_from(name).ok().and_then(|i| self.names.get_mut(i)).ok_or(IndexFull)?;
        self.postings.push(Posting { rule, next: entry.head, ports, reach: pattern.reach });
        entry.head = posting;
        Ok(())
    }

    /// Calls `found` for each pattern that covers the name, in no order.
    pub fn each_match<'a>(&'a self, name: &DnsName, mut found: impl FnMut(Match<'a>)) {
        self.each_related(name, |matched, covers| {
            if covers {
                found(matched);
            }
        });
    }

    /// Calls `found` for each pattern on the name or a parent of it, and whether it covers the name.
    pub fn each_related<'a>(&'a self, name: &DnsName, mut found: impl FnMut(Match<'a>, bool)) {
        let full = name.as_str();
        let mut suffix = full;
        loop {
            let apex = suffix.len() == full.len();
            self.each_posting(suffix, |posting| {
                let covers = match posting.reach {
                    Reach::Exact => apex,
                    Reach::Below => !apex,
                    Reach::Tree => true,
                };
                let ports = usize::try_from(posting.ports).ok().and_then(|i| self.ports.get(i));
                found(Match { rule: posting.rule, ports, reach: posting.reach }, covers);
            });
            match suffix.split_once('.') {
                Some((_, parent)) => suffix = parent,
                None => return,
            }
        }
    }

    /// Calls `found` for each pattern that covers all names that `pattern` covers, in no order.
    pub fn each_covering<'a>(&'a self, pattern: &NamePattern, mut found: impl FnMut(Match<'a>)) {
        self.each_related(&pattern.name, |matched, covers_name| {
            let covers = match (matched.reach, pattern.reach) {
                (_, Reach::Exact) | (Reach::Below | Reach::Tree, Reach::Tree) => covers_name,
                (Reach::Exact, _) => false,
                (Reach::Below | Reach::Tree, Reach::Below) => true,
            };
            if covers {
                found(matched);
            }
        });
    }

    fn each_posting<'a>(&'a self, name: &str, mut found: impl FnMut(&'a Posting)) {
        let hash = self.hasher.hash_one(name);
        let Some(&number) = self.table.find(hash, |&number| self.name(number) == name) else {
            return;
        };
        let mut next = self.entry(number).map_or(NONE, |entry| entry.head);
        while let Some(posting) = usize::try_from(next).ok().and_then(|i| self.postings.get(i)) {
            found(posting);
            next = posting.next;
        }
    }

    fn entry(&self, number: u32) -> Option<&NameEntry> {
        self.names.get(usize::try_from(number).ok()?)
    }

    fn name(&self, number: u32) -> &str {
        let text = || {
            let entry = self.entry(number)?;
            let start = usize::try_from(entry.start).ok()?;
            self.text.get(start..start + usize::from(entry.length))
        };
        text().unwrap_or_default()
    }

    fn intern_name(&mut self, name: &str) -> Result<u32, IndexFull> {
        let hash = self.hasher.hash_one(name);
        if let Some(&number) = self.table.find(hash, |&number| self.name(number) == name) {
            return Ok(number);
        }
        let number = next_number(self.names.len())?;
        let start = next_number(self.text.len())?;
        let length = u8::try_from(name.len()).map_err(|_| IndexFull)?;
        self.text.push_str(name);
        self.names.push(NameEntry { start, length, head: NONE });
        let Self { table, names, text, hasher, .. } = self;
        table.insert_unique(hash, number, |&number| {
            let entry = usize::try_from(number).ok().and_then(|i| names.get(i));
            let slice = entry.and_then(|e| {
                let start = usize::try_from(e.start).ok()?;
                text.get(start..start + usize::from(e.length))
            });
            hasher.hash_one(slice.unwrap_or_default())
        });
        Ok(number)
    }

    fn intern_ports(&mut self, ports: &PortSet) -> Result<u32, IndexFull> {
        if let Some(known) = self.ports.iter().position(|p| p == ports) {
            return next_number(known);
        }
        let number = next_number(self.ports.len())?;
        self.ports.push(ports.clone());
        Ok(number)
    }
}

fn next_number(length: usize) -> Result<u32, IndexFull> {
    u32::try_from(length).ok().filter(|&n| n != NONE).ok_or(IndexFull)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_parse_and_display() {
        for (text, shown) in [
            ("a.example", "a.example"),
            ("A.Example.", "a.example"),
            ("*.a.example:8443", "*.a.example:8443"),
            ("**.a.example:*", "**.a.example:*"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
            ("_dmarc.a.example", "_dmarc.a.example"),
            ("r3---sn-ab.example", "r3---sn-ab.example"),
        ] {
            assert_eq!(NamePattern::parse(text).unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            " ",
            "*",
            "**",
            "*.",
            "**.",
            ".",
            "*.*.a.example",
            "***.a.example",
            "*a.example",
            "a.*.example",
            ".a.example",
            "^a\\.example$",
            "~a.example",
            "!a.example",
            " a.example",
            "a.example ",
            "a..example",
            "a%2e.example",
            "a.example\0",
            "*.xn--",
            "xn--a-.example",
            "a.example:0",
            "a.example:+443",
            "a.example:https",
            "a.example:65536",
            "a.example:443:443",
            "http://a.example",
            "a.example/x",
            "127.0.0.1",
            "*.0.0.1",
            "10.0.0.0/8",
            "2130706433",
            "::1",
            "[::1]:443",
            "a b.example",
            "a,b.example",
            "a.example;b.example",
            "*registry.example",
            "a.example:",
            "*:443",
        ] {
            assert!(NamePattern::parse(text).is_err(), "{text:?}");
        }
    }

    fn pattern() -> impl Strategy<Value = NamePattern> {
        let reach = prop_oneof![Just(""), Just("*."), Just("**.")];
        let port = prop_oneof![Just(""), Just(":8443"), Just(":*")];
        (reach, "[ab](\\.[ab]){0,2}\\.e", port)
            .prop_map(|(r, n, p)| NamePattern::parse(&format!("{r}{n}{p}")).unwrap())
    }

    proptest! {
        #[test]
        fn parse_of_display_is_identity(pattern in pattern()) {
            prop_assert_eq!(NamePattern::parse(&pattern.to_string()), Ok(pattern));
        }

        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let _ = NamePattern::parse(&text);
        }

        #[test]
        fn the_index_equals_a_linear_search(
            patterns in proptest::collection::vec(pattern(), 0..12),
            name in "[ab](\\.[ab]){0,3}\\.e",
        ) {
            let name = DnsName::parse(name.as_bytes()).unwrap();
            let mut index = NameIndex::default();
            for (i, pattern) in patterns.iter().enumerate() {
                index.insert(pattern, u32::try_from(i).unwrap()).unwrap();
            }
            let mut found = Vec::new();
            index.each_match(&name, |m| found.push((m.rule, m.ports.cloned())));
            found.sort();
            let naive = patterns.iter().enumerate().filter(|(_, p)| p.covers(&name));
            let naive: Vec<_> = naive.map(|(i, p)| (u32::try_from(i).unwrap(), p.ports.clone())).collect();
            prop_assert_eq!(found, naive);
        }

        #[test]
        fn the_index_finds_what_covers_a_whole_pattern(
            patterns in proptest::collection::vec(pattern(), 0..12), narrow in pattern(),
        ) {
            let mut index = NameIndex::default();
            for (i, pattern) in patterns.iter().enumerate() {
                index.insert(pattern, u32::try_from(i).unwrap()).unwrap();
            }
            let mut found = Vec::new();
            index.each_covering(&narrow, |m| found.push(m.rule));
            found.sort_unstable();
            let naive = patterns.iter().enumerate().filter(|(_, p)| p.covers_all_of(&narrow));
            let naive: Vec<_> = naive.map(|(i, _)| u32::try_from(i).unwrap()).collect();
            prop_assert_eq!(found, naive);
        }

        #[test]
        fn covering_all_of_a_pattern_means_covering_its_names(
            wide in pattern(), narrow in pattern(), name in "[ab](\\.[ab]){0,3}\\.e",
        ) {
            let name = DnsName::parse(name.as_bytes()).unwrap();
            if wide.covers_all_of(&narrow) && narrow.covers(&name) {
                prop_assert!(wide.covers(&name));
            }
        }
    }
}
