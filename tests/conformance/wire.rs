//! Exact octets both ways: how each row is run. What counts as a pass is in `wire_judge`.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::bench::{Bench, Observation, Problems, QUIET};
use crate::corpus;
use crate::proxy::{PROXY, Policy};
use crate::rows::{Idle, WireRow};
use crate::support::client::{self, Exchange, Talk};
use crate::support::dns_server::Answer;
use crate::support::http1;
use crate::support::sink::Script;
use crate::support::world::CLIENT;
use crate::{token, wire_judge};

/// What rows about limits use.
const TUNNEL_IDLE: Duration = Duration::from_secs(2);
const TUNNEL_LIFETIME: Duration = Duration::from_secs(3);
const CONNECTIONS: usize = 4;
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections of a flood; each costs the test two descriptors and the proxy one.
const FLOOD: usize = 400;

/// One row, made ready.
pub struct Plan<'a> {
    pub row: &'a WireRow,
    pub payload: Vec<u8>,
    pub methods: Vec<String>,
    pub script: Script,
}

impl Plan<'_> {
    pub fn tunnel(&self) -> bool {
        self.methods[0] == "CONNECT"
    }

    /// What the payload holds behind the head of a CONNECT.
    pub fn inside(&self) -> &[u8] {
        if self.tunnel() { http1::split_head(&self.payload).map_or(&[], |(_, rest)| rest) } else { &[] }
    }

    /// What the origin says in a tunnel.
    pub fn reply(&self) -> Vec<u8> {
        if self.tunnel() {
            self.script.reply.iter().flat_map(|(text, times)| text.repeat(*times)).collect()
        } else {
            Vec::new()
        }
    }
}

pub fn run(bench: &mut Bench, row: &WireRow) -> Result<Problems, String> {
    bench.ensure(&policy(row), !row.dns.is_empty())?;
    bench.prepare(answers(row), None);
    match row.repeat_connections.as_ref().map(serde_json::Value::is_string) {
        Some(true) => return Ok(one_tunnel_too_many(&corpus::expand(&row.client_bytes))),
        Some(false) => return Ok(flood(bench)),
        None => {}
    }
    let plan = plan(row);
    let got = observe(bench, &plan);
    if !row.dns.is_empty() {
        bench.stop(); // its cache holds what only this row may see
    }
    Ok(got.explain(wire_judge::judge(&plan, &got)))
}

fn plan(row: &WireRow) -> Plan<'_> {
    let payload = corpus::expand(&token::fill_in(&row.client_bytes));
    let methods = methods(&payload);
    let tunnel = methods[0] == "CONNECT";
    let reply = match &row.origin_bytes {
        Some(text) => corpus::segments(text),
        None if tunnel => Vec::new(),
        None => Script::default().reply,
    };
    let script = Script { reply, tunnel, patient: row.timing.drip.is_some() };
    Plan { row, payload, methods, script }
}

/// The words in capitals at the start of the payload and behind each empty line.
fn methods(payload: &[u8]) -> Vec<String> {
    let text = http1::latin1(payload);
    let word = |part: &str| {
        let (word, _) = part.split_once(' ')?;
        (!word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase())).then(|| word.to_owned())
    };
    let out: Vec<String> = text.split("\r\n\r\n").filter_map(word).collect();
    if out.is_empty() { vec!["GET".to_owned()] } else { out }
}

/// P0, with the switch or the limit that the row is about.
fn policy(row: &WireRow) -> Policy {
    let mut policy = Policy::p0();
    if matches!(row.timing.idle, Some(Idle::TunnelIdle)) {
        policy.limits.push(("tunnel_idle", format!("\"{}s\"", TUNNEL_IDLE.as_secs())));
    }
    if row.timing.until_lifetime {
        policy.limits.push(("tunnel_lifetime", format!("\"{}s\"", TUNNEL_LIFETIME.as_secs())));
    }
    if row.repeat_connections.as_ref().is_some_and(serde_json::Value::is_string) {
        policy.limits.push(("connections", CONNECTIONS.to_string()));
    }
    policy.body_timeout = row.timing.drip.as_ref().map(|_| BODY_TIMEOUT);
    policy.tokens = row.auth_mode.is_some();
    policy.tls_any = !policy.limits.is_empty() || row.options.require_tls_on_443 == Some(false);
    policy
}

fn answers(row: &WireRow) -> HashMap<String, Vec<Answer>> {
    let proxy = PROXY.parse::<std::net::SocketAddr>().unwrap().ip();
    let itself = ("proxy.allowed.example".to_owned(), vec![Answer::address(proxy)]);
    let of_row = row.dns.iter().map(|(name, code)| (name.clone(), vec![Answer::rcode(code)]));
    of_row.chain([itself]).collect()
}

