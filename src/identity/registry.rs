//! Sandboxes that were registered while egret runs: what they are, until when, and the file of the
//! state directory by which a restart finds them again.
//!
//! Whether something may be registered is the policy's to say, not looked at here.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use egret_policy::units::parse_duration;
use egret_policy::{Limits, Listed, Registered, Registration, is_sandbox_id, strict_network};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::claims::{BadClaim, LimitClaims, is_words, present, present_table, table};
use super::journal::{self, ReadError};

const FILE: &str = "sandboxes.ndjson";
/// Most registrations at a time.
pub const MOST_REGISTERED: usize = 10_000;
/// Most networks of one registration.
const MOST_SOURCES: usize = 16;
/// The longest times, as of tokens: 30 days.
const LONGEST: Duration = Duration::from_secs(super::MAX_LIFETIME);
/// How long a registration may be unused that does not say so.
const DEFAULT_TTL: Duration = Duration::from_secs(3600);
/// The version of what is read at the start.
const FIRST: u64 = 1;
/// The file is rewritten when it has so many lines beyond twice those that count.
const SPARE_LINES: usize = 1000;

/// A registration as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// The networks or addresses of its clients.
    pub source: Vec<String>,
    /// `source` or `token`: what it takes to be the sandbox; `source` if absent.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub auth: Option<String>,
    /// The policy's name.
    pub policy: String,
    /// How long it may be unused; an hour if absent.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
    /// How long it holds at most; for ever if absent.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<String>,
    /// Limits that hold beside the policy's.
    #[serde(default, deserialize_with = "present_table", skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitClaims>,
    /// For the audit record.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// For the audit record.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
}

/// What is wanted as the body of a request: an object.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct WantedBody(#[serde(deserialize_with = "table")] pub Wanted);

/// What was asked for, checked.
#[derive(Debug)]
pub struct Checked {
    wanted: Wanted,
    /// What identifies its clients.
    pub registration: Arc<Registration>,
    ttl: Duration,
    lifetime: Option<Duration>,
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Put(Box<Kept>),
    Removed(String),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Kept {
    id: String,
    /// In seconds since 1970.
    created: u64,
    /// In seconds since 1970.
    expires: Option<u64>,
    sandbox: Wanted,
}

/// A registration that holds.
#[derive(Debug)]
pub struct Entry {
    /// As it was asked for.
    pub wanted: Wanted,
    /// What identifies its clients, who hold what is inside. Snapshots don't, for they may live on
    /// for as long as a look-up takes and are no use.
    pub registration: Arc<Listed>,
    /// When it was registered first, in seconds since 1970.
    pub created: u64,
    /// When it ends whatever happens, in seconds since 1970; 0 for never.
    expires: AtomicU64,
    ttl: Duration,
    /// In milliseconds since the registry was opened.
    used: AtomicU64,
}

/// All registrations at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Grows with every change.
    pub version: u64,
    /// By source.
    pub registered: Registered,
    entries: BTreeMap<Arc<str>, Arc<Entry>>,
}

/// What a registration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// There was none of this ID.
    Created,
    /// There was another one.
    Replaced,
    /// There was the same, whose time begins anew.
    Renewed,
}

/// Registrations can't be read, changed or written down.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A value can't be used.
    #[error("{0}")]
    Bad(String),
    /// Another one holds some of the addresses.
    #[error("sandbox {0} is registered for some of these addresses; delete it first")]
    Overlap(Arc<str>),
    /// There are too many.
    #[error("{MOST_REGISTERED} sandboxes are registered already; delete some")]
    Full,
    /// The system refuses.
    #[error("registered sandboxes {}: {source}; make the state directory readable and writable for egret", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line is not one of ours.
    #[error("registered sandboxes {}: line {line} can't be read; restore the file or remove the line", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// Its number, from 1.
        line: usize,
    },
}

/// Every registration, and the file of them.
#[derive(Debug)]
pub struct Registry {
    state: ArcSwap<Snapshot>,
    file: PathBuf,
    opened: Instant,
    /// Held while anything is changed; the number of lines in the file, and more than there can be
    /// when they do not say what holds.
    lines: Mutex<usize>,
}

