//! Idle connections to origins, by sandbox and destination.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use egret_policy::{Destination, Intent, PinnedAddr, Route};

use super::Upstream;
use crate::chain::Way;

/// How long a connection may lie idle.
const IDLE: Duration = Duration::from_secs(30);
/// Most idle connections of one sandbox to one destination.
const PER_KEY: usize = 256;

#[derive(Debug, PartialEq, Eq, Hash, Clone)]
struct Key {
    sandbox: Arc<str>,
    destination: Destination,
}

struct Idle {
    upstream: Upstream,
    since: Instant,
    /// A request that it served, to be decided again when the policy changes.
    intent: Intent,
}

/// The pool.
pub struct Pool {
    inner: Mutex<Inner>,
    /// Most idle connections in all.
    most: usize,
}

#[derive(Default)]
struct Inner {
    idle: HashMap<Key, Vec<Idle>>,
    count: usize,
}

impl Pool {
    /// A pool for at most so many connections.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { inner: Mutex::default(), most }
    }

    /// Drops all of them.
    pub fn clear(&self) {
        *self.lock() = Inner::default();
    }

    /// A live connection of this sandbox to this destination, at one of the addresses that were
    /// just checked and the way that leads there now.
    #[must_use]
    pub fn take(&self, intent: &Intent, route: &Route, way: impl Fn(PinnedAddr) -> Way) -> Option<Upstream> {
        let key = Key::of(intent);
        let mut inner = self.lock();
        let Inner { idle, count } = &mut *inner;
        let list = idle.get_mut(&key)?;
        let mut found = None;
        while let Some(candidate) = list.pop() {
            *count -= 1;
            let fresh = candidate.since.elapsed() < IDLE;
            let address = candidate.upstream.address();
            let checked = route.addresses().contains(&address) && way(address) == *candidate.upstream.way();
            if fresh && checked && candidate.upstream.socket.is_quiet() {
                found = Some(candidate.upstream);
                break;
            }
        }
        if list.is_empty() {
            idle.remove(&key);
        }
        found
    }

    /// Keeps a connection that has just served a request, if that is still right. Asked while
    /// nobody else changes the pool: what is wrong from now on finds it in [`Pool::retain`].
    pub fn put(&self, intent: Intent, upstream: Upstream, is_right: impl FnOnce(&Upstream) -> bool) {
        let mut inner = self.lock();
        if !is_right(&upstream) {
            return;
        }
        if inner.count >= self.most {
            inner.expire();
        }
        if inner.count >= self.most {
            return;
        }
        let list = inner.idle.entry(Key::of(&intent)).or_default();
        if list.len() >= PER_KEY {
            return;
        }
        list.push(Idle { upstream, since: Instant::now(), intent });
        inner.count += 1;
    }

    /// Drops the connections for which `keep` is false, and those that lay too long.
    pub fn retain(&self, keep: impl Fn(&Intent, &Upstream) -> bool) {
        self.lock().retain(|idle| keep(&idle.intent, &idle.upstream));
    }

    /// Drops the connections that lay too long or that their origin has closed.
    pub fn expire(&self) {
        self.lock().expire();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn expire(&mut self) {
        self.retain(|idle| idle.upstream.socket.is_quiet());
    }

    fn retain(&mut self, keep: impl Fn(&Idle) -> bool) {
        self.idle.retain(|_, list| {
            list.retain(|idle| idle.since.elapsed() < IDLE && keep(idle));
            !list.is_empty()
        });
        self.count = self.idle.values().map(Vec::len).sum();
    }
}

impl Key {
    fn of(intent: &Intent) -> Self {
        Self { sandbox: Arc::clone(&intent.client.sandbox), destination: intent.destination.clone() }
    }
}
