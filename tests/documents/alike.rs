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
}
