//! What a check is and what comes of it; runs all of them and keeps their order.
//!
//! A check that did not end in time has failed: what hangs may be hiding something.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, timeout_at};

/// What came of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// It holds.
    Pass,
    /// It does not.
    Fail,
    /// Nobody can tell from here; never counted as passed.
    Unsupported,
}

/// How an attempt to reach something ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// There was an answer.
    Reached,
    /// Something said no: a reset, or an ICMP message that a port is closed.
    Refused,
    /// No route, or a router or this machine's own stack said that there is none.
    Unreachable,
    /// Nothing came back in time.
    TimedOut,
    /// This machine's own firewall, or a lack of privileges.
    Permission,
    /// Connected, but TLS with what is there failed.
    Handshake,
    /// None of these, such as a lack of descriptors: says nothing about the network.
    Other,
}

impl Kind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Reached => "reached",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed out",
            Self::Permission => "not permitted",
            Self::Handshake => "no TLS",
            Self::Other => "not tried",
        }
    }
}

/// What came of a check, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Outcome {
    pub(super) verdict: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<Kind>,
    pub(super) detail: String,
    /// Was the same target seen to be reachable from outside?
    pub(super) baseline: bool,
}

impl Outcome {
    pub(super) fn pass(detail: impl Into<String>) -> Self {
        Self::new(Verdict::Pass, detail)
    }

    pub(super) fn fail(detail: impl Into<String>) -> Self {
        Self::new(Verdict::Fail, detail)
    }

    pub(super) fn unsupported(detail: impl Into<String>) -> Self {
        Self::new(Verdict::Unsupported, detail)
    }

    fn new(verdict: Verdict, detail: impl Into<String>) -> Self {
        Self { verdict, kind: None, detail: detail.into(), baseline: false }
    }

    pub(super) fn of(mut self, kind: Kind) -> Self {
        self.kind = Some(kind);
        self
    }

    pub(super) fn countered(mut self) -> Self {
        self.baseline = true;
        self
    }
}

/// One check that was made.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Check {
    /// The group, as in docs/probe.md.
    #[serde(rename = "check")]
    pub(super) group: &'static str,
    /// What it was about, as a person names it.
    pub(super) subject: String,
    #[serde(flatten)]
    pub(super) outcome: Outcome,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.outcome.verdict {
            Verdict::Pass => "pass",
            Verdict::Fail => "FAIL",
            Verdict::Unsupported => "UNSUPPORTED",
        };
        write!(f, "{verdict:<11} {} {}: ", self.group, self.subject)?;
        if let Some(kind) = self.outcome.kind {
            write!(f, "{}: ", kind.as_str())?;
        }
        f.write_str(&self.outcome.detail)?;
        if self.outcome.baseline { f.write_str("; reached from outside") } else { Ok(()) }
    }
}

type Running = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Checks still to be made, in the order in which they are told.
#[derive(Default)]
pub(super) struct Plan(Vec<(&'static str, String, Running)>);

impl Plan {
    pub(super) fn add(
        &mut self,
        group: &'static str,
        subject: impl Into<String>,
        check: impl Future<Output = Outcome> + Send + 'static,
    ) {
        self.0.push((group, subject.into(), Box::pin(check)));
    }

    /// One whose outcome is known already.
    pub(super) fn known(&mut self, group: &'static str, subject: impl Into<String>, outcome: Outcome) {
        self.add(group, subject, std::future::ready(outcome));
    }

    /// Makes all of them side by side and tells each in turn, none later than `time` from now.
    pub(super) async fn run(self, time: Duration, mut tell: impl FnMut(&Check)) -> Vec<Check> {
        let until = Instant::now() + time;
        let started: Vec<_> =
            self.0.into_iter().map(|(group, subject, check)| (group, subject, tokio::spawn(check))).collect();
        let mut out = Vec::new();
        for (group, subject, task) in started {
            let abort = task.abort_handle();
            let outcome = match timeout_at(until, task).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) => Outcome::fail("the check itself broke; this is a fault of egret"),
                Err(_) => {
                    abort.abort();
                    Outcome::fail("not done when the time for all checks was up; --total gives more")
                }
            };
            let check = Check { group, subject, outcome };
            tell(&check);
            out.push(check);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(plan: Plan, time: Duration) -> (Vec<Verdict>, Vec<String>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut told = Vec::new();
        let done = runtime.block_on(plan.run(time, |check| told.push(check.to_string())));
        (done.iter().map(|check| check.outcome.verdict).collect(), told)
    }

    #[test]
    fn order_is_kept_and_what_breaks_fails() {
        let mut plan = Plan::default();
        plan.add("a", "slow", async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Outcome::pass("late")
        });
        plan.known("b", "fast", Outcome::unsupported("no"));
        plan.add("c", "broken", async { panic!("as planned") });
        let (verdicts, told) = run(plan, Duration::from_secs(60));
        assert_eq!(verdicts, [Verdict::Pass, Verdict::Unsupported, Verdict::Fail]);
        assert_eq!(told[0], "pass        a slow: late");
    }

    #[test]
    fn what_hangs_fails() {
        let mut plan = Plan::default();
        plan.add("d", "hangs", std::future::pending());
        let (verdicts, told) = run(plan, Duration::from_millis(10));
        assert_eq!(verdicts, [Verdict::Fail]);
        assert!(told[0].contains("the time for all checks was up"), "{told:?}");
    }
}
