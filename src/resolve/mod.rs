//! From a name to its addresses: what DNS says, which nobody has judged yet.
//!
//! Asks the configured servers alone: no search list, no hosts file, no name service of the
//! system. Names are absolute. Both families are asked at once, and a broken one does not make
//! the other wait long. What it returns is untrusted; which of it may be dialled is decided
//! elsewhere.

mod answer;
mod cache;
mod runtime;
mod servers;
mod service;
mod upstream;

pub use answer::{BadAnswer, Extract, extract};
pub use servers::{DnsServers, ServerSpec, ServerSpecError, ServersError};
pub use upstream::UpstreamError;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use egret_policy::{Grant, Host, Resolution};
use hickory_resolver::proto::rr::{Name, RecordType};
use tokio::time::{Instant, timeout_at};

use crate::dns_message::Service;

use self::cache::{Cache, Stored};
use self::service::Found;
use self::upstream::{AskError, Upstream};

/// Most names that are remembered.
const CACHED_NAMES: usize = 8192;
/// Longest life of an answer, so that a name that was refused once is not refused for a day.
const MAX_TTL: Duration = Duration::from_secs(300);
/// Longest life of an answer of which one family failed: that one should come back.
const MAX_PARTIAL_TTL: Duration = Duration::from_secs(30);
/// Longest life of "no such name" and "no address" (RFC 2308 allows hours, but a name that was
/// just created should work soon).
const MAX_NEGATIVE_TTL: Duration = Duration::from_secs(3);
/// Life of a failure: enough to spare a struggling server a flood (RFC 9520 asks for a second at
/// least).
const FAILURE_TTL: Duration = Duration::from_secs(2);
/// How long a family with addresses waits for the other one.
const SECOND_FAMILY: Duration = Duration::from_secs(1);
/// Most questions for one family: the first, and the targets of aliases that its answer left open.
const MAX_QUESTIONS: usize = 8;

/// How names are resolved.
#[derive(Debug, Clone)]
pub struct ResolverSettings {
    /// Who is asked.
    pub servers: DnsServers,
    /// Time for one look-up, all tries together.
    pub timeout: Duration,
    /// Names with fixed addresses, for which nobody is asked. Keys are canonical names.
    pub hosts: HashMap<String, Vec<IpAddr>>,
    /// CA certificates (PEM) that servers with TLS may use, beside Mozilla's.
    pub extra_ca_pem: Option<Vec<u8>>,
    /// Most questions that wait for an answer at a time. Each may hold up to three sockets.
    pub in_flight: usize,
}

impl Default for ResolverSettings {
    fn default() -> Self {
        Self {
            servers: DnsServers::System,
            timeout: Duration::from_secs(5),
            hosts: HashMap::new(),
            extra_ca_pem: None,
            in_flight: 1024,
        }
    }
}

/// Why a resolver can't be made.
#[derive(Debug, thiserror::Error)]
pub enum ResolverError {
    /// There is no server to ask.
    #[error(transparent)]
    Servers(#[from] ServersError),
    /// The servers can't be used.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
}

/// The addresses of a name, IPv6 before IPv4, each once, in the servers' order; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// All of them: whoever judges the answer judges it whole.
    pub addresses: Arc<[IpAddr]>,
    /// Why nobody can say whether there are more: the servers failed at one family.
    pub unsaid: Option<ResolveError>,
}

impl From<Answer> for Resolution {
    fn from(answer: Answer) -> Self {
        Self { addresses: answer.addresses.to_vec() }
    }
}

/// Why a name has no addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// DNS says that there are none.
    #[error("{}", if *.nxdomain { "no such name (NXDOMAIN)" } else { "the name has no address (NODATA)" })]
    NotFound {
        /// The name does not exist; else it exists without an address.
        nxdomain: bool,
    },
    /// DNS could not say. The cause is short and printable.
    #[error("{0}")]
    Failed(String),
    /// No answer in time.
    #[error("no DNS server answered in time")]
    Timeout,
}

impl From<AskError> for ResolveError {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Failed(cause) => Self::Failed(cause),
            AskError::Timeout => Self::Timeout,
        }
    }
}

type Outcome = Result<Answer, ResolveError>;
/// HTTPS records; none is no failure.
type Services = Result<Arc<[Service]>, ResolveError>;

/// Looks names up and remembers the answers for a while.
pub struct Resolver {
    upstream: Upstream,
    hosts: HashMap<String, Answer>,
    timeout: Duration,
    cache: Cache<Outcome>,
    services: Cache<Services>,
}