impl Wanted {
    /// Checks every value.
    ///
    /// # Errors
    /// The first one that can't be used.
    pub fn check(self, id: &str) -> Result<Checked, RegistryError> {
        let bad = |message: String| RegistryError::Bad(message);
        if !is_sandbox_id(id) {
            return Err(bad("a sandbox ID is 1 to 64 of A-Z a-z 0-9 . _ -".to_owned()));
        }
        let sources = sources(&self.source).map_err(bad)?;
        for (key, words) in [("workspace", &self.workspace), ("tool", &self.tool)] {
            if !words.as_deref().is_none_or(is_words) {
                return Err(bad(format!("`{key}` is at most 128 bytes without control characters")));
            }
        }
        let by_token = match self.auth.as_deref() {
            None | Some("source") => false,
            Some("token") => true,
            Some(_) => return Err(bad("`auth` is \"source\" or \"token\"".to_owned())),
        };
        let own = self.limits.is_some() || self.workspace.is_some() || self.tool.is_some();
        if by_token && own {
            let help = "`limits`, `workspace` and `tool` are the token's where `auth` is \"token\"";
            return Err(bad(help.to_owned()));
        }
        let ttl = time("ttl", self.ttl.as_deref()).map_err(bad)?.unwrap_or(DEFAULT_TTL);
        let lifetime = time("lifetime", self.lifetime.as_deref()).map_err(bad)?;
        let limits = self.limits.as_ref().map(limits).transpose().map_err(bad)?;
        let registration = Registration {
            id: id.into(),
            life: 0,
            sources,
            by_token,
            policy: self.policy.as_str().into(),
            limits,
            workspace: self.workspace.as_deref().map(Arc::from),
            tool: self.tool.as_deref().map(Arc::from),
        };
        Ok(Checked { wanted: self, registration: Arc::new(registration), ttl, lifetime })
    }
}

fn sources(texts: &[String]) -> Result<Vec<IpNet>, String> {
    if !(1..=MOST_SOURCES).contains(&texts.len()) {
        return Err(format!("`source` is a list of 1 to {MOST_SOURCES} networks or addresses"));
    }
    let mut sources = Vec::new();
    for text in texts {
        let shown = text.escape_debug();
        let help = "write an address, or a network without host bits like 10.20.0.0/16";
        let net = strict_network(text).ok_or_else(|| format!("`{shown}` is no source; {help}"))?;
        let mapped = net.prefix_len() >= 96 && net.addr().is_ipv6() && net.addr().to_canonical().is_ipv4();
        if mapped {
            return Err(format!("`{shown}` holds no client: write the IPv4 network"));
        }
        if sources.iter().any(|known: &IpNet| known.contains(&net) || net.contains(known)) {
            return Err(format!("`{shown}` overlaps another source of the same sandbox"));
        }
        sources.push(net);
    }
    Ok(sources)
}

fn time(key: &str, text: Option<&str>) -> Result<Option<Duration>, String> {
    let Some(text) = text else { return Ok(None) };
    let parsed = parse_duration(text).filter(|time| !time.is_zero() && *time <= LONGEST);
    parsed.map(Some).ok_or_else(|| format!("`{key}` is a time like \"15m\", not zero and at most \"30d\""))
}

fn limits(claims: &LimitClaims) -> Result<Arc<Limits>, String> {
    claims.read().map(Arc::new).map_err(|BadClaim(key)| format!("`{key}` has a value that can't be used"))
}

impl Entry {
    /// When it ends whatever happens, in seconds since 1970.
    #[must_use]
    pub fn expires(&self) -> Option<u64> {
        Some(self.expires.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }

    fn new(checked: Checked, life: u64, created: u64, expires: Option<u64>, used: u64) -> Self {
        let Checked { wanted, registration, ttl, .. } = checked;
        let registration = Registration { life, ..Registration::clone(&registration) };
        let (registration, expires) =
            (Arc::new(Listed(Arc::new(registration))), AtomicU64::new(expires.unwrap_or(0)));
        Self { wanted, registration, created, expires, ttl, used: AtomicU64::new(used) }
    }

    fn kept(&self) -> Kept {
        let (id, expires) = (self.registration.id.to_string(), self.expires());
        Kept { id, created: self.created, expires, sandbox: self.wanted.clone() }
    }

    /// Has its time come? One that has something open is not unused.
    fn is_over(&self, now: u64, elapsed: u64) -> bool {
        if self.expires().is_some_and(|expires| now >= expires) {
            return true;
        }
        // Whatever is open holds another.
        if Arc::<Registration>::strong_count(&self.registration) > 1 {
            self.used.store(elapsed, Ordering::Relaxed);
            return false;
        }
        elapsed.saturating_sub(self.used.load(Ordering::Relaxed)) >= millis(self.ttl)
    }
}

impl Snapshot {
    /// The registration of this ID.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Arc<Entry>> {
        self.entries.get(id)
    }

