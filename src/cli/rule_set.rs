//! Rule sets that commands compare with, add to and print: read, checked, replaced whole.

use std::io;
use std::path::Path;

use egret_policy::SourceFile;

use super::{BAD_INPUT, FAILED, complain, files, show};
use crate::config::Files;
use crate::learn::{Base, Rules};

/// A command that can't go on, after it has said why; its exit code.
pub(super) struct Stop(pub(super) u8);

pub(super) fn stop(code: u8, message: &str) -> Stop {
    complain(message);
    Stop(code)
}

/// The rule set to compare with, or to add to, which need not be there yet.
pub(super) fn base(against: Option<&Path>, write: Option<&Path>) -> Result<Option<Base>, Stop> {
    match (against, write) {
        (Some(path), _) => read_base(path, false).map(Some),
        (None, Some(path)) => read_base(path, true).map(Some),
        (None, None) => Ok(None),
    }
}

/// The rule set at a path; where there `may_be_none`, an empty one for none.
fn read_base(path: &Path, may_be_none: bool) -> Result<Base, Stop> {
    let name = path.display().to_string();
    let text = match Files::default().read(path) {
        Ok(text) => text,
        Err(error) if may_be_none && error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(stop(BAD_INPUT, &format!("{name} can't be read: {error}"))),
    };
    Base::read(&SourceFile::new(&name, text)).map_err(|problems| {
        show(&problems);
        stop(BAD_INPUT, &format!("{name} is no rule set that loads"))
    })
}

/// What is proposed must be what a policy would load. `what` are the rules, for people.
pub(super) fn check(what: &str, text: String) -> Result<(), Stop> {
    Rules::read(&SourceFile::new(what, text)).map(|_| ()).map_err(|problems| {
        show(&problems);
        stop(FAILED, &format!("{what} would not load; this is a fault of egret"))
    })
}

/// Adds these rules to the file, after it was seen to load with them.
pub(super) fn add(path: &Path, base: &Base, addition: &str, rules: usize) -> Result<(), Stop> {
    let name = path.display();
    if addition.is_empty() {
        complain(&format!("nothing is new; {name} is as it was"));
        return Ok(());
    }
    let text = format!("{}{addition}", base.file().text());
    Base::read(&SourceFile::new(base.file().name(), text.clone())).map_err(|problems| {
        show(&problems);
        let message =
            format!("{name} can't be added to, and is as it was; write its rules as [[allow]] tables");
        stop(BAD_INPUT, &message)
    })?;
    files::replace(path, &text).map_err(|(message, code)| stop(code, &message))?;
    complain(&format!("{name}: {} added", count(rules as u64, "rule")));
    Ok(())
}

/// `1 rule`, `2 rules`.
pub(super) fn count(number: u64, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}
