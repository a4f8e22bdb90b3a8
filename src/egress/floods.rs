//! Questions beyond the rate of their sandbox. A datagram costs its sender next to nothing, so a record
//! of each would fill the audit file: the first of a while has one like any other question, those after
//! it are counted, and told in one `limit` record.
//!
//! Never counts what was within the rate.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use egret_policy::Reason;

use crate::audit::{Event, Limit, Text, Timestamp};

/// How long they are counted before they are told.
const WHILE: Duration = Duration::from_secs(10);
/// Most sandboxes that are counted at a time. Those of any further one are recorded each.
const MOST: usize = 65_536;

/// By sandbox, those that have a flood.
#[derive(Debug, Default)]
pub(super) struct Floods(Mutex<HashMap<Arc<str>, Flood>>);

#[derive(Debug)]
struct Flood {
    began: Instant,
    /// Those after the first, and when the first of them was.
    counted: u64,
    since: Option<Timestamp>,
}

impl Floods {
    /// Is one more of this sandbox counted, and so not to be recorded?
    pub(super) fn count(&self, sandbox: &Arc<str>) -> bool {
        let mut floods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flood) = floods.get_mut(sandbox) {
            flood.counted += 1;
            flood.since.get_or_insert_with(Timestamp::now);
            return true;
        }
        if floods.len() < MOST {
            let flood = Flood { began: Instant::now(), counted: 0, since: None };
            floods.insert(Arc::clone(sandbox), flood);
        }
        false
    }

    /// What there is to tell of floods that began a while ago, or of all; they are over then.
    pub(super) fn tell(&self, all: bool) -> Vec<Event> {
        let mut floods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = floods.extract_if(|_, flood| all || flood.began.elapsed() >= WHILE);
        let told = over.filter(|(_, flood)| flood.counted > 0).map(|(sandbox, flood)| {
            Event::Limit(Limit {
                sandbox: Text::from(&sandbox),
                limit: "dns_queries",
                reason: Reason::RateLimited.code(),
                count: flood.counted,
                since: flood.since,
            })
        });
        told.collect()
    }
}