impl Resolver {
    /// Reads the list of servers; asks nobody yet.
    pub fn new(settings: ResolverSettings) -> Result<Self, ResolverError> {
        let specs = settings.servers.specs()?;
        let upstream =
            Upstream::new(&specs, settings.timeout, settings.extra_ca_pem.as_deref(), settings.in_flight)?;
        let hosts = settings.hosts.into_iter().map(|(name, addresses)| (name, Answer::new(addresses)));
        Ok(Self {
            upstream,
            hosts: hosts.collect(),
            timeout: settings.timeout,
            cache: Cache::new(CACHED_NAMES),
            services: Cache::new(CACHED_NAMES),
        })
    }

    /// The addresses of a host that a grant gives leave to look up.
    ///
    /// # Errors
    /// See [`ResolveError`].
    pub async fn resolve(&self, grant: &Grant) -> Result<Answer, ResolveError> {
        match grant.host() {
            Host::Name(name) => self.lookup(name.as_str()).await,
            Host::Address(address) => Ok(Answer::new([*address])),
        }
    }

    /// What is known of a granted host without asking anybody.
    #[must_use]
    pub fn known(&self, grant: &Grant) -> Option<Result<Answer, ResolveError>> {
        match grant.host() {
            Host::Address(address) => Some(Ok(Answer::new([*address]))),
            Host::Name(name) => self
                .fixed(name.as_str())
                .or_else(|| self.cache.fresh(name.as_str(), Instant::now(), |stored| stored.value.clone())),
        }
    }

    /// How much longer the answer for a granted host may be remembered. Nothing for one that was not
    /// kept; a long time for fixed addresses.
    #[must_use]
    pub fn life(&self, grant: &Grant) -> Duration {
        let Host::Name(name) = grant.host() else { return MAX_TTL };
        if self.fixed(name.as_str()).is_some() {
            return MAX_TTL;
        }
        let now = Instant::now();
        self.cache.fresh(name.as_str(), now, |stored| stored.expires - now).unwrap_or_default()
    }

    /// The HTTPS records of a granted host in service mode for itself (RFC 9460), without those
    /// parameters that egret passes to nobody.
    ///
    /// # Errors
    /// See [`ResolveError`]; that there are none is no error.
    pub async fn resolve_services(&self, grant: &Grant) -> Services {
        let Host::Name(name) = grant.host() else { return Ok(Arc::default()) };
        let name = name.as_str();
        if self.fixed(name).is_some() {
            return Ok(Arc::default());
        }
        let deadline = Instant::now() + self.timeout;
        let slot = self.services.slot(name, Instant::now());
        match timeout_at(deadline, slot.get_or_init(|| self.ask_services(name, deadline))).await {
            Ok(stored) => stored.value.clone(),
            Err(_) => Err(ResolveError::Timeout),
        }
    }

    async fn ask_services(&self, name: &str, deadline: Instant) -> Stored<Services> {
        let (value, life) = match absolute(name) {
            Some(name) => match self.services_of(&name, deadline).await {
                Ok((services, ttl)) if services.is_empty() => {
                    (Ok(services), Duration::from_secs(ttl.into()).min(MAX_NEGATIVE_TTL))
                }
                Ok((services, ttl)) => (Ok(services), Duration::from_secs(ttl.into()).min(MAX_TTL)),
                Err(error) => (Err(error.into()), FAILURE_TTL),
            },
            None => (Ok(Arc::default()), FAILURE_TTL),
        };
        Stored { value, expires: Instant::now() + life }
    }

    /// The HTTPS records of `name`, through aliases that an answer leaves open.
    async fn services_of(&self, name: &Name, deadline: Instant) -> Result<(Arc<[Service]>, u32), AskError> {
        let mut owner = name.clone();
        let mut smallest = u32::MAX;
        for _ in 0..MAX_QUESTIONS {
            match self.upstream.ask_services(&owner, deadline).await? {
                Found::Alias { target, ttl } => {
                    owner = target;
                    smallest = smallest.min(ttl);
                }
                Found::Services { services, ttl } => return Ok((services.into(), ttl.min(smallest))),
            }
        }
        Err(BadAnswer::TooLong.into())
    }

    /// How long a look-up may take.
    #[must_use]
    pub const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The addresses of `name`: canonical, lower-case A-labels, no root dot. Identical look-ups
    /// at the same time share their questions; dropping the future gives up this one's part.
    pub async fn lookup(&self, name: &str) -> Outcome {
        if let Some(fixed) = self.fixed(name) {
            return fixed;
        }
        let deadline = Instant::now() + self.timeout;
        let slot = self.cache.slot(name, Instant::now());
        match timeout_at(deadline, slot.get_or_init(|| self.ask(name, deadline))).await {
            Ok(stored) => stored.value.clone(),
            Err(_) => Err(ResolveError::Timeout),
        }
    }

