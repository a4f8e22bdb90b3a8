//! Which tokens no longer hold, kept in a file of the state directory so that a restart forgets none.
//!
//! The file is NDJSON and only grows; what has become pointless is left out when it is opened. A
//! revocation counts as soon as it is asked for, and is reported as done once it is on the disk.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock};

use egret_policy::Token;
use serde::{Deserialize, Serialize};

use super::token::MAX_LIFETIME;

const FILE: &str = "revocations.ndjson";

/// What is revoked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Revocation {
    /// The token with this ID.
    Jti(String),
    /// Every token of this sandbox that was issued up to now, or does not say when.
    Sandbox(String),
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    /// Seconds since 1970.
    at: u64,
    #[serde(flatten)]
    what: Revocation,
}

/// The file of revocations can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RevocationsError {
    /// The system refuses.
    #[error("revocations {}: {source}; make the state directory readable and writable for egret", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line is not one of ours.
    #[error("revocations {}: line {line} can't be read; restore the file or remove the line", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// Its number, from 1.
        line: usize,
    },
}

/// Every revocation that can still matter.
#[derive(Debug)]
pub struct Revocations {
    /// When each was asked for last.
    known: RwLock<HashMap<Revocation, u64>>,
    file: PathBuf,
    /// Held while the file is written.
    writing: Mutex<()>,
}

impl Revocations {
    /// Reads those of earlier runs. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// The file is there and can't be read: nobody could say what it revoked.
    pub fn open(state_dir: &Path, now: u64) -> Result<Self, RevocationsError> {
        let file = state_dir.join(FILE);
        let failed = |source| RevocationsError::Io { file: file.clone(), source };
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text.map_err(failed)?,
        };
        let (known, written) =
            read(&text).map_err(|line| RevocationsError::Line { file: file.clone(), line })?;
        let still: HashMap<_, _> = known.into_iter().filter(|(_, at)| matters(*at, now)).collect();
        if still.len() < written || !(text.is_empty() || text.ends_with('\n')) {
            rewrite(&file, &still).map_err(failed)?;
        }
        Ok(Self { known: RwLock::new(still), file, writing: Mutex::new(()) })
    }

    /// Has this token of this sandbox been revoked?
    #[must_use]
    pub fn cover(&self, sandbox: &str, token: &Token) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if known.is_empty() {
            return false;
        }
        known.contains_key(&Revocation::Jti(token.id.to_string()))
            || known
                .get(&Revocation::Sandbox(sandbox.to_owned()))
                .is_some_and(|at| token.issued.is_none_or(|issued| issued <= *at))
    }

    /// Revokes, and returns when that is on the disk. Blocks.
    ///
    /// # Errors
    /// It counts, but only until this process ends: it could not be written down.
    pub fn add(&self, what: Revocation, now: u64) -> Result<(), RevocationsError> {
        let line = Line { at: now, what };
        {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            known.retain(|_, at| matters(*at, now));
            known.insert(line.what.clone(), now);
        }
        let failed = |source| RevocationsError::Io { file: self.file.clone(), source };
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        append(&self.file, &line).map_err(failed)
    }
}

/// Could a token that was issued before still be valid?
const fn matters(at: u64, now: u64) -> bool {
    now.saturating_sub(at) <= MAX_LIFETIME
}

/// The revocations of a file and how many lines they took, or the number of the line that is none.
///
/// What follows the last line end was being written when the process ended; nobody was told that it
/// is done.
fn read(text: &str) -> Result<(HashMap<Revocation, u64>, usize), usize> {
    let whole = text.rfind('\n').and_then(|end| text.get(..end)).unwrap_or_default();
    let mut known = HashMap::new();
    let mut count = 0;
    for line in whole.lines() {
        count += 1;
        let Line { at, what } = serde_json::from_str(line).map_err(|_| count)?;
        let known_at = known.entry(what).or_insert(at);
        *known_at = at.max(*known_at);
    }
    Ok((known, count))
}

fn encode(line: &Line) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn append(path: &Path, line: &Line) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let before = file.metadata()?.len();
    let written = file.write_all(&encode(line)?).and_then(|()| file.sync_all());
    if written.is_err() {
        // Half a line would make the next one unreadable.
        file.set_len(before)?;
    }
    written?;
    if before == 0 { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Puts another file in place in one step.
fn rewrite(path: &Path, known: &HashMap<Revocation, u64>) -> io::Result<()> {
    let draft = path.with_extension("ndjson.new");
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&draft)?;
    for (what, at) in known {
        file.write_all(&encode(&Line { at: *at, what: what.clone() })?)?;
    }
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn token(id: &str, issued: Option<u64>) -> Token {
        Token {
            id: id.into(),
            issued,
            key: [0; 32],
            audience: "egret".into(),
            workspace: None,
            tool: None,
            limits: None,
        }
    }

    #[test]
    fn revocations_survive() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let first = Revocations::open(&state, 100).unwrap();
        assert!(!first.cover("a", &token("t1", Some(50))));
        first.add(Revocation::Jti("t1".to_owned()), 100).unwrap();
        first.add(Revocation::Sandbox("b".to_owned()), 200).unwrap();
        for revocations in [first, Revocations::open(&state, 300).unwrap()] {
            assert!(revocations.cover("a", &token("t1", Some(50))));
            assert!(!revocations.cover("a", &token("t2", Some(50))));
            assert!(revocations.cover("b", &token("t2", Some(200))));
            assert!(!revocations.cover("b", &token("t2", Some(201))));
            assert!(revocations.cover("b", &token("t2", None)), "nobody knows when it was issued");
        }
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(state.join(FILE)).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn what_is_pointless_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let first = Revocations::open(dir.path(), 100).unwrap();
        first.add(Revocation::Jti("old".to_owned()), 100).unwrap();
        first.add(Revocation::Sandbox("b".to_owned()), 200).unwrap();
        first.add(Revocation::Sandbox("b".to_owned()), 300).unwrap();
        let later = 100 + MAX_LIFETIME + 1;
        let second = Revocations::open(dir.path(), later).unwrap();
        assert!(!second.cover("a", &token("old", Some(50))));
        assert!(second.cover("b", &token("t", Some(300))), "the later of two counts");
        let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert_eq!(text, "{\"at\":300,\"sandbox\":\"b\"}\n");
    }

    #[test]
    fn half_a_line_at_the_end_is_dropped_and_any_other_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(FILE);
        fs::write(&file, "{\"at\":1,\"jti\":\"a\"}\n{\"at\":2,\"jt").unwrap();
        let revocations = Revocations::open(dir.path(), 2).unwrap();
        assert!(revocations.cover("x", &token("a", None)));
        revocations.add(Revocation::Jti("b".to_owned()), 3).unwrap();
        assert!(Revocations::open(dir.path(), 4).unwrap().cover("x", &token("b", None)));
        fs::write(&file, "{\"at\":1,\"jti\":\"a\"}\nnonsense\n{\"at\":1,\"jti\":\"b\"}\n").unwrap();
        let error = Revocations::open(dir.path(), 2).unwrap_err();
        assert!(matches!(error, RevocationsError::Line { line: 2, .. }), "{error}");
    }

    #[test]
    fn what_can_not_be_written_counts_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let revocations = Revocations::open(&dir.path().join("state"), 1).unwrap();
        fs::write(dir.path().join("state"), "a file in the way").unwrap();
        revocations.add(Revocation::Jti("a".to_owned()), 1).unwrap_err();
        assert!(revocations.cover("x", &token("a", None)));
    }
}
