//! Limits of each sandbox, and of each token that has its own: request rate, connections at once,
//! distinct hosts, bytes per period.
//!
//! Counts and refuses; what a limit is stands in the policy. A permit frees its slot when it is
//! dropped. Windows start at first use. Sandboxes without limits have no state here.
//!
//! What was used outlives the process: before anything passes that the file in the state directory
//! does not know of, a line about it is handed to the system. See `docs/decisions/`.

mod clock;
mod hosts;
mod keeper;
mod line;
mod names;
mod rate;
mod sandbox;
mod window;
mod writer;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use egret_policy::{Client, DnsName, Host, Limits, Reason};
use serde::{Deserialize, Serialize};

use crate::relay::{Direction, Meter};
use clock::Now;
use hosts::HostKey;
use keeper::Keeper;
use line::What;
use names::Names;
use sandbox::Sandbox;
use writer::Writer;

/// Most accounts. Those that come later count together, one account for each policy.
const MOST_ACCOUNTS: usize = 200_000;
/// The sandbox of the account that later ones share; no sandbox has this ID.
const REST: &str = "*";
/// What stands for the ID of a token where the limits are a registration's; no token has this ID.
const REGISTRATION: &str = "its registration";
/// How long the end of the process waits for the last lines.
const STOPPING: Duration = Duration::from_secs(5);

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
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Account {
    sandbox: Arc<str>,
    policy: Arc<str>,
    /// The ID of a token with limits of its own, or what stands for a registration with such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<Arc<str>>,
}

impl Account {
    /// The account of a client's sandbox, which all its clients share.
    #[must_use]
    pub fn of_sandbox(client: &Client) -> Self {
        Self { sandbox: Arc::clone(&client.sandbox), policy: Arc::clone(&client.policy), token: None }
    }

    /// The account of the limits that a client's token, or its registration, has of its own.
    #[must_use]
    pub fn of_own_limits(client: &Client) -> Option<(Self, Arc<Limits>)> {
        let limits = client.limits()?;
        let token = client.token().map_or_else(|| REGISTRATION.into(), |token| Arc::clone(&token.id));
        Some((Self { token: Some(token), ..Self::of_sandbox(client) }, Arc::clone(limits)))
    }
}

/// The file of what was used can't be used.
#[derive(Debug, thiserror::Error)]
pub enum LimitsError {
    /// The system refuses.
    #[error("used limits {}: {source}; make the state directory readable and writable for egret", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line is not one of ours.
    #[error(
        "used limits {}: line {line} can't be read; restore the file, or delete it: every quota then begins anew",
        file.display()
    )]
    Line {
        /// The file.
        file: PathBuf,
        /// Its number, from 1.
        line: usize,
    },
    /// There is no randomness for a key.
    #[error("the system gives no random bytes")]
    Random,
    /// The system gave no thread.
    #[error("limits thread: {0}; raise the limit on threads")]
    Thread(io::Error),
}

