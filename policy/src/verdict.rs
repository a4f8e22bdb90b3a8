//! What the policy says to an intent: a grant or a refusal, no third case.

use std::sync::Arc;

use crate::guard::Grant;
use crate::reason::Reason;
use crate::rules::Rule;

/// The answer to an [`crate::intent::Intent`].
#[derive(Debug)]
#[must_use = "a verdict that nobody looks at decides nothing"]
pub enum Verdict {
    /// The destination may be looked up; its addresses are still to be checked.
    Allow(Grant),
    /// It may not.
    Deny(Refusal),
}

/// A refusal, and what may be said about it. Refusing is always safe, so anyone can make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// `file:line` of the rule that decided, if one did.
    pub rule: Option<Arc<str>>,
    /// The operator's words on that rule.
    pub words: Option<Arc<str>>,
    /// What else the audit record should say; never shown to the client.
    pub detail: Option<Arc<str>>,
}

impl Refusal {
    /// A refusal that no rule decided.
    #[must_use]
    pub const fn new(reason: Reason) -> Self {
        Self { reason, rule: None, words: None, detail: None }
    }

    /// A refusal by a rule.
    #[must_use]
    pub fn by(reason: Reason, rule: &Rule) -> Self {
        Self { reason, rule: Some(Arc::clone(&rule.cite)), words: rule.reason.clone(), detail: None }
    }

    /// The same with words for the audit record.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<Arc<str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}
