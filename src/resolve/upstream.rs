//! Asks the configured DNS servers one question and says what came back.
//!
//! One hickory pool a server, so that the order, the time for each and the fall-over are ours.
//! The next server is asked only when one can't be reached or is silent: an answer, also an error
//! code, is final. Names, caching and CNAMEs are the caller's matter.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ProtocolConfig, ResolverOpts, ServerOrderingStrategy,
};
use hickory_resolver::net::xfer::{DnsHandle, FirstAnswer};
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{DnsRequestOptions, DnsResponse, Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{NameServerPool, PoolContext, TlsConfig};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::answer::{BadAnswer, Extract, extract, same_question};
use super::runtime::{Connector, Runtime};
use super::servers::{ServerSpec, Transport};
use super::service::{Found, services_of};

/// How long a server that could not be reached is asked last.
const DOWN: Duration = Duration::from_secs(10);
/// What hickory needs beyond its own time limit to report it.
const REPORT: Duration = Duration::from_millis(100);
/// Time for the readiness probe.
const PROBE: Duration = Duration::from_secs(1);
/// Most characters of a cause that are kept: part of it may come from a server.
const CAUSE_CHARS: usize = 160;

/// Why a question has no usable answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AskError {
    /// A server answered with an error or nonsense, or none could be reached.
    Failed(String),
    /// Silence.
    Timeout,
}

impl From<BadAnswer> for AskError {
    fn from(bad: BadAnswer) -> Self {
        Self::Failed(bad.to_string())
    }
}

/// Why the servers can't be used.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The extra CA certificates can't be read.
    #[error("the CA bundle for DNS servers can't be used: {0}; write PEM certificates")]
    CaBundle(String),
    /// TLS can't be set up.
    #[error("TLS for DNS servers can't be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// What a server said.
enum Reply {
    Message(DnsResponse),
    /// That there is nothing; hickory keeps the message to itself.
    Nothing {
        nxdomain: bool,
        ttl: Option<u32>,
    },
}

/// The configured servers.
pub(super) struct Upstream {
    servers: Vec<Server>,
    /// Time for one server before the next is asked.
    try_time: Duration,
    turns: Semaphore,
}

struct Server {
    pool: NameServerPool<Connector>,
    connector: Connector,
    /// Until when it is asked last.
    down: Mutex<Option<Instant>>,
}

impl Upstream {
    /// `limit` is the time for a whole look-up: two tries and a little more fit into it.
    pub(super) fn new(
        specs: &[ServerSpec],
        limit: Duration,
        extra_ca_pem: Option<&[u8]>,
        in_flight: usize,
    ) -> Result<Self, UpstreamError> {
        let try_time = limit * 2 / 5;
        let tls = TlsConfig { config: tls_config(extra_ca_pem)? };
        let context = Arc::new(PoolContext::new(options(try_time), tls));
        let runtime = Runtime::new(specs.iter().map(ServerSpec::addr));
        let server = |spec: &ServerSpec| {
            let connector = Connector::new(runtime.clone());
            let servers = [name_server(spec)];
            let context = Arc::clone(&context);
            let pool = NameServerPool::from_config(servers, context, connector.clone());
            Server { pool, connector, down: Mutex::new(None) }
        };
        Ok(Self {
            servers: specs.iter().map(server).collect(),
            try_time,
            turns: Semaphore::new(in_flight.max(1)),
        })
    }

    /// Asks for the addresses of one family that `name` has.
    pub(super) async fn ask(
        &self,
        name: &Name,
        kind: RecordType,
        deadline: Instant,
    ) -> Result<Extract, AskError> {
        let question = Query::query(name.clone(), kind);
        match self.reply(&question, deadline).await? {
            Reply::Message(message) => Ok(extract(&message, &question)?),
            Reply::Nothing { nxdomain, ttl } => Ok(Extract::Empty { nxdomain, ttl }),
        }
    }

    /// Asks for the HTTPS records that `name` has.
    pub(super) async fn ask_services(&self, name: &Name, deadline: Instant) -> Result<Found, AskError> {
        let question = Query::query(name.clone(), RecordType::HTTPS);
        match self.reply(&question, deadline).await? {
            Reply::Message(message) => Ok(services_of(&message, &question)?),
            Reply::Nothing { ttl, .. } => Ok(Found::Services { services: Vec::new(), ttl: ttl.unwrap_or(0) }),
        }
    }

    /// Asks one question.
    async fn reply(&self, question: &Query, deadline: Instant) -> Result<Reply, AskError> {
        // The semaphore is never closed, so an error can only be the deadline.
        let Ok(_turn) = timeout_at(deadline, self.turns.acquire()).await else {
            return Err(AskError::Timeout);
        };
        let mut last = AskError::Timeout;
        // A single server gets a second try: one lost packet or restart is no failure.
        for server in self.in_order().into_iter().cycle().take(self.servers.len().max(2)) {
            if Instant::now() >= deadline {
                break;
            }
            let until = deadline.min(Instant::now() + self.try_time + REPORT);
            let answer = server.pool.lookup(question.clone(), DnsRequestOptions::default()).first_answer();
            let error = match timeout_at(until, answer).await {
                Ok(Ok(response)) => {
                    server.mark(None);
                    return Ok(Reply::Message(response));
                }
                Ok(Err(error)) => error,
                Err(_) => NetError::Timeout,
            };
            if is_answer(&error) {
                server.mark(None);
                return negative(error, question);
            }
            // Busy is our side of the connection, not the server.
            if !matches!(error, NetError::Busy) {
                server.mark(Some(Instant::now() + DOWN));
            }
            last = server.unreached(&error);
        }
        Err(last)
    }

