//! Limits of each sandbox: request rate, connections at once, distinct hosts, bytes per period.
//!
//! Counts and refuses; what a limit is stands in the policy. A permit frees its slot when it is
//! dropped. Windows start at first use. Sandboxes without limits have no state here.

mod sandbox;
mod window;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use egret_policy::{Host, Limits, Reason};

use crate::relay::{Direction, Meter};
use sandbox::Sandbox;

/// A limit that refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exceeded {
    /// `rate_limited`, `too_many_connections` or `quota_exceeded`.
    pub reason: Reason,
    /// The limit's key in the configuration.
    pub limit: &'static str,
    /// When a new attempt can succeed.
    pub retry_after: Duration,
}

/// Counts for all sandboxes.
#[derive(Debug, Default)]
pub struct Limiter {
    sandboxes: Mutex<HashMap<Arc<str>, Arc<Mutex<Sandbox>>>>,
}

/// A request under way; dropping it frees its slot.
#[derive(Debug)]
#[must_use = "dropping a permit frees its slot"]
pub struct Permit {
    sandbox: Option<Arc<Mutex<Sandbox>>>,
    limits: Arc<Limits>,
}

impl Limiter {
    /// Takes a request of a sandbox in, or refuses it.
    ///
    /// # Errors
    /// The first limit that is exceeded; a refused request uses none of them up.
    pub fn admit(&self, id: &Arc<str>, limits: &Arc<Limits>) -> Result<Permit, Exceeded> {
        if !is_limited(limits) {
            return Ok(Permit { sandbox: None, limits: Arc::clone(limits) });
        }
        let sandbox = self.sandbox(id);
        lock(&sandbox).admit(limits, Instant::now())?;
        Ok(Permit { sandbox: Some(sandbox), limits: Arc::clone(limits) })
    }

    /// Forgets sandboxes that have nothing open and no window running.
    pub fn forget_idle(&self) {
        let now = Instant::now();
        let mut sandboxes = lock(&self.sandboxes);
        // A count of one means that no permit holds it.
        sandboxes.retain(|_, sandbox| Arc::strong_count(sandbox) > 1 || !lock(sandbox).is_idle(now));
        sandboxes.shrink_to_fit();
    }

    fn sandbox(&self, id: &Arc<str>) -> Arc<Mutex<Sandbox>> {
        let mut sandboxes = lock(&self.sandboxes);
        if let Some(known) = sandboxes.get(id) {
            return Arc::clone(known);
        }
        let sandbox = Arc::default();
        sandboxes.insert(Arc::clone(id), Arc::clone(&sandbox));
        sandbox
    }
}

impl Permit {
    /// Counts a host that the policy allowed, before it is resolved.
    ///
    /// # Errors
    /// The host is new and the sandbox has used up its distinct hosts.
    pub fn count_host(&self, host: &Host) -> Result<(), Exceeded> {
        match (&self.sandbox, self.limits.domains) {
            (Some(sandbox), Some(quota)) => lock(sandbox).count_host(host, quota, Instant::now()),
            _ => Ok(()),
        }
    }

    /// What grants payload bytes of this request.
    #[must_use]
    pub fn meter(&self) -> ByteMeter {
        let counted = self.limits.bytes.or(self.limits.bytes_up).or(self.limits.bytes_down).is_some();
        ByteMeter(
            self.sandbox.as_ref().filter(|_| counted).map(|s| (Arc::clone(s), Arc::clone(&self.limits))),
        )
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(sandbox) = &self.sandbox {
            lock(sandbox).release();
        }
    }
}

/// Grants payload bytes until a quota is used up.
#[derive(Debug, Clone)]
pub struct ByteMeter(Option<(Arc<Mutex<Sandbox>>, Arc<Limits>)>);

impl Meter for ByteMeter {
    fn take(&self, direction: Direction, want: usize) -> usize {
        match &self.0 {
            Some((sandbox, limits)) => lock(sandbox).take_bytes(direction, want, limits, Instant::now()),
            None => want,
        }
    }

    fn give_back(&self, direction: Direction, unused: usize) {
        if let Some((sandbox, limits)) = &self.0 {
            lock(sandbox).give_back(direction, unused, limits);
        }
    }
}

/// Is there a limit that needs counting across requests?
fn is_limited(limits: &Limits) -> bool {
    let Limits { requests, connections, bytes, bytes_up, bytes_down, domains, .. } = limits;
    requests.is_some()
        || connections.is_some()
        || domains.is_some()
        || [bytes, bytes_up, bytes_down].iter().any(|quota| quota.is_some())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