    /// All registrations in order of their IDs.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.values()
    }

    fn of(version: u64, entries: BTreeMap<Arc<str>, Arc<Entry>>) -> Self {
        let list = entries.values().map(|entry| Arc::clone(&entry.registration)).collect();
        Self { version, registered: Registered::new(list), entries }
    }
}

impl Registry {
    /// Reads those of earlier runs. `now` is in seconds since 1970. Those that may be unused for
    /// some time begin that anew: nobody could use them while nothing ran.
    ///
    /// # Errors
    /// The file is there and can't be read, or can't be written.
    pub fn open(state_dir: &Path, now: u64) -> Result<Self, RegistryError> {
        let file = state_dir.join(FILE);
        let (entries, lines, cut) = read(&file, now)?;
        let count = entries.len();
        if lines > count || cut {
            let kept = entries.values().map(|entry| Line::Put(Box::new(entry.kept())));
            journal::rewrite(&file, kept)
                .map_err(|source| RegistryError::Io { file: file.clone(), source })?;
        }
        let state = ArcSwap::from_pointee(Snapshot::of(FIRST, entries));
        Ok(Self { state, file, opened: Instant::now(), lines: Mutex::new(count) })
    }

    /// What the state directory says, for a program that is no proxy.
    ///
    /// # Errors
    /// The file is there and can't be read.
    pub fn look(state_dir: &Path, now: u64) -> Result<Snapshot, RegistryError> {
        let (entries, ..) = read(&state_dir.join(FILE), now)?;
        Ok(Snapshot::of(FIRST, entries))
    }

