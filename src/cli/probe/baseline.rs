//! What could be reached from outside the sandbox, so that "blocked" is not just "down".
//!
//! Written by `egret probe --baseline` out there, read in here; a file that is no baseline is an
//! error, never an empty one.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::check::Kind;
use super::socket::Reach;

const SCHEMA: &str = "egret.probe.baseline/1";

/// A run from outside.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Baseline {
    schema: String,
    /// Seconds since 1970.
    made: u64,
    targets: BTreeMap<String, Seen>,
}

/// What came of one target.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Seen {
    reached: bool,
    detail: String,
}

/// What a baseline says of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Known {
    /// There is no baseline.
    Nothing,
    /// It was reached.
    Reached,
    /// It was not, or was not tried: why nothing can be said.
    Not(String),
}

impl Baseline {
    pub(super) fn new() -> Self {
        Self { schema: SCHEMA.to_owned(), made: now(), targets: BTreeMap::new() }
    }

    pub(super) fn note(&mut self, target: &str, reach: &Reach) {
        let seen = Seen {
            reached: reach.kind == Kind::Reached,
            detail: format!("{}: {}", reach.kind.as_str(), reach.detail),
        };
        self.targets.insert(target.to_owned(), seen);
    }

    pub(super) fn reached(&self) -> usize {
        self.targets.values().filter(|seen| seen.reached).count()
    }

    pub(super) fn tried(&self) -> usize {
        self.targets.len()
    }

    /// Whole hours since it was made.
    pub(super) fn age(&self) -> u64 {
        now().saturating_sub(self.made) / 3600
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// # Errors
    /// In words: it can't be read, or is no baseline.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| format!("{name} can't be read: {error}"))?;
        let help = "write one outside with `egret probe --baseline --write FILE`";
        let baseline: Self =
            serde_json::from_str(&text).map_err(|error| format!("{name} is no baseline: {error}; {help}"))?;
        if baseline.schema != SCHEMA {
            let schema = baseline.schema.escape_debug();
            return Err(format!("{name} is a baseline of another kind, `{schema}`; {help}"));
        }
        Ok(baseline)
    }

    pub(super) fn knows(baseline: Option<&Self>, target: &str) -> Known {
        let Some(baseline) = baseline else {
            return Known::Nothing;
        };
        match baseline.targets.get(target) {
            Some(seen) if seen.reached => Known::Reached,
            Some(seen) => Known::Not(format!("not reachable from outside either ({})", seen.detail)),
            None => Known::Not("the baseline did not try it; name it there too".to_owned()),
        }
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_baseline_is_read_back_and_nothing_else_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b.json");
        let mut baseline = Baseline::new();
        baseline.note("tcp:192.0.2.1:80", &Reach::new(Kind::Reached, "connected"));
        baseline.note("tcp:192.0.2.2:80", &Reach::new(Kind::TimedOut, "nothing"));
        std::fs::write(&path, baseline.to_json()).unwrap();
        let read = Baseline::read(&path).unwrap();
        assert_eq!((read.reached(), read.tried(), read.age()), (1, 2, 0));
        let knows = |target| Baseline::knows(Some(&read), target);
        assert_eq!(knows("tcp:192.0.2.1:80"), Known::Reached);
        assert!(matches!(knows("tcp:192.0.2.2:80"), Known::Not(why) if why.contains("timed out: nothing")));
        assert!(matches!(knows("tcp:192.0.2.3:80"), Known::Not(why) if why.contains("did not try")));
        assert_eq!(Baseline::knows(None, "tcp:192.0.2.1:80"), Known::Nothing);
        for wrong in ["", "{}", "[]", "{\"schema\":\"x\",\"made\":1,\"targets\":{}}"] {
            std::fs::write(&path, wrong).unwrap();
            assert!(Baseline::read(&path).is_err(), "{wrong}");
        }
        assert!(Baseline::read(&dir.path().join("none")).is_err());
    }
}
