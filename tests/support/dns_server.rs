//! A scripted DNS server (UDP and TCP) that records every query.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::dns_message::{self as message, HttpsRecord, Query};

/// What a server says about a name from a moment on. Without anything: an empty answer.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Answer {
    /// Seconds after `start_clock` from which this answer holds. Below 0.05 it is the
    /// answer to the second look-up, whenever that comes.
    pub t: f64,
    #[serde(rename = "A")]
    pub a: Vec<(IpAddr, u32)>,
    #[serde(rename = "AAAA")]
    pub aaaa: Vec<(IpAddr, u32)>,
    /// Owner, target, TTL.
    #[serde(rename = "CNAME")]
    pub cname: Vec<(String, String, u32)>,
    #[serde(rename = "DNAME")]
    pub dname: Vec<(String, String, u32)>,
    #[serde(rename = "HTTPS")]
    pub https: Vec<HttpsRecord>,
    /// `NXDOMAIN` and so on; `TIMEOUT` for silence.
    pub rcode: Option<String>,
    #[serde(rename = "AAAA_rcode")]
    pub aaaa_rcode: Option<String>,
    /// Truncated over UDP; then `tcp` holds what TCP says.
    pub tc: bool,
    pub tcp: Option<Box<Answer>>,
    /// A fault in words, see `malformed`.
    pub raw: Option<String>,
    /// For the test's own use: not answered here.
    pub nss: Option<String>,
    /// For the test's own use: not answered here.
    pub hosts_file: HashMap<String, String>,
}

impl Answer {
    pub fn address(address: IpAddr) -> Self {
        let list = vec![(address, 300)];
        match address {
            IpAddr::V4(_) => Self { a: list, ..Self::default() },
            IpAddr::V6(_) => Self { aaaa: list, ..Self::default() },
        }
    }

    pub fn rcode(name: &str) -> Self {
        Self { rcode: Some(name.to_owned()), ..Self::default() }
    }

    fn addresses(&self, kind: u16) -> &[(IpAddr, u32)] {
        match kind {
            message::A => &self.a,
            message::AAAA => &self.aaaa,
            _ => &[],
        }
    }

    /// The response code, or nothing for silence.
    fn code(&self, kind: u16) -> Option<u8> {
        let special = self.aaaa_rcode.as_ref().filter(|_| kind == message::AAAA);
        match special.or(self.rcode.as_ref()).map_or("NOERROR", String::as_str) {
            "TIMEOUT" => None,
            "NOERROR" | "NODATA" => Some(0),
            "FORMERR" => Some(1),
            "SERVFAIL" => Some(2),
            "NXDOMAIN" => Some(3),
            "REFUSED" => Some(5),
            other => panic!("no such response code: {other}"),
        }
    }
}

/// One question that was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Lower case, without the root dot.
    pub name: String,
    pub kind: String,
    pub tcp: bool,
}

/// What answers names that no script is about.
pub type Fallback = fn(&str) -> Ipv4Addr;

/// Listens until the process ends.
#[derive(Debug, Clone)]
pub struct DnsServer {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    scripts: HashMap<String, Vec<Answer>>,
    other_names: Option<Vec<Answer>>,
    fallback: Fallback,
    queries: Vec<Asked>,
    counts: HashMap<(String, u16), usize>,
    epoch: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Udp,
    Tcp,
}

impl DnsServer {
    /// Port 0 takes a free one, the same for UDP and TCP.
    pub fn start(address: SocketAddr, fallback: Fallback) -> io::Result<Self> {
        let tcp = TcpListener::bind(address)?;
        let udp = UdpSocket::bind(tcp.local_addr()?)?;
        let state = State {
            scripts: HashMap::new(),
            other_names: None,
            fallback,
            queries: Vec::new(),
            counts: HashMap::new(),
            epoch: Instant::now(),
        };
        let server = Self { address: tcp.local_addr()?, state: Arc::new(Mutex::new(state)) };
        let (over_udp, over_tcp) = (server.clone(), server.clone());
        thread::spawn(move || over_udp.serve_udp(&udp));
        thread::spawn(move || over_tcp.serve_tcp(&tcp));
        Ok(server)
    }

    /// Starts anew: these scripts by lower-case name, an empty record of queries, the clock at zero.
    /// `other_names` answers what has no script; else the fallback does.
    pub fn reset(&self, scripts: HashMap<String, Vec<Answer>>, other_names: Option<Vec<Answer>>) {
        let mut state = self.lock();
        state.scripts = scripts;
        state.other_names = other_names;
        state.queries.clear();
        state.counts.clear();
        state.epoch = Instant::now();
    }

    /// The moment from which `Answer::t` counts.
    pub fn epoch(&self) -> Instant {
        self.lock().epoch
    }

