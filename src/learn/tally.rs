//! Counts sightings by destination. The order in which they come makes no difference, so files may
//! be read one after the other whatever times they hold.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use egret_policy::{Class, classify};
use serde::Serialize;

use super::objection::{Bearing, Objection};
use crate::ledger::Sighting;

/// Destinations that are kept.
const PLACES: usize = 100_000;
/// Policies that are told apart.
const POLICIES: usize = 1000;
/// Sandboxes that are named for one destination, the first by name.
const SANDBOXES: usize = 8;
/// Bytes of a text from outside that are kept.
const TEXT: usize = 300;

/// Who asked how often, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// How many requests.
    pub requests: u64,
    /// IDs of the sandboxes, at most eight.
    pub sandboxes: BTreeSet<String>,
    /// Are there others?
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub more_sandboxes: bool,
    /// Time of the earliest record.
    pub first_seen: String,
    /// Time of the latest record.
    pub last_seen: String,
}

/// More than is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the records name more than {PLACES} destinations or {POLICIES} policies; narrow them with --sandbox, --policy or --since"
)]
pub struct Full;

/// What is known of one destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub summary: Summary,
    /// Was nothing but its name asked for, by DNS?
    pub name_alone: bool,
    /// Was it ever wanted, and refused by nothing but the silence of the rules?
    pub wanted: bool,
    /// The policies that decided.
    pub policies: BTreeSet<Arc<str>>,
    /// What records say against it, each with the detail that comes first in order.
    pub objections: BTreeMap<Objection, String>,
}

/// Host as written, and port where there is one.
pub(super) type Place = (String, Option<u16>);

/// All destinations of the records that were added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub(super) places: BTreeMap<Place, Seen>,
    pub(super) whole: Summary,
    policies: BTreeSet<Arc<str>>,
}

impl Summary {
    fn add(&mut self, ts: &str, sandbox: Option<&str>) {
        let sandboxes = sandbox.map(|id| BTreeSet::from([cut(id)])).unwrap_or_default();
        let one = Self {
            requests: 1,
            sandboxes,
            more_sandboxes: false,
            first_seen: ts.into(),
            last_seen: ts.into(),
        };
        self.merge(&one);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        if self.requests == 0 || other.requests > 0 && other.first_seen < self.first_seen {
            self.first_seen.clone_from(&other.first_seen);
        }
        if other.last_seen > self.last_seen {
            self.last_seen.clone_from(&other.last_seen);
        }
        self.requests += other.requests;
        self.sandboxes.extend(other.sandboxes.iter().cloned());
        self.more_sandboxes |= other.more_sandboxes;
        while self.sandboxes.len() > SANDBOXES {
            self.sandboxes.pop_last();
            self.more_sandboxes = true;
        }
    }
}

impl Tally {
    /// Counts one sighting. `reached` tells which address is behind another, as
    /// [`Rules::reached`](super::Rules::reached) does.
    ///
    /// # Errors
    /// [`Full`]: what was counted so far is no whole picture.
    pub fn add(&mut self, sighting: &Sighting, reached: impl Fn(IpAddr) -> IpAddr) -> Result<(), Full> {
        let place = (sighting.host.as_deref().map(cut).unwrap_or_default(), sighting.port);
        if self.places.len() >= PLACES && !self.places.contains_key(&place) {
            return Err(Full);
        }
        let policy = sighting.policy.as_deref().map(|name| self.policy(name)).transpose()?;
        self.whole.add(&sighting.ts, sighting.sandbox.as_deref());
        let seen = self.places.entry(place).or_default();
        seen.name_alone |= sighting.name_alone;
        seen.summary.add(&sighting.ts, sighting.sandbox.as_deref());
        seen.policies.extend(policy);
        for address in &sighting.addresses {
            let (Class::Private(range) | Class::Forbidden(range)) = classify(reached(*address), &[]) else {
                continue;
            };
            seen.object(Objection::Address, format!("{address}: {}", range.name));
        }
        match Bearing::of(sighting) {
            Bearing::Wanted => seen.wanted = true,
            Bearing::Against(objection) => {
                let detail = match (objection, &sighting.rule) {
                    (Objection::Denied | Objection::RuleLimit, Some(rule)) => rule.clone(),
                    (Objection::Address, _) if !sighting.addresses.is_empty() => return Ok(()),
                    _ => sighting.reason.clone(),
                };
                seen.object(objection, detail);
            }
        }
        Ok(())
    }

    /// Was the host asked for with a port as well?
    pub(super) fn has_port(&self, host: &str) -> bool {
        let of_host = (host.to_owned(), None)..=(host.to_owned(), Some(u16::MAX));
        self.places.range(of_host).any(|((_, port), _)| port.is_some())
    }

    /// Was nothing added?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    fn policy(&mut self, name: &str) -> Result<Arc<str>, Full> {
        if let Some(known) = self.policies.get(name) {
            return Ok(Arc::clone(known));
        }
        if self.policies.len() >= POLICIES {
            return Err(Full);
        }
        let name: Arc<str> = name.into();
        self.policies.insert(Arc::clone(&name));
        Ok(name)
    }
}

impl Seen {
    fn object(&mut self, objection: Objection, detail: String) {
        let detail = cut(&detail);
        match self.objections.get_mut(&objection) {
            Some(known) if *known <= detail => {}
            Some(known) => *known = detail,
            None => {
                self.objections.insert(objection, detail);
            }
        }
    }
}

/// At most so much of a text as is kept.
fn cut(text: &str) -> String {
    text.get(..text.floor_char_boundary(TEXT)).unwrap_or_default().to_owned()
}
