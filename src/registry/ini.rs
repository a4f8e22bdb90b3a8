//! INI files in two dialects: that of Python's configparser, which pip reads, and npm's own.

/// A setting.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) section: String,
    pub(super) key: String,
    pub(super) value: String,
    pub(super) line: usize,
}

/// Reads what configparser reads: sections, `key = value` or `key: value`, values that go on in
/// indented lines. The error is a line.
pub(super) fn configparser(text: &str) -> Result<Vec<Entry>, (usize, &'static str)> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut section: Option<String> = None;
    // How far the last key is indented, while its value may go on.
    let mut open: Option<usize> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        if let (Some(base), Some(last)) = (open, entries.last_mut())
            && indent > base
        {
            last.value.push('\n');
            last.value.push_str(trimmed);
            continue;
        }
        if let Some(name) = trimmed.strip_prefix('[') {
            let name = name.split_once(']').ok_or((number, "a section without its closing bracket"))?.0;
            section = Some(name.trim().to_owned());
            open = None;
            continue;
        }
        let Some(section) = &section else {
            return Err((number, "a setting before the first [section]"));
        };
        let at = trimmed.find(['=', ':']).ok_or((number, "neither a [section] nor KEY = VALUE"))?;
        let (key, value) = trimmed.split_at(at);
        let key = key.trim().to_ascii_lowercase().replace('_', "-");
        if key.is_empty() {
            return Err((number, "a value without a key"));
        }
        let key = key.strip_prefix("--").map(str::to_owned).unwrap_or(key);
        let value = value.get(1..).unwrap_or_default().trim().to_owned();
        entries.push(Entry { section: section.clone(), key, value, line: number });
        open = Some(indent);
    }
    Ok(entries)
}

/// Reads what npm reads: `key = value`, quoted or up to a comment. Nothing is an error to it.
pub(super) fn npm(text: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut section = String::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.clone_into(&mut section);
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, "true"));
        let (key, value) = (unquote(key), unquote(value));
        entries.push(Entry { section: section.clone(), key, value, line: number });
    }
    entries
}

fn unquote(text: &str) -> String {
    let text = text.trim();
    let inside = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    if let Some(inside) = inside('"') {
        return serde_json::from_str(text).unwrap_or_else(|_| inside.to_owned());
    }
    if let Some(inside) = inside('\'') {
        return inside.to_owned();
    }
    let (mut out, mut escaped) = (String::new(), false);
    for c in text.chars() {
        match c {
            _ if escaped => {
                if !matches!(c, '\\' | ';' | '#') {
                    out.push('\\');
                }
                out.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            ';' | '#' => break,
            c => out.push(c),
        }
    }
    if escaped {
        out.push('\\');
    }
    out.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(entries: &[Entry]) -> Vec<(&str, &str, &str, usize)> {
        entries.iter().map(|e| (e.section.as_str(), e.key.as_str(), e.value.as_str(), e.line)).collect()
    }

    #[test]
    fn values_go_on_where_they_are_indented() {
        let text = "# head\n[global]\nindex_url=https://a.example\n--extra-index-url =\n  https://b.example\n  ; no\n\n  https://c.example\ntimeout: 3\n[install]\nno-index = x";
        let entries = configparser(text).unwrap();
        assert_eq!(
            pairs(&entries),
            [
                ("global", "index-url", "https://a.example", 3),
                ("global", "extra-index-url", "\nhttps://b.example\nhttps://c.example", 4),
                ("global", "timeout", "3", 9),
                ("install", "no-index", "x", 11),
            ]
        );
    }

    #[test]
    fn what_configparser_refuses_is_refused_with_its_line() {
        for (text, line) in [("a = b", 1), ("[g\n", 1), ("[g]\n\nwords", 3), ("[g]\n= x", 2)] {
            assert_eq!(configparser(text).unwrap_err().0, line, "{text:?}");
        }
    }

    #[test]
    fn npm_ends_values_at_comments_and_takes_quotes_off() {
        let text = "a = b ; c\n\"k\" = \"x#y\"\n; no\nflag\n[s]\ne='q'\nf=a\\;b\\n\ng=trailing\\";
        assert_eq!(
            pairs(&npm(text)),
            [
                ("", "a", "b", 1),
                ("", "k", "x#y", 2),
                ("", "flag", "true", 4),
                ("s", "e", "q", 6),
                ("s", "f", "a;b\\n", 7),
                ("s", "g", "trailing\\", 8),
            ]
        );
    }
}