/// Counts for all sandboxes.
#[derive(Debug)]
pub struct Limiter {
    accounts: Arc<Accounts>,
    keeper: Arc<Keeper>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

/// Every account that is known.
#[derive(Debug)]
struct Accounts {
    counted: Mutex<HashMap<Account, Arc<Counted>>>,
    /// Names that were asked for. Their account is not one of those above: they have a bound of their own.
    names: Mutex<Names>,
    key: HostKey,
}

/// One account, what it has used, and where that is written.
#[derive(Debug)]
struct Counted {
    account: Account,
    sandbox: Mutex<Sandbox>,
    keeper: Arc<Keeper>,
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
    counted: Arc<Counted>,
    limits: Arc<Limits>,
    accounts: Arc<Accounts>,
}

impl Limiter {
    /// Goes on from what earlier processes have left in the state directory, and writes there.
    ///
    /// # Errors
    /// That can't be read: nobody could say what is left of a quota. Or it can't be written.
    pub fn open(state_dir: &Path) -> Result<Self, LimitsError> {
        let (keeper, now) = (Arc::<Keeper>::default(), Now::read());
        let (mut counted, mut names) = (HashMap::new(), Names::default());
        let key = writer::load(state_dir, |line| {
            if let What::DnsNames(kept) = line.what {
                return names.restore(&line.account, kept, now);
            }
            let known = counted.entry(line.account.clone());
            let known = known.or_insert_with(|| Counted::new(line.account, &keeper));
            lock(&Arc::clone(known).sandbox).restore(line.what, now);
        })?;
        counted.retain(|_, counted: &mut Arc<Counted>| !lock(&counted.sandbox).is_idle(now));
        let accounts = Arc::new(Accounts { counted: Mutex::new(counted), names: Mutex::new(names), key });
        let writer = Writer::begin(state_dir, Arc::clone(&keeper), &accounts)?;
        let thread = thread::Builder::new().name("limits".to_owned()).spawn(move || writer.run());
        let thread = Mutex::new(Some(thread.map_err(LimitsError::Thread)?));
        Ok(Self { accounts, keeper, thread })
    }

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
                let counted = self.counted(account);
                counted.count(|sandbox, now| sandbox.admit(&limits, now))?;
                // There is one, as a rule, and an idle tunnel keeps the room for it.
                permit.shares.reserve_exact(1);
                permit.shares.push(Share { counted, limits, accounts: Arc::clone(&self.accounts) });
            }
        }
        Ok(permit)
    }

    /// Takes a question for a name in by the rate of every account.
    ///
    /// # Errors
    /// The first rate that is exceeded.
    pub fn ask(&self, accounts: &[(Account, Arc<Limits>)]) -> Result<(), Exceeded> {
        accounts.iter().try_for_each(|(account, limits)| match limits.dns_queries {
            Some(rate) => self.counted(account.clone()).count(|sandbox, now| sandbox.ask(rate, now)),
            None => Ok(()),
        })
    }

    /// Counts a name that the policy allowed to be asked for, before it is resolved; `free` if its
    /// client could choose of its labels.
    ///
    /// # Errors
    /// It is new, and the sandbox has used up its distinct hosts, or those below one domain.
    pub fn count_name(
        &self,
        accounts: &[(Account, Arc<Limits>)],
        name: &DnsName,
        free: bool,
    ) -> Result<(), Exceeded> {
        for (account, limits) in accounts {
            if let Some(quota) = limits.dns_names.filter(|_| free) {
                let keep = |account: &Account, line| self.keeper.push(account, vec![line]);
                let mut names = lock(&self.accounts.names);
                let ticket = names.count((account, name), &self.accounts.key, quota, Now::read(), keep)?;
                drop(names);
                self.keeper.wait(ticket);
            }
            if let Some(quota) = limits.domains {
                let hash = self.accounts.key.hash(name.as_str());
                self.counted(account.clone()).count(|sandbox, now| sandbox.count_host(hash, quota, now))?;
            }
        }
        Ok(())
    }

    /// Forgets sandboxes that have nothing open and no window running.
    pub fn forget_idle(&self) {
        let now = Now::read();
        let mut all = lock(&self.accounts.counted);
        // A count of one means that no permit holds it.
        all.retain(|_, counted| Arc::strong_count(counted) > 1 || !lock(&counted.sandbox).is_idle(now));
        all.shrink_to_fit();
        lock(&self.accounts.names).forget_old(now);
    }

    /// Does a restart find what was used? Not while the state directory can't be written.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        !self.keeper.in_trouble()
    }

    /// Writes what was used, exactly, and ends the thread.
    pub async fn shutdown(&self) {
        self.keeper.close();
        let Some(thread) = lock(&self.thread).take() else { return };
        let joined = tokio::task::spawn_blocking(move || thread.join());
        if tokio::time::timeout(STOPPING, joined).await.is_err() {
            tracing::warn!("what sandboxes have used could not be written in time");
        }
    }

    fn counted(&self, account: Account) -> Arc<Counted> {
        let mut all = lock(&self.accounts.counted);
        if let Some(known) = all.get(&account) {
            return Arc::clone(known);
        }
        let full = all.len() >= MOST_ACCOUNTS;
        let account = if full { Account { sandbox: REST.into(), token: None, ..account } } else { account };
        let counted = all.entry(account.clone()).or_insert_with(|| Counted::new(account, &self.keeper));
        Arc::clone(counted)
    }
}

