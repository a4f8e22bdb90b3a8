//! The end of a run: how many checks hold, and the one line that says whether the sandbox does.

use serde::Serialize;

use super::check::{Check, Verdict};

/// Hours after which a baseline is old.
const OLD: u64 = 24;

/// What a run came to.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Report {
    pub(super) passed: bool,
    /// Checks that hold.
    restricted: usize,
    /// Those of them whose target was reached from outside.
    baseline: usize,
    failed: usize,
    unsupported: usize,
    /// What a person should know who reads that line alone.
    notes: Vec<String>,
}

impl Report {
    /// `age` is that of the baseline in hours, if there is one.
    pub(super) fn of(checks: &[Check], age: Option<u64>, strict: bool) -> Self {
        let count = |verdict| checks.iter().filter(|check| check.outcome.verdict == verdict).count();
        let countered = |check: &&Check| check.outcome.baseline && check.outcome.verdict == Verdict::Pass;
        let (restricted, failed, unsupported) =
            (count(Verdict::Pass), count(Verdict::Fail), count(Verdict::Unsupported));
        let baseline = checks.iter().filter(countered).count();
        let mut notes = Vec::new();
        if unsupported > 0 {
            notes.push(format!("{unsupported} checks could not be made, and count for nothing"));
        }
        match age {
            None => notes.push(
                "there was no baseline, so what timed out may be down instead of blocked; make one outside with `egret probe --baseline --write FILE`"
                    .to_owned(),
            ),
            Some(hours) if hours >= OLD => notes.push(format!("the baseline is {hours} hours old")),
            Some(_) => {}
        }
        let passed = failed == 0 && restricted > 0 && !(strict && unsupported > 0);
        Self { passed, restricted, baseline, failed, unsupported, notes }
    }

    pub(super) fn to_text(&self) -> String {
        let mut out: String = self.notes.iter().map(|note| format!("note: {note}\n")).collect();
        if self.passed {
            out.push_str(&format!(
                "PASS: {} restricted checks and {} baseline counterchecks\n",
                self.restricted, self.baseline
            ));
            return out;
        }
        out.push_str(&format!(
            "FAIL: {} checks failed, {} passed, {} could not be made\n",
            self.failed, self.restricted, self.unsupported
        ));
        out
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Outcome;
    use super::*;

    fn report(outcomes: Vec<Outcome>, strict: bool) -> Report {
        let check = |outcome| Check { group: "x", subject: String::new(), outcome };
        Report::of(&outcomes.into_iter().map(check).collect::<Vec<_>>(), Some(0), strict)
    }

    #[test]
    fn only_what_passed_counts() {
        let all =
            || vec![Outcome::pass("").countered(), Outcome::pass(""), Outcome::unsupported("").countered()];
        let text = report(all(), false).to_text();
        assert!(text.ends_with("\nPASS: 2 restricted checks and 1 baseline counterchecks\n"), "{text}");
        assert!(!report(all(), true).passed);
        let mut failed = all();
        failed.push(Outcome::fail(""));
        let text = report(failed, false).to_text();
        assert!(text.ends_with("\nFAIL: 1 checks failed, 2 passed, 1 could not be made\n"), "{text}");
    }

    #[test]
    fn nothing_that_passed_is_no_pass() {
        assert!(!report(vec![Outcome::unsupported("")], false).passed);
        assert!(!report(Vec::new(), false).passed);
    }
}
