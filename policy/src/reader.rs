//! Reads TOML tables by key and collects everything that is wrong: unknown keys, wrong types,
//! wrong values. Serde stops at the first error, which is why this is not serde.
//!
//! Never fills a gap: a key of the wrong type is an error and reads as absent.

use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::source::{Problem, Problems, Severity, SourceFile, Spot};

/// A value with the place where it stands.
#[derive(Debug, Clone)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub spot: Spot,
}

/// Parses a file and hands its root table to `read`; syntax errors become problems.
pub fn read_document<T>(
    file: &Arc<SourceFile>,
    problems: &mut Problems,
    read: impl FnOnce(Table<'_, '_>, &mut Problems) -> T,
) -> T {
    let (root, errors) = DeTable::parse_recoverable(file.text());
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        let place = Some((Arc::clone(file), span));
        let message = error.message().to_owned();
        problems.push(Problem { severity: Severity::Error, place, message, help: None, secret: false });
    }
    let span = root.span();
    read(Table::new(file, root.get_ref(), span), problems)
}

/// A table being read. Call [`Table::finish`] last: it reports the keys that nobody asked for.
pub struct Table<'a, 'i> {
    file: &'a Arc<SourceFile>,
    table: &'a DeTable<'i>,
    span: Range<usize>,
    known: Vec<&'static str>,
}

impl<'a, 'i> Table<'a, 'i> {
    fn new(file: &'a Arc<SourceFile>, table: &'a DeTable<'i>, span: Range<usize>) -> Self {
        Self { file, table, span, known: Vec::new() }
    }

    /// Where the table begins.
    #[must_use]
    pub fn spot(&self) -> Spot {
        Spot::new(self.file, self.span.clone())
    }

    /// Does it hold the key, with whatever value?
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    fn get(&mut self, key: &'static str) -> Option<(&'a DeValue<'i>, Spot)> {
        self.known.push(key);
        let value = self.table.get(key)?;
        Some((value.get_ref(), Spot::new(self.file, value.span())))
    }

    /// A string.
    pub fn string(&mut self, key: &'static str, problems: &mut Problems) -> Option<Located<String>> {
        let (value, spot) = self.get(key)?;
        as_string(key, value, spot, problems)
    }

    /// A boolean.
    pub fn boolean(&mut self, key: &'static str, problems: &mut Problems) -> Option<Located<bool>> {
        let (value, spot) = self.get(key)?;
        match value.as_bool() {
            Some(value) => Some(Located { value, spot }),
            None => wrong_type(key, "true or false", value, &spot, problems),
        }
    }

    /// A whole number from `least` to `most`.
    pub fn integer(
        &mut self,
        key: &'static str,
        (least, most): (i64, i64),
        problems: &mut Problems,
    ) -> Option<Located<i64>> {
        let (value, spot) = self.get(key)?;
        let Some(number) = as_integer(value) else {
            return wrong_type(key, "a whole number", value, &spot, problems);
        };
        if number < least || number > most {
            problems.error(&spot, format!("`{key}` is out of range"), format!("write {least} to {most}"));
            return None;
        }
        Some(Located { value: number, spot })
    }

    /// One string or a list of them; `None` if the key is absent or nothing of it usable.
    pub fn strings(&mut self, key: &'static str, problems: &mut Problems) -> Option<Vec<Located<String>>> {
        let (value, spot) = self.get(key)?;
        let file = self.file;
        match value {
            DeValue::String(_) => as_string(key, value, spot, problems).map(|one| vec![one]),
            DeValue::Array(list) => {
                let each = list.iter().filter_map(|item| {
                    as_string(key, item.get_ref(), Spot::new(file, item.span()), problems)
                });
                usable(each.collect(), list.len())
            }
            _ => wrong_type(key, "a string or a list of strings", value, &spot, problems),
        }
    }