    /// The answer for names that nobody is asked for.
    fn fixed(&self, name: &str) -> Option<Outcome> {
        if let Some(known) = self.hosts.get(name) {
            let empty = known.addresses.is_empty();
            return Some(if empty {
                Err(ResolveError::NotFound { nxdomain: false })
            } else {
                Ok(known.clone())
            });
        }
        if name == "localhost" || name.ends_with(".localhost") {
            // RFC 6761 section 6.3.
            let loopback = [IpAddr::V6(Ipv6Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::LOCALHOST)];
            return Some(Ok(Answer::new(loopback)));
        }
        None
    }

    /// Whether any server answers within a second; any answer counts.
    pub async fn probe(&self) -> bool {
        self.upstream.probe().await
    }

    async fn ask(&self, name: &str, deadline: Instant) -> Stored<Outcome> {
        let (value, life) = match absolute(name) {
            Some(name) => self.both_families(&name, deadline).await,
            None => {
                (Err(ResolveError::Failed("the name does not fit into a DNS question".into())), FAILURE_TTL)
            }
        };
        Stored { value, expires: Instant::now() + life }
    }

    /// The outcome and how long it may be used.
    async fn both_families(&self, name: &Name, deadline: Instant) -> (Outcome, Duration) {
        let mut v4 = pin!(self.family(name, RecordType::A, deadline));
        let mut v6 = pin!(self.family(name, RecordType::AAAA, deadline));
        let (v6, v4) = tokio::select! {
            first = &mut v6 => {
                let until = patience(&first, deadline);
                (first, timeout_at(until, v4).await.unwrap_or(Err(AskError::Timeout)))
            }
            first = &mut v4 => {
                let until = patience(&first, deadline);
                (timeout_at(until, v6).await.unwrap_or(Err(AskError::Timeout)), first)
            }
        };
        combine(v6, v4)
    }

    /// One family of `name`, through aliases that an answer leaves open.
    async fn family(&self, name: &Name, kind: RecordType, deadline: Instant) -> Result<Extract, AskError> {
        let mut owner = name.clone();
        let mut smallest = u32::MAX;
        for _ in 0..MAX_QUESTIONS {
            match self.upstream.ask(&owner, kind, deadline).await? {
                Extract::Alias { target, ttl } => {
                    owner = target;
                    smallest = smallest.min(ttl);
                }
                Extract::Addresses { addresses, ttl } => {
                    return Ok(Extract::Addresses { addresses, ttl: ttl.min(smallest) });
                }
                // Asking again for the end of a chain is all that can be done; it has nothing.
                empty @ Extract::Empty { .. } => return Ok(empty),
            }
        }
        Err(BadAnswer::TooLong.into())
    }
}

impl Answer {
    fn new(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let mut seen = HashSet::new();
        let addresses = addresses.into_iter().filter(|address| seen.insert(*address));
        Self { addresses: addresses.collect(), unsaid: None }
    }
}

/// The name as an absolute one: no search list can apply to it.
fn absolute(name: &str) -> Option<Name> {
    let mut name = Name::from_labels(name.split('.').map(str::as_bytes)).ok()?;
    name.set_fqdn(true);
    Some(name)
}

/// Until when to wait for the other family after `first`.
fn patience(first: &Result<Extract, AskError>, deadline: Instant) -> Instant {
    match first {
        Ok(Extract::Addresses { .. }) => deadline.min(Instant::now() + SECOND_FAMILY),
        _ => deadline,
    }
}

/// One outcome from two families. Addresses of one outweigh whatever the other says; without any,
/// "none" needs both families, since a failure hides what is there.
fn combine(v6: Result<Extract, AskError>, v4: Result<Extract, AskError>) -> (Outcome, Duration) {
    let mut addresses = Vec::new();
    let mut life = MAX_TTL;
    let mut negative_life = MAX_NEGATIVE_TTL;
    let mut nxdomain = true;
    let mut failure: Option<ResolveError> = None;
    for family in [v6, v4] {
        match family {
            Ok(Extract::Addresses { addresses: more, ttl }) => {
                addresses.extend(more);
                life = life.min(Duration::from_secs(ttl.into()));
            }
            Ok(Extract::Empty { nxdomain: missing, ttl }) => {
                nxdomain &= missing;
                let ttl = ttl.map_or(MAX_NEGATIVE_TTL, |ttl| Duration::from_secs(ttl.into()));
                negative_life = negative_life.min(ttl);
            }
            Ok(Extract::Alias { .. }) => failure = Some(AskError::from(BadAnswer::TooLong).into()),
            // A server's word tells more than silence.
            Err(AskError::Timeout) if failure.is_some() => {}
            Err(error) => failure = Some(error.into()),
        }
    }
    if !addresses.is_empty() {
        let most = if failure.is_some() { MAX_PARTIAL_TTL } else { MAX_TTL };
        return (Ok(Answer { unsaid: failure, ..Answer::new(addresses) }), life.min(most));
    }
    match failure {
        Some(error) => (Err(error), FAILURE_TTL),
        None => (Err(ResolveError::NotFound { nxdomain }), negative_life),
    }
}
