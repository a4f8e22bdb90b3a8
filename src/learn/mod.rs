//! From the records of a run to the rules that the next run is held to.
//!
//! Sightings go in, a report comes out, and the policy itself is asked what a rule would do. Opens
//! no file, and proposes nothing that a person should look at first.

mod base;
mod judge;
mod known;
mod objection;
mod patterns;
mod report;
mod rules;
mod tally;
mod text;

#[cfg(test)]
mod tests;

pub use base::Base;
pub use judge::{Settings, doubt, judge};
pub use objection::Objection;
pub use report::{AllowedAlready, Complaint, NotProposed, Proposal, Report, Unused};
pub use rules::Rules;
pub use tally::{Full, Summary, Tally};