    pub fn queries(&self) -> Vec<Asked> {
        self.lock().queries.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn serve_udp(&self, socket: &UdpSocket) {
        let mut packet = [0; 4096];
        loop {
            let Ok((length, peer)) = socket.recv_from(&mut packet) else { continue };
            for reply in self.answer(&packet[..length], Transport::Udp) {
                let _ = socket.send_to(&reply, peer);
            }
        }
    }

    fn serve_tcp(&self, listener: &TcpListener) {
        for stream in listener.incoming().flatten() {
            let server = self.clone();
            thread::spawn(move || server.serve_stream(stream));
        }
    }

    /// Ends quietly with the connection, or after ten idle seconds.
    fn serve_stream(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        loop {
            let mut size = [0; 2];
            stream.read_exact(&mut size)?;
            let mut packet = vec![0; u16::from_be_bytes(size).into()];
            stream.read_exact(&mut packet)?;
            for reply in self.answer(&packet, Transport::Tcp) {
                let mut whole = u16::try_from(reply.len()).unwrap().to_be_bytes().to_vec();
                whole.extend(reply);
                stream.write_all(&whole)?;
            }
        }
    }

    fn answer(&self, packet: &[u8], transport: Transport) -> Vec<Vec<u8>> {
        let Some(query) = Query::parse(packet) else { return Vec::new() };
        let script = self.pick(&query, transport);
        let Some(rcode) = script.code(query.kind) else { return Vec::new() };
        let raw = script.raw.as_deref().unwrap_or_default();
        let (records, truncated) = match malformed(raw, &query) {
            Some(records) => (records, false),
            None => (records(&script, &query, transport), script.tc && transport == Transport::Udp),
        };
        let mut reply = query.reply(query.id, rcode, truncated, &records);
        if transport == Transport::Udp && reply.len() > query.udp_size {
            reply = query.reply(query.id, rcode, true, &[]);
        }
        if raw.starts_with("wrong transaction id") {
            let loopback =
                message::address_record(&message::wire_name(&query.name), Ipv4Addr::LOCALHOST.into(), 60);
            let spoof: Vec<_> = (query.kind == message::A).then_some(loopback).into_iter().collect();
            return vec![query.reply(query.id ^ 0x5555, 0, false, &spoof), reply];
        }
        vec![reply]
    }

    /// Records the query and finds what to say to it now.
    fn pick(&self, query: &Query, transport: Transport) -> Answer {
        let mut state = self.lock();
        let asked =
            Asked { name: query.name.clone(), kind: query.kind_name(), tcp: transport == Transport::Tcp };
        state.queries.push(asked);
        let count = state.counts.entry((query.name.clone(), query.kind)).or_default();
        *count += 1;
        let count = *count;
        let Some(script) = state.scripts.get(&query.name).or(state.other_names.as_ref()) else {
            return Answer::address((state.fallback)(&query.name).into());
        };
        let by_count = script.get(1).is_some_and(|second| second.t > 0.0 && second.t < 0.05);
        let age = state.epoch.elapsed().as_secs_f64();
        let current = if by_count {
            script.get(count.min(script.len()) - 1)
        } else {
            script.iter().rfind(|a| a.t <= age)
        };
        current.or(script.first()).cloned().unwrap_or_default()
    }
}

/// The answer section of a well-formed answer.
fn records(script: &Answer, query: &Query, transport: Transport) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for (parent, target, ttl) in &script.dname {
        out.push(message::record(
            &message::wire_name(parent),
            message::DNAME,
            *ttl,
            &message::wire_name(target),
        ));
    }
    let mut owner = query.name.clone();
    for (source, target, ttl) in chain_from(script, &query.name) {
        out.push(message::record(
            &message::wire_name(source),
            message::CNAME,
            *ttl,
            &message::wire_name(target),
        ));
        owner = target.clone();
    }
    let owner = message::wire_name(&owner);
    let full = script.tcp.as_deref().filter(|_| script.tc && transport == Transport::Tcp).unwrap_or(script);
    for (address, ttl) in full.addresses(query.kind) {
        out.push(message::address_record(&owner, *address, *ttl));
    }
    if query.kind == message::HTTPS {
        out.extend(
            script.https.iter().map(|entry| message::record(&owner, message::HTTPS, 60, &entry.data())),
        );
    }
    out
}

/// The part of the CNAME chain that begins at a name; all of it for a name that is not on it,
/// nothing at its end.
fn chain_from<'a>(script: &'a Answer, name: &str) -> &'a [(String, String, u32)] {
    let chain = &script.cname[..];
    let on_it = |name: &str| chain.iter().position(|(source, _, _)| source.eq_ignore_ascii_case(name));
    match on_it(name) {
        Some(at) => &chain[at..],
        None if chain.iter().any(|(_, target, _)| target.eq_ignore_ascii_case(name)) => &[],
        None => chain,
    }
}

/// The answer section of a script whose `raw` asks for a fault.
fn malformed(raw: &str, query: &Query) -> Option<Vec<Vec<u8>>> {
    let first = query.kind == message::A;
    let record = if raw.starts_with("answer owner") {
        first.then(|| {
            message::address_record(&message::wire_name("evil.test"), Ipv4Addr::LOCALHOST.into(), 60)
        })
    } else if raw.starts_with("A record with") {
        let wrong_size = if first { 16 } else { 4 };
        Some(message::record(&message::wire_name(&query.name), query.kind, 60, &vec![0; wrong_size]))
    } else {
        return None;
    };
    let asks_address = matches!(query.kind, message::A | message::AAAA);
    Some(record.filter(|_| asks_address).into_iter().collect())
}