    /// A list of whole numbers and strings, as port lists are written; `None` as for strings.
    pub fn numbers_or_strings(
        &mut self,
        key: &'static str,
        problems: &mut Problems,
    ) -> Option<Vec<Located<Scalar>>> {
        let (value, spot) = self.get(key)?;
        let file = self.file;
        let items: Vec<_> = match value {
            DeValue::Array(list) => list.iter().map(|i| (i.get_ref(), Spot::new(file, i.span()))).collect(),
            _ => vec![(value, spot)],
        };
        let written = items.len();
        let each = items.into_iter().filter_map(|(item, spot)| {
            let scalar = as_integer(item)
                .map(Scalar::Number)
                .or_else(|| item.as_str().map(|text| Scalar::Text(text.to_owned())));
            match scalar {
                Some(value) => Some(Located { value, spot }),
                None => wrong_type(key, "a number or a string", item, &spot, problems),
            }
        });
        usable(each.collect(), written)
    }

    /// A sub-table.
    pub fn table(&mut self, key: &'static str, problems: &mut Problems) -> Option<Table<'a, 'i>> {
        let (value, spot) = self.get(key)?;
        match value.as_table() {
            Some(table) => Some(Table::new(self.file, table, self.value_span(key))),
            None => wrong_type(key, "a table", value, &spot, problems),
        }
    }

    /// An array of tables, in the order of the file.
    pub fn tables(&mut self, key: &'static str, problems: &mut Problems) -> Vec<Table<'a, 'i>> {
        let Some((value, spot)) = self.get(key) else {
            return Vec::new();
        };
        let Some(list) = value.as_array() else {
            let none: Option<()> = wrong_type(key, "an array of tables", value, &spot, problems);
            return none.map(|()| Vec::new()).unwrap_or_default();
        };
        let file = self.file;
        let each = list.iter().filter_map(|item| match item.get_ref().as_table() {
            Some(table) => Some(Table::new(file, table, item.span())),
            None => wrong_type(key, "a table", item.get_ref(), &Spot::new(file, item.span()), problems),
        });
        each.collect()
    }

    /// Every entry of this table as a named sub-table; keys are the operator's own words.
    pub fn named_tables(self, problems: &mut Problems) -> Vec<(Located<String>, Table<'a, 'i>)> {
        let file = self.file;
        let mut entries: Vec<_> = self.table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let each = entries.into_iter().filter_map(|(key, value)| {
            let name = Located { value: key.get_ref().to_string(), spot: Spot::new(file, key.span()) };
            match value.get_ref().as_table() {
                Some(table) => Some((name, Table::new(file, table, value.span()))),
                None => wrong_type(&name.value, "a table", value.get_ref(), &name.spot, problems),
            }
        });
        each.collect()
    }

    /// Every entry of this table as a list of strings; keys are the operator's own words.
    pub fn named_strings(self, problems: &mut Problems) -> Vec<(Located<String>, Vec<Located<String>>)> {
        let file = self.file;
        let mut out = Vec::new();
        for (key, value) in self.table {
            let name = Located { value: key.get_ref().to_string(), spot: Spot::new(file, key.span()) };
            let items: Vec<_> = match value.get_ref() {
                DeValue::Array(list) => {
                    list.iter().map(|i| (i.get_ref(), Spot::new(file, i.span()))).collect()
                }
                one => vec![(one, Spot::new(file, value.span()))],
            };
            let strings = items.into_iter().filter_map(|(v, s)| as_string(&name.value, v, s, problems));
            let strings = strings.collect();
            out.push((name, strings));
        }
        out
    }

    /// Reports every key that was not asked for, with the nearest one that exists.
    pub fn finish(self, problems: &mut Problems) {
        for key in self.table.keys() {
            let written = key.get_ref().as_ref();
            if self.known.contains(&written) {
                continue;
            }
            let help = match nearest(written, self.known.iter().copied()) {
                Some(known) => format!("did you mean `{known}`?"),
                None => format!("known keys here: {}", self.known.join(", ")),
            };
            let message = format!("unknown key `{}`", written.escape_debug());
            problems.error(&Spot::new(self.file, key.span()), message, help);
        }
    }

