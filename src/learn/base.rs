//! A rule set that exists, to compare with and to add to: what it accepts, and which of its entries
//! nobody used.

use std::sync::Arc;

use egret_policy::reader::{Scalar, Table, read_document};
use egret_policy::{Destination, NamePattern, Problems, SourceFile};

use super::report::Unused;
use super::rules::Rules;

/// A rule set file.
#[derive(Debug)]
pub struct Base {
    file: Arc<SourceFile>,
    rules: Rules,
    entries: Vec<Unused>,
    /// Each entry as a rule of its own, on the line of its number.
    apart: Rules,
}

impl Base {
    /// Reads it as a policy that takes it would.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn read(file: &Arc<SourceFile>) -> Result<Self, Problems> {
        let rules = Rules::read(file)?;
        let (entries, lines) = read_document(file, &mut Problems::default(), |mut root, problems| {
            let tables = root.tables("allow", problems).into_iter();
            tables.flat_map(|table| entries_of(table, problems)).unzip::<_, _, Vec<_>, Vec<_>>()
        });
        let apart = Rules::read(&SourceFile::new("entries", format!("allow = [\n{}]\n", lines.concat())))?;
        Ok(Self { file: Arc::clone(file), rules, entries, apart })
    }

    /// The file as it was read.
    #[must_use]
    pub const fn file(&self) -> &Arc<SourceFile> {
        &self.file
    }

    pub(super) const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Does a rule of it let some request pass there?
    #[must_use]
    pub fn accepts(&self, place: &Destination) -> bool {
        !self.rules.accepting_alone(place).is_empty()
    }

    /// The entries that accept none of these destinations.
    pub fn unused<'a>(&self, wanted: impl Iterator<Item = &'a Destination>) -> Vec<Unused> {
        let mut used = vec![false; self.entries.len()];
        for place in wanted {
            for cite in self.apart.accepting_alone(place) {
                // Line 1 opens the list.
                let line = cite.rsplit_once(':').and_then(|(_, line)| line.parse::<usize>().ok());
                let number = line.and_then(|line| line.checked_sub(2));
                if let Some(used) = number.and_then(|number| used.get_mut(number)) {
                    *used = true;
                }
            }
        }
        let unused = self.entries.iter().zip(used).filter(|(_, used)| !used);
        unused.map(|(entry, _)| entry.clone()).collect()
    }
}

/// The entries of an allow table, each with a rule for it alone on one line. Methods and paths are
/// left out: whether they fit is not in the records.
fn entries_of(mut table: Table<'_, '_>, problems: &mut Problems) -> Vec<(Unused, String)> {
    let rule = table.spot().cite().to_string();
    let ports = table.numbers_or_strings("ports", problems);
    let ports: Vec<_> = ports.into_iter().flatten().map(|port| port.value).collect();
    let key = if ports.is_empty() {
        String::new()
    } else {
        let each = ports.iter().map(|port| match port {
            Scalar::Number(number) => number.to_string(),
            Scalar::Text(text) => format!("\"{text}\""),
        });
        format!(", ports = [{}]", each.collect::<Vec<_>>().join(", "))
    };
    let shown = if ports.is_empty() { "80, 443".to_owned() } else { key.replace(", ports = ", "") };
    let shown = shown.trim_matches(['[', ']']).replace('"', "");
    let domains = table.strings("domains", problems);
    let names = domains.iter().flatten().filter_map(|domain| NamePattern::parse(&domain.value).ok());
    let named = names.map(|pattern| {
        let ports = pattern.ports.as_ref().map_or_else(|| shown.clone(), ToString::to_string);
        (pattern.to_string(), ports, format!("domains = [\"{pattern}\"]"))
    });
    let networks = if domains.is_none() { table.strings("addresses", problems) } else { None };
    let literal = networks
        .into_iter()
        .flatten()
        .map(|net| (net.value.clone(), shown.clone(), format!("addresses = [\"{}\"]", net.value)));
    named
        .chain(literal)
        .map(|(entry, ports, what)| {
            let line = format!("  {{ {what}{key}, shared_suffix = true }},\n");
            (Unused { entry, ports, rule: rule.clone() }, line)
        })
        .collect()
}
