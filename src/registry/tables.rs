//! TOML files of clients, read with the lines of their values.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::finding::Fault;
use super::machine::Text;
use super::text::line_at;

/// A value and where it stands.
pub(super) type At<'a> = (&'a str, usize);

/// Parses a file; the error has a line and none of its text.
pub(super) fn parse(file: &Text) -> Result<Spanned<DeTable<'_>>, Fault> {
    DeTable::parse(&file.text).map_err(|error| {
        let line = error.span().map(|span| line_at(&file.text, span.start));
        file.fault(line, "not TOML")
    })
}

/// The table behind these keys.
pub(super) fn table<'a, 'i>(root: &'a DeTable<'i>, keys: &[&str]) -> Option<&'a DeTable<'i>> {
    keys.iter().try_fold(root, |table, key| table.get(*key)?.get_ref().as_table())
}

/// A text and its line.
pub(super) fn string<'a>(file: &Text, table: &'a DeTable<'_>, key: &str) -> Option<At<'a>> {
    at(file, table.get(key)?)
}

/// The texts of a list, or the one that stands in its place.
pub(super) fn strings<'a>(file: &Text, table: &'a DeTable<'_>, key: &str) -> Vec<At<'a>> {
    let Some(value) = table.get(key) else { return Vec::new() };
    match value.get_ref() {
        DeValue::Array(list) => list.iter().filter_map(|item| at(file, item)).collect(),
        _ => at(file, value).into_iter().collect(),
    }
}

/// The items of a list, or the one that stands in its place.
pub(super) fn items<'a, 'i>(table: &'a DeTable<'i>, key: &str) -> Vec<&'a Spanned<DeValue<'i>>> {
    let Some(value) = table.get(key) else { return Vec::new() };
    value.get_ref().as_array().map_or_else(|| vec![value], |list| list.iter().collect())
}

/// A text, if it is one, and its line.
pub(super) fn at<'a>(file: &Text, value: &'a Spanned<DeValue<'_>>) -> Option<At<'a>> {
    Some((value.get_ref().as_str()?, line_at(&file.text, value.span().start)))
}

/// The tables of a list of tables.
pub(super) fn tables<'a, 'i>(table: &'a DeTable<'i>, key: &str) -> Vec<&'a DeTable<'i>> {
    let list = table.get(key).and_then(|value| value.get_ref().as_array());
    list.into_iter().flat_map(|list| list.iter()).filter_map(|item| item.get_ref().as_table()).collect()
}
