//! One observation of the proxy inside the closed world, and the checks that suites share.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::corpus::{self, Case, PUBLIC, p0_address};
use crate::proxy::{PROXY, Policy};
use crate::support::client::{Exchange, Talk};
use crate::support::dns_server::{Answer, Asked, DnsServer};
use crate::support::egret::Egret;
use crate::support::http1;
use crate::support::sink::{Conn, Script, Sink};
use crate::support::witness::Witness;
use crate::support::world::{CLIENT, DNS_ADDRESS, World};

/// For a dial that follows a refusal.
const GRACE: Duration = Duration::from_millis(20);
/// Silence after which an answer counts as all there is.
pub const QUIET: Duration = Duration::from_millis(30);
/// Octets of each side that the message of a failure shows.
const SHOWN: usize = 1000;

/// Why a row fails, in words. An empty list is a pass.
pub type Problems = Vec<String>;

/// Where P0 lets a request go.
pub fn p0_places() -> [SocketAddr; 2] {
    [80, 443].map(|port| SocketAddr::new(PUBLIC.into(), port))
}

/// What the world saw of one request, or of several.
#[derive(Debug)]
pub struct Observation {
    pub seen: Exchange,
    pub dials: Vec<SocketAddr>,
    pub conns: Vec<Arc<Conn>>,
    pub queries: Vec<Asked>,
    pub audit: Vec<u8>,
}

impl Observation {
    /// Everything that reached any origin.
    pub fn received(&self) -> Vec<u8> {
        self.conns.iter().flat_map(|conn| conn.data()).collect()
    }

    /// Adds to the problems of a row that fails what was seen of it.
    pub fn explain(&self, mut problems: Problems) -> Problems {
        if !problems.is_empty() {
            let start = |bytes: &[u8]| http1::latin1(&bytes[..bytes.len().min(SHOWN)]);
            problems.push(format!("client read {:?}, closed: {}", start(&self.seen.data), self.seen.eof));
            problems.push(format!("origins read {:?}", start(&self.received())));
            problems.push(format!("dialled {:?}", self.dials));
            let queries: Vec<String> =
                self.queries.iter().map(|q| format!("{} {}", q.name, q.kind)).collect();
            problems.push(format!("asked DNS for {:?}", &queries[..queries.len().min(20)]));
        }
        problems
    }
}

/// The closed world with everything in it.
#[derive(Debug)]
pub struct Bench {
    pub world: World,
    pub sink: Sink,
    pub dns: DnsServer,
    pub witness: Witness,
    running: Option<(Policy, Egret)>,
}

impl Bench {
    /// `files` is an empty folder for the world's own files.
    pub fn open(files: &Path, cases: &[Case]) -> Result<Self, String> {
        let text = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
        let world = World::enter(files)?;
        let dns_address = SocketAddr::new(DNS_ADDRESS.parse().unwrap(), 53);
        let clients = vec![CLIENT.parse().unwrap()];
        Ok(Self {
            world,
            sink: Sink::start(corpus::ports(cases)).map_err(text("the sink"))?,
            dns: DnsServer::start(dns_address, p0_address).map_err(text("the DNS server"))?,
            witness: Witness::open(clients, dns_address).map_err(text("the packet socket"))?,
            running: None,
        })
    }

    /// Runs egret with this policy; starts it anew where it has another one, has ended, or `fresh`.
    pub fn ensure(&mut self, policy: &Policy, fresh: bool) -> Result<(), String> {
        let fits =
            self.running.as_mut().is_some_and(|(has, egret)| has == policy && egret.exited().is_none());
        if fresh || !fits {
            self.stop();
            self.running = Some((policy.clone(), policy.builder().try_start()?));
        }
        Ok(())
    }

    pub fn stop(&mut self) {
        self.running = None;
    }

    /// The proxy's end, if a row brought it about.
    pub fn death(&mut self) -> Option<String> {
        let (_, egret) = self.running.as_mut()?;
        let status = egret.exited()?;
        Some(format!("the proxy ended, {status}; its log:\n{}", egret.log()))
    }

    pub fn egret(&self) -> &Egret {
        &self.running.as_ref().expect("a row runs after `ensure`").1
    }

    /// Time zero of a row: an empty slate, and what DNS shall say.
    pub fn prepare(&self, scripts: HashMap<String, Vec<Answer>>, other_names: Option<Vec<Answer>>) {
        self.egret().audit_news();
        self.sink.end();
        self.sink.begin(Script::default());
        self.witness.clear();
        self.dns.reset(scripts, other_names);
    }