    fn value_span(&self, key: &str) -> Range<usize> {
        self.table.get(key).map_or(0..0, Spanned::span)
    }
}

/// A number or a string.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Scalar {
    Number(i64),
    Text(String),
}

/// The candidate that a person most likely meant, if one is close enough.
pub fn nearest<'a>(written: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = written.chars().count();
    let close = |distance: usize| distance <= 1 + length / 4 && distance < length;
    let near = candidates.map(|c| (edit_distance(written, c), c)).filter(|(d, _)| close(*d));
    near.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// Levenshtein's distance, one row at a time.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, to) in row.iter_mut().skip(1).zip(&b) {
            let above = *cell;
            left = (diagonal + usize::from(from != *to)).min(above + 1).min(left + 1);
            diagonal = above;
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

/// What could be read of a list of `written` items: an empty list is one, a list of errors is not.
fn usable<T>(read: Vec<T>, written: usize) -> Option<Vec<T>> {
    (written == 0 || !read.is_empty()).then_some(read)
}

fn as_integer(value: &DeValue<'_>) -> Option<i64> {
    let integer = value.as_integer()?;
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

fn as_string(key: &str, value: &DeValue<'_>, spot: Spot, problems: &mut Problems) -> Option<Located<String>> {
    match value.as_str() {
        Some(text) => Some(Located { value: text.to_owned(), spot }),
        None => wrong_type(key, "a string", value, &spot, problems),
    }
}

fn wrong_type<T>(
    key: &str,
    wanted: &str,
    value: &DeValue<'_>,
    spot: &Spot,
    problems: &mut Problems,
) -> Option<T> {
    let message = format!("`{}` has the wrong type: {}", key.escape_debug(), value.type_str());
    problems.error(spot, message, format!("write {wanted}"));
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_wrong_is_reported_at_once() {
        let text = "a = 1\nname = 3\nflg = true\nports = [1, \"2-3\", 1.5]\n[[t]]\nx = 1\n[[t]]\n";
        let file = SourceFile::new("f.toml", text.to_owned());
        let mut problems = Problems::default();
        read_document(&file, &mut problems, |mut root, problems| {
            assert!(root.string("name", problems).is_none());
            assert!(root.boolean("flag", problems).is_none());
            assert_eq!(root.numbers_or_strings("ports", problems).map(|p| p.len()), Some(2));
            let tables = root.tables("t", problems);
            let lines: Vec<_> = tables.iter().map(|t| t.spot().cite().to_string()).collect();
            assert_eq!(lines, ["f.toml:5", "f.toml:7"]);
            root.finish(problems);
        });
        let text = problems.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "f.toml:2:8: `name` has the wrong type: integer (write a string)",
                "f.toml:4:20: `ports` has the wrong type: float (write a number or a string)",
                "f.toml:1:1: unknown key `a` (known keys here: name, flag, ports, t)",
                "f.toml:3:1: unknown key `flg` (did you mean `flag`?)",
            ]
        );
    }

    #[test]
    fn syntax_errors_have_a_place() {
        let file = SourceFile::new("f.toml", "a = \nb = 1\nb = 2\n".to_owned());
        let mut problems = Problems::default();
        read_document(&file, &mut problems, |_, _| ());
        let text = problems.to_string();
        assert!(text.starts_with("f.toml:1:"), "{text}");
        assert!(text.contains("f.toml:3:1: duplicate key"), "{text}");
    }

    #[test]
    fn distances() {
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(nearest("domain", ["domains", "ports"].into_iter()), Some("domains"));
        assert_eq!(nearest("xyz", ["domains", "ports"].into_iter()), None);
    }
}