    /// All registrations as they are now.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.state.load_full()
    }

    /// A client of this sandbox was identified.
    pub fn used(&self, id: &str) {
        if let Some(entry) = self.state.load().get(id) {
            entry.used.store(self.elapsed(), Ordering::Relaxed);
        }
    }

    /// Registers, and returns when that is on the disk. Blocks.
    ///
    /// # Errors
    /// It is refused or can't be written down; nothing has changed then.
    pub fn put(&self, checked: Checked, now: u64) -> Result<Put, RegistryError> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.snapshot();
        let id = Arc::clone(&checked.registration.id);
        let known = before.get(&id);
        let expires = checked.lifetime.map(|lifetime| now.saturating_add(lifetime.as_secs().max(1)));
        if let Some(same) = known.filter(|known| known.wanted == checked.wanted) {
            if expires.is_some() {
                self.append(&Line::Put(Box::new(Kept { expires, ..same.kept() })), &mut lines, &before)?;
            }
            same.expires.store(expires.unwrap_or(0), Ordering::Relaxed);
            same.used.store(self.elapsed(), Ordering::Relaxed);
            return Ok(Put::Renewed);
        }
        if let Some(other) = before.registered.overlapping(&id, &checked.registration.sources) {
            return Err(RegistryError::Overlap(Arc::clone(&other.id)));
        }
        if known.is_none() && before.registered.len() >= MOST_REGISTERED {
            return Err(RegistryError::Full);
        }
        let put = if known.is_some() { Put::Replaced } else { Put::Created };
        let created = known.map_or(now, |known| known.created);
        let life = known.map_or(before.version + 1, |known| known.registration.life);
        let entry = Entry::new(checked, life, created, expires, self.elapsed());
        self.append(&Line::Put(Box::new(entry.kept())), &mut lines, &before)?;
        let mut entries = before.entries.clone();
        entries.insert(id, Arc::new(entry));
        self.state.store(Arc::new(Snapshot::of(before.version + 1, entries)));
        Ok(put)
    }

    /// Removes a registration, and returns when that is on the disk; `None` if there is none. Blocks.
    ///
    /// # Errors
    /// It is removed, but only until this process ends: that could not be written down. The next
    /// change makes up for it.
    pub fn remove(&self, id: &str) -> Option<(Arc<Entry>, Result<(), RegistryError>)> {
        self.remove_if(id, |_| true)
    }

    /// Removes one whose time has come, unless it was renewed since that was seen. As
    /// [`Registry::remove`].
    ///
    /// # Errors
    /// As for [`Registry::remove`].
    pub fn remove_over(&self, id: &str, now: u64) -> Option<(Arc<Entry>, Result<(), RegistryError>)> {
        self.remove_if(id, |entry| entry.is_over(now, self.elapsed()))
    }

    fn remove_if(
        &self,
        id: &str,
        due: impl FnOnce(&Entry) -> bool,
    ) -> Option<(Arc<Entry>, Result<(), RegistryError>)> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.snapshot();
        if !due(before.get(id)?) {
            return None;
        }
        let mut entries = before.entries.clone();
        let entry = entries.remove(id)?;
        // It must not count while that is being written.
        let after = Arc::new(Snapshot::of(before.version + 1, entries));
        self.state.store(Arc::clone(&after));
        Some((entry, self.append(&Line::Removed(id.to_owned()), &mut lines, &after)))
    }

    /// A client was identified by a token for this sandbox: a use of a registration that asks for one.
    pub fn used_by_token(&self, id: &str) {
        if let Some(entry) = self.state.load().get(id).filter(|entry| entry.registration.by_token) {
            entry.used.store(self.elapsed(), Ordering::Relaxed);
        }
    }

    /// How much longer it may be unused.
    #[must_use]
    pub fn unused_for(&self, entry: &Entry) -> Duration {
        let unused = self.elapsed().saturating_sub(entry.used.load(Ordering::Relaxed));
        entry.ttl.saturating_sub(Duration::from_millis(unused))
    }

    /// Those whose time has come.
    #[must_use]
    pub fn over(&self, now: u64) -> Vec<Arc<str>> {
        let (state, elapsed) = (self.state.load(), self.elapsed());
        let over = state.iter().filter(|entry| entry.is_over(now, elapsed));
        over.map(|entry| Arc::clone(&entry.registration.id)).collect()
    }

    fn elapsed(&self) -> u64 {
        millis(self.opened.elapsed())
    }

    fn append(&self, line: &Line, lines: &mut usize, state: &Snapshot) -> Result<(), RegistryError> {
        let failed = |source| RegistryError::Io { file: self.file.clone(), source };
        if *lines > 2 * state.entries.len() + SPARE_LINES {
            let kept = state.entries.values().map(|entry| Line::Put(Box::new(entry.kept())));
            journal::rewrite(&self.file, kept).map_err(failed)?;
            *lines = state.entries.len();
        }
        let written = journal::append(&self.file, line).map_err(failed);
        // After a failure the file may say what does not hold: the next change writes it whole.
        *lines = if written.is_ok() { *lines + 1 } else { usize::MAX };
        written
    }
}

type Found = (BTreeMap<Arc<str>, Arc<Entry>>, usize, bool);

/// What still holds of a file, how many lines it has, and whether it ends in the middle of one.
fn read(file: &Path, now: u64) -> Result<Found, RegistryError> {
    let bad_line = |line| RegistryError::Line { file: file.to_owned(), line };
    let (lines, cut): (Vec<Line>, bool) = journal::read(file).map_err(|error| match error {
        ReadError::Io(source) => RegistryError::Io { file: file.to_owned(), source },
        ReadError::Line(line) => bad_line(line),
    })?;
    let count = lines.len();
    let mut entries = BTreeMap::new();
    for (at, line) in lines.into_iter().enumerate() {
        match line {
            Line::Put(kept) => {
                let Kept { id, created, expires, sandbox } = *kept;
                let checked = sandbox.check(&id).map_err(|_| bad_line(at + 1))?;
                // A clock that was set back must not prolong it.
                let expires = expires.map(|at| at.min(now.saturating_add(LONGEST.as_secs())));
                entries.insert(id.as_str().into(), Arc::new(Entry::new(checked, FIRST, created, expires, 0)));
            }
            Line::Removed(id) => {
                entries.remove(id.as_str());
            }
        }
    }
    entries.retain(|_, entry| entry.expires().is_none_or(|expires| expires > now));
    Ok((entries, count, cut))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Snapshot {
    /// Is this still how clients at this address are identified? Not if it was removed, and another
    /// registered by its name.
    #[must_use]
    pub(super) fn holds(&self, registration: &Registration, source: IpAddr) -> bool {
        let same = |known: &Registration| (&known.id, known.life) == (&registration.id, registration.life);
        self.registered.find(source).is_some_and(|known| same(known))
    }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
