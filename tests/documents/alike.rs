//! Is what was printed what the document shows?

use serde_json::{Map, Value};

/// What every origin answers with.
pub const PAGE: &str = "the page\n";
/// Values that differ from run to run.
const VARIABLE: [&str; 6] = ["seq", "ts", "id", "request", "client", "path_hash"];
/// In a document, anything.
const ANYTHING: char = '…';

/// Panics unless a command printed what the document shows; where that shows nothing, unless it did
/// well.
pub fn expect(command: &str, printed: &str, shown: &[String], did_well: impl FnOnce() -> bool) {
    let lines: Vec<&str> = printed.trim_end().lines().collect();
    let as_shown =
        || lines.len() == shown.len() && lines.iter().zip(shown).all(|(got, want)| alike(want, got));
    let fine = if shown.is_empty() { did_well() } else { as_shown() };
    let shown = shown.join("\n");
    assert!(fine, "{command} printed\n{printed}--- where the document shows\n{shown}\n");
}

/// Is a printed line what the document shows, but for what differs from run to run?
pub fn alike(shown: &str, printed: &str) -> bool {
    let (shown, printed) = (&without_times(shown), &without_times(printed));
    if let (Some(shown), Some(printed)) = (object(shown), object(printed)) {
        let same = |(name, value): (&String, &Value)| {
            printed.get(name).is_some_and(|got| got == value || VARIABLE.contains(&name.as_str()))
        };
        return shown.len() == printed.len() && shown.iter().all(same);
    }
    let Some((start, rest)) = shown.split_once(ANYTHING) else { return shown == printed };
    let Some(mut printed) = printed.strip_prefix(start) else { return false };
    let pieces: Vec<&str> = rest.split(ANYTHING).collect();
    for (at, piece) in pieces.iter().enumerate() {
        let found =
            if at + 1 == pieces.len() { printed.ends_with(piece).then_some(0) } else { printed.find(piece) };
        let Some(found) = found else { return false };
        printed = &printed[found..];
    }
    true
}

/// The line with one word for each time, and for each two that a span has.
fn without_times(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        match time(rest) {
            Some(_) => out.push_str("TIME"),
            None => out.push(first),
        }
        rest = &rest[time(rest).unwrap_or(first.len_utf8())..];
    }
    out.replace("TIME to TIME", "TIME")
}

/// The length of a time that begins here, as RFC 3339 has it.
fn time(text: &str) -> Option<usize> {
    const FORM: &[u8] = b"0000-00-00T00:00:00";
    let begin = text.as_bytes().get(..FORM.len())?;
    let fits = |(&byte, &form): (&u8, &u8)| if form == b'0' { byte.is_ascii_digit() } else { byte == form };
    let end = text[..].find('Z').filter(|_| begin.iter().zip(FORM).all(fits))?;
    let fraction = text.get(FORM.len()..end)?;
    fraction.chars().all(|c| c == '.' || c.is_ascii_digit()).then_some(end + 1)
}

pub fn object(text: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(text).ok()
}

#[test]
fn lines_are_alike_but_for_what_varies() {
    assert!(alike("a", "a") && !alike("a", "ab"));
    assert!(alike("http://a:x…@b", "http://a:xyz@b") && !alike("http://a:x…@b", "http://a:xyz@c"));
    assert!(alike(r#"{"id":"1","host":"a"}"#, r#"{"id":"2","host":"a"}"#));
    assert!(!alike(r#"{"id":"1","host":"a"}"#, r#"{"id":"1","host":"b"}"#));
    assert!(!alike(r#"{"id":"1"}"#, r#"{"id":"1","host":"b"}"#));
    let span = "a, 2026-11-29T21:56:48Z to 2026-11-29T21:56:49.123456Z, b";
    assert!(alike("a, 2026-11-30T00:00:00Z, b", span) && !alike("a, 2026-11-30T00:00:00Z, c", span));
    assert!(!alike("2026-11-30", "2026-11-29") && !alike("2026-11-30T00:00:00Z", "…"));
}