    /// A talk of the row's client with the proxy, still to be run.
    pub fn talk(&self, payload: Vec<u8>, methods: &[&str]) -> Talk {
        let mut talk = Talk::new(PROXY.parse().unwrap(), payload, methods);
        talk.source = CLIENT.parse().unwrap();
        talk
    }

    /// After the 200 of a CONNECT: are the dial, and `want` octets, seen? A second at most is given.
    pub fn arrived(&self, seen: &Exchange, want: usize) -> bool {
        if seen.methods.first().is_none_or(|m| m != "CONNECT") || !seen.success() {
            return true;
        }
        let since = seen.last_read.max(seen.last_sent);
        if since.is_some_and(|at| at.elapsed() > Duration::from_secs(1)) {
            return true;
        }
        !self.witness.dials().is_empty() && self.sink.received() >= want
    }

    /// Collects what the world saw of the row, and drops its connections.
    pub fn observe(&self, seen: Exchange) -> Observation {
        thread::sleep(GRACE);
        let dials = self.dials();
        let audit = self.egret().audit_news();
        Observation { seen, dials, audit, queries: self.dns.queries(), conns: self.sink.end() }
    }

    /// The proxy's dials since `prepare`, each address in one spelling.
    pub fn dials(&self) -> Vec<SocketAddr> {
        self.witness.dials().into_iter().map(|d| SocketAddr::new(d.ip().to_canonical(), d.port())).collect()
    }

    /// One request from a clean start, with nothing special about it.
    pub fn request(
        &self,
        payload: Vec<u8>,
        method: &str,
        scripts: HashMap<String, Vec<Answer>>,
    ) -> Observation {
        self.prepare(scripts, None);
        let seen = self.talk(payload, &[method]).run(|seen| seen.settled(QUIET) && self.arrived(seen, 0));
        self.observe(seen)
    }
}

/// Answered, and dialled what is permitted and nothing else.
pub fn check_allowed(got: &Observation, permitted: &[SocketAddr], forwarded_host: Option<&str>) -> Problems {
    let mut out = strays(got, permitted);
    let status = got.seen.status();
    if !status.is_some_and(|s| (200..400).contains(&s)) {
        out.push(format!("{}, expected success", describe(&got.seen)));
    }
    if got.dials.is_empty() {
        out.push("nothing dialled".to_owned());
    }
    if let Some(host) = forwarded_host {
        let received = got.received().to_ascii_lowercase();
        let line = format!("\r\nhost: {host}\r\n");
        if http1::find(&received, line.as_bytes()).is_none() {
            out.push(format!("the origin did not see Host {host}"));
        }
    }
    out
}

/// Refused with such a status, before any dial, octet or (where `quiet`) query.
pub fn check_refused(got: &Observation, status: impl Fn(u16) -> bool, quiet: bool) -> Problems {
    let mut out = strays(got, &[]);
    let bytes: usize = got.conns.iter().map(|c| c.received()).sum();
    if bytes > 0 {
        out.push(format!("{bytes} octets reached an origin"));
    }
    if let Some(query) = got.queries.first().filter(|_| quiet) {
        out.push(format!("asked DNS for {:?}", query.name));
    }
    if !got.seen.status().is_some_and(status) {
        out.push(format!("{}, expected a refusal", describe(&got.seen)));
    }
    out
}

/// A dial to anywhere else than what is permitted.
pub fn strays(got: &Observation, permitted: &[SocketAddr]) -> Problems {
    let stray = got.dials.iter().find(|dial| !permitted.contains(dial));
    stray.map(|dial| format!("dialled {dial}")).into_iter().collect()
}

/// What the client got, for a message.
pub fn describe(seen: &Exchange) -> String {
    match seen.last_word() {
        Some(answer) => format!("status {} {:?}", answer.status, answer.phrase),
        None if seen.eof => "closed without an answer".to_owned(),
        None => "no answer".to_owned(),
    }
}

/// Of the problems of several acceptable results none if one has none, else the first one's.
pub fn best(outcomes: Vec<Problems>) -> Problems {
    let pass = outcomes.iter().any(Vec::is_empty);
    if pass { Vec::new() } else { outcomes.into_iter().next().unwrap_or_default() }
}

/// One script under one name.
pub fn script(name: &str, answers: Vec<Answer>) -> HashMap<String, Vec<Answer>> {
    HashMap::from([(name.to_owned(), answers)])
}

/// One spelling per address: the kernel dials a mapped address as the IPv4 address inside.
pub fn canonical(addresses: &[IpAddr]) -> Vec<IpAddr> {
    addresses.iter().map(IpAddr::to_canonical).collect()
}
