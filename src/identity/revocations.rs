//! Which tokens no longer hold, kept in a file of the state directory so that a restart forgets none.
//!
//! The file is NDJSON and only grows; what has become pointless is left out when it is opened. A
//! revocation counts as soon as it is asked for, and is reported as done once it is on the disk.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock};

use egret_policy::Token;
use serde::{Deserialize, Serialize};

use super::journal::{self, ReadError};
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
        let (lines, cut): (Vec<Line>, bool) = journal::read(&file).map_err(|error| match error {
            ReadError::Io(source) => failed(source),
            ReadError::Line(line) => RevocationsError::Line { file: file.clone(), line },
        })?;
        let written = lines.len();
        let mut still = HashMap::new();
        for Line { at, what } in lines.into_iter().filter(|line| matters(line.at, now)) {
            let known_at = still.entry(what).or_insert(at);
            *known_at = at.max(*known_at);
        }
        if still.len() < written || cut {
            let lines = still.iter().map(|(what, at)| Line { at: *at, what: what.clone() });
            journal::rewrite(&file, lines).map_err(failed)?;
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
        journal::append(&self.file, &line).map_err(failed)
    }
}

/// Could a token that was issued before still be valid?
const fn matters(at: u64, now: u64) -> bool {
    now.saturating_sub(at) <= MAX_LIFETIME
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

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
            over: None,
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