fn observe(bench: &Bench, plan: &Plan<'_>) -> Observation {
    let row = plan.row;
    bench.sink.begin(plan.script.clone());
    let methods: Vec<&str> = plan.methods.iter().map(String::as_str).collect();
    let mut talk = bench.talk(plan.payload.clone(), &methods);
    let patient = schedule(&mut talk, plan);
    let answers = row.expected.status_sequence.len().max(1);
    let closes = row.expected.connection.as_deref() == Some("close");
    let quiet = if closes { Duration::from_millis(800) } else { QUIET };
    let (inside, reply) = (plan.inside().len(), plan.reply().len());
    let until_closed = patient || (plan.tunnel() && row.expected.origin_sees == "nothing-after-200");
    let done = |seen: &Exchange| {
        let refused = plan.tunnel() && seen.status().is_some_and(|s| s >= 300);
        !until_closed
            && (seen.sent == plan.payload.len() || refused)
            && seen.responses.len() >= answers
            && seen.settled(quiet)
            && bench.arrived(seen, inside)
            && (seen.tail.len() >= reply || seen.quiet_for(Duration::from_secs(1)))
    };
    let seen = talk.run(done);
    if row.expected.audit.is_some() {
        thread::sleep(Duration::from_millis(100)); // a record may follow the answer
    }
    bench.observe(seen)
}

/// When what is sent, and how long to listen; says whether only the end of the connection ends the row.
fn schedule(talk: &mut Talk, plan: &Plan<'_>) -> bool {
    let (row, timing) = (plan.row, &plan.row.timing);
    let seconds = Duration::from_secs;
    let mut patient = false;
    if !plan.inside().is_empty() && matches!(row.tag.as_str(), "tls" | "baseline") {
        talk.hold = Some(plan.payload.len() - plan.inside().len());
    }
    if let Some((text, every)) = &timing.drip {
        talk.drip = Some((corpus::octets(text), *every));
        talk.limit = seconds(36);
    }
    if let Some((size, gap)) = timing.segments {
        talk.segments = Some((size, gap));
        let segments = u32::try_from(plan.payload.len().div_ceil(size)).unwrap();
        talk.limit += gap * segments * 5;
    }
    if let Some(idle) = timing.idle {
        let idle = match idle {
            Idle::Seconds(number) => seconds(number),
            Idle::TunnelIdle => TUNNEL_IDLE,
        };
        talk.limit = idle + seconds(5);
        patient = true;
    }
    if timing.until_lifetime {
        talk.drip = Some((b"x".to_vec(), Duration::from_millis(500)));
        talk.limit = TUNNEL_LIFETIME + seconds(5);
        patient = true;
    }
    if timing.slow_read {
        talk.read_pause = Some(seconds(3));
    }
    if row.expected.status.iter().flatten().any(|s| matches!(s, 408 | 504)) {
        talk.limit = talk.limit.max(seconds(36));
    }
    if !row.client_bytes.contains("\r\n\r\n") || row.expected.origin_sees == "nothing-after-200" {
        talk.limit = talk.limit.max(seconds(14)); // half a head or hello may wait for its deadline
    }
    patient
}

/// So many tunnels as the limit says work at once; one more is refused.
fn one_tunnel_too_many(payload: &[u8]) -> Problems {
    let open = || -> std::io::Result<(TcpStream, String)> {
        let mut stream = client::connect_from(CLIENT.parse().unwrap(), PROXY.parse().unwrap())?;
        stream.set_read_timeout(Some(Duration::from_secs(3)))?;
        stream.write_all(payload)?;
        let mut buffer = [0; 4096];
        let length = stream.read(&mut buffer)?;
        let status = http1::latin1(&buffer[..length]).split(' ').nth(1).unwrap_or_default().to_owned();
        Ok((stream, status))
    };
    let opened: Vec<_> = (0..=CONNECTIONS).map(|_| open()).collect();
    let statuses: Vec<String> =
        opened.iter().map(|o| o.as_ref().map_or_else(ToString::to_string, |o| o.1.clone())).collect();
    let (last, first) = statuses.split_last().unwrap();
    if first.iter().all(|s| s == "200") && matches!(last.as_str(), "429" | "503") {
        return Vec::new();
    }
    vec![format!("statuses {statuses:?}, expected {CONNECTIONS} times 200 and then 429 or 503")]
}

/// Connections that say nothing don't keep the proxy from serving the next client.
fn flood(bench: &Bench) -> Problems {
    let open = || client::connect_from(CLIENT.parse().unwrap(), PROXY.parse().unwrap());
    let silent: Vec<_> = (0..FLOOD).map(|_| open()).collect();
    let refused = silent.iter().filter(|s| s.is_err()).count();
    let payload = b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n".to_vec();
    let seen = bench.talk(payload, &["GET"]).run(|seen| seen.settled(QUIET));
    let mut out = Vec::new();
    if refused > 0 {
        out.push(format!("{refused} of {FLOOD} connections were not accepted"));
    }
    if seen.status() != Some(200) {
        out.push(format!("{} beside {FLOOD} silent connections", crate::bench::describe(&seen)));
    }
    out
}