    /// The servers in the configured order, those that were down a moment ago last.
    fn in_order(&self) -> Vec<&Server> {
        let now = Instant::now();
        let (mut up, down): (Vec<&Server>, Vec<&Server>) =
            self.servers.iter().partition(|server| !server.is_down(now));
        up.extend(down);
        up
    }

    /// Whether any server answers anything at all within a second.
    pub(super) async fn probe(&self) -> bool {
        let mut asked = JoinSet::new();
        for server in &self.servers {
            let question = Query::query(Name::root(), RecordType::NS);
            let answer = server.pool.lookup(question, DnsRequestOptions::default()).first_answer();
            asked.spawn(async move {
                match answer.await {
                    Ok(_) => true,
                    Err(error) => is_answer(&error),
                }
            });
        }
        let any = async {
            while let Some(answered) = asked.join_next().await {
                if matches!(answered, Ok(true)) {
                    return true;
                }
            }
            false
        };
        timeout(PROBE, any).await.unwrap_or(false)
    }
}

impl Server {
    fn mark(&self, down: Option<Instant>) {
        *self.down.lock().unwrap_or_else(PoisonError::into_inner) = down;
    }

    fn is_down(&self, now: Instant) -> bool {
        let down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        down.is_some_and(|until| now < until)
    }

    /// What a failure to get any answer counts as.
    fn unreached(&self, error: &NetError) -> AskError {
        match (error, self.connector.take_failure()) {
            (NetError::Timeout, _) => AskError::Timeout,
            (_, Some(failure)) => {
                AskError::Failed(bounded(&format!("no DNS server could be reached: {failure}")))
            }
            (NetError::NoConnections, None) => AskError::Failed("no DNS server could be reached".into()),
            (error, None) => AskError::Failed(bounded(&format!("no DNS server could be reached: {error}"))),
        }
    }
}

/// Whether the server spoke, so that nobody else is to be asked.
fn is_answer(error: &NetError) -> bool {
    matches!(
        error,
        NetError::Dns(_) | NetError::Proto(_) | NetError::ForeignClassRecord { .. } | NetError::Truncated
    )
}

/// What hickory reports as an error although a server answered.
fn negative(error: NetError, question: &Query) -> Result<Reply, AskError> {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => {
            if !same_question(&none.query, question) {
                return Err(BadAnswer::Question.into());
            }
            let authorities = none.authorities.as_deref().unwrap_or_default();
            let ttl = super::answer::negative_ttl(authorities);
            Ok(Reply::Nothing { nxdomain: none.response_code == ResponseCode::NXDomain, ttl })
        }
        NetError::Dns(DnsError::ResponseCode(code)) => {
            Err(AskError::Failed(format!("the DNS server answered {}", mnemonic(code))))
        }
        NetError::ForeignClassRecord { .. } => Err(BadAnswer::Class.into()),
        NetError::Truncated => Err(BadAnswer::Truncated.into()),
        other => Err(AskError::Failed(bounded(&format!("unusable answer: {other}")))),
    }
}

/// The names of RFC 1035 section 4.1.1, which tools print.
fn mnemonic(code: ResponseCode) -> String {
    match code {
        ResponseCode::FormErr => "FORMERR".into(),
        ResponseCode::ServFail => "SERVFAIL".into(),
        ResponseCode::NotImp => "NOTIMP".into(),
        ResponseCode::Refused => "REFUSED".into(),
        other => format!("RCODE {}", u16::from(other)),
    }
}

/// Short and printable, since it ends in logs and records.
fn bounded(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(CAUSE_CHARS).collect()
}

fn options(try_time: Duration) -> ResolverOpts {
    let mut options = ResolverOpts::default();
    options.timeout = try_time;
    options.server_ordering_strategy = ServerOrderingStrategy::UserProvidedOrder;
    // The kernel knows which ports are reserved, and picks at random.
    options.os_port_selection = true;
    // 0x20: a forger has to guess the case of every letter as well. A server that does not echo
    // the case is asked again over TCP.
    options.case_randomization = true;
    options
}

fn name_server(spec: &ServerSpec) -> NameServerConfig {
    let addr = spec.addr().get();
    let protocols = match spec.transport() {
        Transport::Udp => vec![ProtocolConfig::Udp, ProtocolConfig::Tcp],
        Transport::Tcp => vec![ProtocolConfig::Tcp],
        Transport::Tls { name } => vec![ProtocolConfig::Tls { server_name: Arc::clone(name) }],
        Transport::Https { name, path } => {
            vec![ProtocolConfig::Https { server_name: Arc::clone(name), path: Arc::clone(path) }]
        }
    };
    let connections = protocols.into_iter().map(|protocol| {
        let mut connection = ConnectionConfig::new(protocol);
        connection.port = addr.port();
        connection
    });
    NameServerConfig::new(addr.ip(), true, connections.collect())
}

/// Mozilla's roots, and those of `extra_ca_pem`.
fn tls_config(extra_ca_pem: Option<&[u8]>) -> Result<rustls::ClientConfig, UpstreamError> {
    let mut roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(pem) = extra_ca_pem {
        let before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|e| UpstreamError::CaBundle(e.to_string()))?;
            roots.add(certificate).map_err(|e| UpstreamError::CaBundle(e.to_string()))?;
        }
        if roots.len() == before {
            return Err(UpstreamError::CaBundle("it holds no certificate".into()));
        }
    }
    // Named here, so that nothing depends on which provider the process installed as default.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
