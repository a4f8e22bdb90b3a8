//! Limits of each sandbox, and of each token that has its own: request rate, connections at once,
//! distinct hosts, bytes per period.
//!
//! Counts and refuses; what a limit is stands in the policy. A permit frees its slot when it is
//! dropped. Windows start at first use. Sandboxes without limits have no state here.

mod sandbox;
mod window;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use egret_policy::{Client, Host, Limits, Reason};

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

/// Whose use is counted. Limits hold for each sandbox of a policy: were two policies counted
/// together, the looser one could be used to begin the other's windows anew.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Account {
    sandbox: Arc<str>,
    policy: Arc<str>,
    /// The ID of a token with limits of its own.
    token: Option<Arc<str>>,
}

impl Account {
    /// The account of a client's sandbox, which all its clients share.
    #[must_use]
    pub fn of_sandbox(client: &Client) -> Self {
        Self { sandbox: Arc::clone(&client.sandbox), policy: Arc::clone(&client.policy), token: None }
    }

    /// The account of a client's token and its limits, if it has some.
    #[must_use]
    pub fn of_token(client: &Client) -> Option<(Self, Arc<Limits>)> {
        let token = client.token()?;
        let account = Self { token: Some(Arc::clone(&token.id)), ..Self::of_sandbox(client) };
        Some((account, Arc::clone(token.limits.as_ref()?)))
    }
}

/// Counts for all sandboxes.
#[derive(Debug, Default)]
pub struct Limiter {
    sandboxes: Mutex<HashMap<Account, Arc<Mutex<Sandbox>>>>,
}

/// A request under way; dropping it frees its slots.
#[derive(Debug, Default)]
#[must_use = "dropping a permit frees its slot"]
pub struct Permit {
    shares: Vec<Share>,
}

/// A slot of one account.
#[derive(Debug)]
struct Share {
    sandbox: Arc<Mutex<Sandbox>>,
    limits: Arc<Limits>,
}

impl Limiter {
    /// Takes a request in by the limits of every account, or refuses it.
    ///
    /// # Errors
    /// The first limit that is exceeded. A refused request uses nothing up of the account that
    /// refuses it; of those before, at most its place in the request rate.
    pub fn admit(
        &self,
        accounts: impl IntoIterator<Item = (Account, Arc<Limits>)>,
    ) -> Result<Permit, Exceeded> {
        let mut permit = Permit::default();
        for (account, limits) in accounts {
            if is_limited(&limits) {
                let sandbox = self.sandbox(&account);
                lock(&sandbox).admit(&limits, Instant::now())?;
                permit.shares.push(Share { sandbox, limits });
            }
        }
        Ok(permit)
    }

    /// Forgets sandboxes that have nothing open and no window running.
    pub fn forget_idle(&self) {
        let now = Instant::now();
        let mut sandboxes = lock(&self.sandboxes);
        // A count of one means that no permit holds it.
        sandboxes.retain(|_, sandbox| Arc::strong_count(sandbox) > 1 || !lock(sandbox).is_idle(now));
        sandboxes.shrink_to_fit();
    }

    fn sandbox(&self, account: &Account) -> Arc<Mutex<Sandbox>> {
        let mut sandboxes = lock(&self.sandboxes);
        if let Some(known) = sandboxes.get(account) {
            return Arc::clone(known);
        }
        let sandbox = Arc::default();
        sandboxes.insert(account.clone(), Arc::clone(&sandbox));
        sandbox
    }
}

impl Permit {
    /// Counts a host that the policy allowed, before it is resolved.
    ///
    /// # Errors
    /// The host is new and the sandbox has used up its distinct hosts.
    pub fn count_host(&self, host: &Host) -> Result<(), Exceeded> {
        self.shares.iter().try_for_each(|share| match share.limits.domains {
            Some(quota) => lock(&share.sandbox).count_host(host, quota, Instant::now()),
            None => Ok(()),
        })
    }

    /// What grants payload bytes of this request.
    #[must_use]
    pub fn meter(&self) -> ByteMeter {
        let counted = |limits: &Limits| limits.bytes.or(limits.bytes_up).or(limits.bytes_down).is_some();
        let shares = self.shares.iter().filter(|share| counted(&share.limits));
        ByteMeter(shares.map(|share| (Arc::clone(&share.sandbox), Arc::clone(&share.limits))).collect())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        lock(&self.sandbox).release();
    }
}

/// Grants payload bytes until a quota is used up.
#[derive(Debug, Clone)]
pub struct ByteMeter(Vec<(Arc<Mutex<Sandbox>>, Arc<Limits>)>);

impl Meter for ByteMeter {
    fn take(&self, direction: Direction, want: usize) -> usize {
        let mut granted = want;
        for (done, (sandbox, limits)) in self.0.iter().enumerate() {
            let fewer = lock(sandbox).take_bytes(direction, granted, limits, Instant::now());
            for (earlier, limits) in self.0.iter().take(done) {
                lock(earlier).give_back(direction, granted - fewer, limits);
            }
            granted = fewer;
        }
        granted
    }

    fn give_back(&self, direction: Direction, unused: usize) {
        for (sandbox, limits) in &self.0 {
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
