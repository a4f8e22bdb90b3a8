//! A site's own list: what must be blocked, allowed or refused, as TOML.
//!
//! Reads everything or reports everything that is wrong.

use std::path::Path;

use egret_policy::reader::{Located, Table, nearest, read_document};
use egret_policy::{Problems, Reason, SourceFile, word};

use super::decisions::Place;
use super::target::Target;

/// What is expected of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expected {
    /// There is no way past the proxy.
    Blocked(Target),
    /// The proxy leads there.
    Allowed(Place),
    /// The proxy refuses it, for this reason if there is one.
    Refused(Place, Option<String>),
}

#[derive(Debug, Clone, Copy)]
enum Word {
    Blocked,
    Allowed,
    Refused,
}

const WORDS: [(&str, Word); 3] =
    [("blocked", Word::Blocked), ("allowed", Word::Allowed), ("refused", Word::Refused)];

/// Reads a file; problems say what is wrong with it.
pub(super) fn read(path: &Path, problems: &mut Problems) -> Vec<Expected> {
    let name = path.display().to_string();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            problems.unplaced(format!("{name} can't be read: {error}"));
            return Vec::new();
        }
    };
    read_document(&SourceFile::new(&name, text), problems, |mut root, problems| {
        let spot = root.spot();
        if !root.has("target") {
            problems.error(&spot, format!("{name} holds no [[target]]"), "add one");
        }
        let tables = root.tables("target", problems);
        let all = tables.into_iter().filter_map(|table| expected(table, problems)).collect();
        root.finish(problems);
        all
    })
}

fn expected(mut table: Table<'_, '_>, problems: &mut Problems) -> Option<Expected> {
    let spot = table.spot();
    let target = table.string("target", problems);
    let word = word(&mut table, "expect", &WORDS, problems);
    let reason = table.string("reason", problems);
    // For people who read the file.
    table.string("note", problems);
    for key in ["target", "expect"].into_iter().filter(|key| !table.has(key)) {
        problems.error(&spot, format!("a [[target]] needs `{key}`"), "add it");
    }
    table.finish(problems);
    if let Some(reason) = &reason {
        check_reason(reason, word, problems);
    }
    let (target, word) = (target?, word?);
    let read = match word {
        Word::Blocked => target.value.parse().map(Expected::Blocked),
        Word::Allowed => target.value.parse().map(Expected::Allowed),
        Word::Refused => {
            target.value.parse().map(|place| Expected::Refused(place, reason.map(|reason| reason.value)))
        }
    };
    let help = "a blocked target is like \"tcp:192.0.2.1:80\", an allowed or refused one a URL or host:port";
    read.map_err(|error: String| problems.error(&target.spot, error, help)).ok()
}

fn check_reason(reason: &Located<String>, word: Option<Word>, problems: &mut Problems) {
    if matches!(word, Some(Word::Blocked | Word::Allowed)) {
        problems.error(&reason.spot, "`reason` is the code of a refusal", "leave it out, or use `note`");
    }
    let codes = || Reason::ALL.iter().map(|reason| reason.code());
    if codes().all(|code| code != reason.value) {
        let message = format!("there is no reason `{}`", reason.value.escape_debug());
        let help = match nearest(&reason.value, codes()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => "write a reason code; words for people go into `note`".to_owned(),
        };
        problems.error(&reason.spot, message, help);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> (Vec<Expected>, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("site.toml");
        std::fs::write(&path, text).unwrap();
        let mut problems = Problems::default();
        let found = read(&path, &mut problems);
        problems.sort();
        let folder = format!("{}/", dir.path().display());
        (found, problems.to_string().replace(&folder, ""))
    }

    #[test]
    fn a_list_is_read() {
        let (found, problems) = read_text(
            "[[target]]\ntarget = \"tcp:192.0.2.1:80\"\nexpect = \"blocked\"\nnote = \"the lab\"\n\
             [[target]]\ntarget = \"http://a.example/\"\nexpect = \"allowed\"\n\
             [[target]]\ntarget = \"b.example:443\"\nexpect = \"refused\"\nreason = \"domain_denied\"\n",
        );
        assert_eq!(problems, "");
        assert_eq!(
            found,
            [
                Expected::Blocked("tcp:192.0.2.1:80".parse().unwrap()),
                Expected::Allowed("http://a.example/".parse().unwrap()),
                Expected::Refused("b.example:443".parse().unwrap(), Some("domain_denied".to_owned())),
            ]
        );
    }

    #[test]
    fn everything_wrong_is_reported_at_once() {
        let (found, problems) = read_text(
            "[[target]]\ntarget = \"a.example\"\nexpect = \"allowed\"\nreason = \"domain_denied\"\n\
             [[target]]\nexpect = \"refused\"\nreason = \"domain_denid\"\nx = 1\n\
             [[target]]\ntarget = \"tcp:1\"\nexpect = \"bloked\"\n",
        );
        assert_eq!(found, []);
        let lines: Vec<_> = problems.lines().map(|line| line.split(" (").next().unwrap()).collect();
        assert_eq!(
            lines,
            [
                "site.toml:2:10: `a.example` is neither a URL nor host:port",
                "site.toml:4:10: `reason` is the code of a refusal",
                "site.toml:5:1: a [[target]] needs `target`",
                "site.toml:7:10: there is no reason `domain_denid`",
                "site.toml:8:1: unknown key `x`",
                "site.toml:11:10: `expect` has an unknown value: `bloked`",
            ]
        );
        assert!(read_text("").1.contains("holds no [[target]]"));
    }
}