impl Drop for Limiter {
    fn drop(&mut self) {
        self.keeper.close();
    }
}

impl Counted {
    fn new(account: Account, keeper: &Arc<Keeper>) -> Arc<Self> {
        Arc::new(Self { account, sandbox: Mutex::default(), keeper: Arc::clone(keeper) })
    }

    /// Counts, and returns when what was granted is written down.
    fn count<T>(self: &Arc<Self>, work: impl FnOnce(&mut Sandbox, Now) -> T) -> T {
        let now = Now::read();
        let mut sandbox = lock(&self.sandbox);
        let done = work(&mut sandbox, now);
        let lines = sandbox.unkept(now);
        if !lines.is_empty() {
            sandbox.ticket = self.keeper.push(&self.account, lines);
            if sandbox.is_ahead() && !std::mem::replace(&mut sandbox.listed, true) {
                self.keeper.list(Arc::clone(self));
            }
        }
        let ticket = sandbox.ticket;
        drop(sandbox);
        // Also for a line that another request has queued.
        self.keeper.wait(ticket);
        done
    }

    /// Queues its exact use if it is at rest; false if it is not.
    fn settle(&self) -> bool {
        let mut sandbox = lock(&self.sandbox);
        if sandbox.is_open() {
            return false;
        }
        sandbox.listed = false;
        if sandbox.is_ahead() {
            let lines = sandbox.settled(Now::read());
            self.keeper.push(&self.account, lines);
        }
        true
    }

    /// Queues everything that is to be known of it.
    fn tell_all(&self) {
        let mut sandbox = lock(&self.sandbox);
        let lines = sandbox.all(Now::read());
        if !lines.is_empty() {
            self.keeper.push(&self.account, lines);
        }
    }
}

impl Permit {
    /// Counts a host that the policy allowed, before it is resolved.
    ///
    /// # Errors
    /// The host is new and the sandbox has used up its distinct hosts.
    pub fn count_host(&self, host: &Host) -> Result<(), Exceeded> {
        self.shares.iter().try_for_each(|share| match share.limits.domains {
            Some(quota) => {
                let hash = share.accounts.key.hash(&host.to_string());
                share.counted.count(|sandbox, now| sandbox.count_host(hash, quota, now))
            }
            None => Ok(()),
        })
    }

    /// When there are bytes again, if a byte quota is used up.
    #[must_use]
    pub fn bytes_again_in(&self) -> Option<Duration> {
        let now = Now::read();
        let waits = self.shares.iter().filter_map(|share| {
            lock(&share.counted.sandbox)
                .check_bytes(&share.limits, now)
                .err()
                .map(|exceeded| exceeded.retry_after)
        });
        waits.max()
    }

    /// What grants payload bytes of this request.
    #[must_use]
    pub fn meter(&self) -> ByteMeter {
        let counted = |limits: &Limits| limits.bytes.or(limits.bytes_up).or(limits.bytes_down).is_some();
        let shares = self.shares.iter().filter(|share| counted(&share.limits));
        ByteMeter(shares.map(|share| (Arc::clone(&share.counted), Arc::clone(&share.limits))).collect())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        lock(&self.counted.sandbox).release();
    }
}

/// Grants payload bytes until a quota is used up.
#[derive(Debug, Clone)]
pub struct ByteMeter(Vec<(Arc<Counted>, Arc<Limits>)>);

impl Meter for ByteMeter {
    fn take(&self, direction: Direction, want: usize) -> usize {
        let mut granted = want;
        for (done, (counted, limits)) in self.0.iter().enumerate() {
            let fewer = counted.count(|sandbox, now| sandbox.take_bytes(direction, granted, limits, now));
            for (earlier, limits) in self.0.iter().take(done) {
                lock(&earlier.sandbox).give_back(direction, granted - fewer, limits);
            }
            granted = fewer;
        }
        granted
    }

    fn give_back(&self, direction: Direction, unused: usize) {
        for (counted, limits) in &self.0 {
            lock(&counted.sandbox).give_back(direction, unused, limits);
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
