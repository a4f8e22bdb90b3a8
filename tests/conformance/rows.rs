//! The rows of the case files. Every key of a file is known here, so that none is ignored by accident.

#![allow(dead_code, reason = "some keys are for people: the message of a failure shows the whole row")]

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::corpus::PUBLIC;
use crate::support::dns_server::Answer;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetRow {
    pub id: String,
    pub tag: String,
    pub method: String,
    /// Goes on the wire as UTF-8, as it is.
    pub target: String,
    /// No `Host` line where it is absent.
    pub host_header: Option<String>,
    pub http_version: Option<String>,
    pub expected: String,
    #[serde(default)]
    pub also_ok: Vec<String>,
    pub canonical_port: Option<u16>,
    pub canonical_host: Option<String>,
    pub canonical_ip: Option<String>,
    /// The `Host` that the origin must see.
    pub forwarded_host: Option<String>,
    #[serde(default)]
    pub contentious: bool,
    pub why: String,
    pub source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddressRow {
    /// Makes the name that resolves to it unlike that of any other row.
    #[serde(skip)]
    pub number: usize,
    /// As written, for each spelling is a row of its own.
    pub address: String,
    pub class: String,
    pub embedded_ipv4: Option<String>,
    pub expected: String,
    pub reason: Option<String>,
    pub source: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleRow {
    pub id: String,
    pub rule: OneOrMore,
    pub host: String,
    pub port: u16,
    pub expected: String,
    #[serde(default)]
    pub also_ok: Vec<String>,
    /// `deny`: it is the address that can't be allowed. A refusal is what counts.
    pub expected_address: Option<String>,
    #[serde(default = "public_answer")]
    pub resolved: Vec<String>,
    #[serde(default)]
    pub contentious: bool,
    pub why: String,
}

fn public_answer() -> Vec<String> {
    vec![PUBLIC.to_string()]
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(rule) => std::slice::from_ref(rule),
            Self::More(rules) => rules,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DnsRow {
    pub id: String,
    pub question: Question,
    pub answers: Vec<Answer>,
    pub policy: DnsPolicy,
    pub expected: DnsExpected,
    #[serde(default)]
    pub also_ok: Vec<String>,
    #[serde(default)]
    pub contentious: bool,
    pub why: String,
    pub source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// `{{n}}` in it stands for the number of the request.
    pub name: String,
    pub port: u16,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DnsPolicy {
    pub rules: Vec<String>,
    #[serde(default)]
    pub unlock: Vec<Unlock>,
    /// Addresses of this machine on which the proxy listens too, on `listen_port`.
    #[serde(default)]
    pub proxy_addresses: Vec<IpAddr>,
    pub listen_port: Option<u16>,
}

/// A private range that one host may resolve into, for one port.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unlock {
    pub host: String,
    pub cidr: String,
    pub port: u16,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DnsExpected {
    pub outcome: String,
    #[serde(default)]
    pub dial_any_of: Vec<IpAddr>,
    /// Dials to these fail at once.
    #[serde(default)]
    pub dial_failures: Vec<IpAddr>,
    pub must_not_dial: Vec<IpAddr>,
    #[serde(default)]
    pub must_not_query: Vec<String>,
    pub max_dials: Option<usize>,
    pub max_queries: Option<usize>,
    pub max_queries_per_type: Option<usize>,
    pub queries: Option<usize>,
    pub max_seconds: Option<f64>,
    /// An hour can't be waited for here; unit tests hold the bound of the cache.
    pub max_cache_ttl: Option<u32>,
    /// Seconds after the start; one request at 0 where it is absent.
    #[serde(default)]
    pub requests_at: Vec<f64>,
    /// So many requests, evenly over `window_s` seconds.
    pub requests: Option<usize>,
    pub window_s: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WireRow {
    pub id: String,
    pub title: String,
    pub tag: String,
    pub client_bytes: String,
    pub origin_bytes: Option<String>,
    pub auth_mode: Option<AuthMode>,
    #[serde(default)]
    pub options: Options,
    #[serde(default, deserialize_with = "timing")]
    pub timing: Timing,
    /// A response code for a name, instead of an address.
    #[serde(default)]
    pub dns: HashMap<String, String>,
    /// What may not happen beside the rest, in words that `wire.rs` knows.
    pub extra: Option<String>,
    pub repeat_connections: Option<Value>,
    pub expected: WireExpected,
    #[serde(default)]
    pub also_ok: Vec<String>,
    #[serde(default)]
    pub contentious: bool,
    pub why: String,
    pub source: String,
}

impl WireRow {
    /// Roughly how long it takes to run.
    pub fn duration(&self) -> Duration {
        let statuses = self.expected.status.as_deref().unwrap_or_default();
        let ends_late = self.expected.origin_sees == "nothing-after-200" || self.timing.idle.is_some();
        Duration::from_millis(match () {
            () if statuses.contains(&408) => 10_000,
            () if ends_late || !self.client_bytes.contains("\r\n\r\n") => 12_000,
            () if self.timing.slow_read || self.repeat_connections.is_some() => 4_000,
            () if self.expected.connection.as_deref() == Some("close") => 800,
            () => 100,
        })
    }
}

/// How the client has to identify itself, where its address is not enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthMode {
    /// By a token, sent as the password of Basic.
    Basic,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    pub require_tls_on_443: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WireExpected {
    /// Accepted statuses of the answer, or of the first one.
    pub status: Option<Vec<u16>>,
    /// One per request, in order.
    #[serde(default)]
    pub status_sequence: Vec<u16>,
    pub connection: Option<String>,
    pub origin_sees: String,
    #[serde(default)]
    pub origin_must_contain: Vec<String>,
    #[serde(default)]
    pub origin_must_not_contain: Vec<String>,
    #[serde(default)]
    pub client_must_not_contain: Vec<String>,
    pub audit: Option<AuditExpected>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditExpected {
    /// How many decision records.
    pub lines: Option<usize>,
    /// Every line must be JSON in any case.
    #[serde(default)]
    pub valid_json: bool,
    #[serde(default)]
    pub must_not_contain_raw: Vec<String>,
    pub identity: Option<String>,
}

/// When things happen on the wire; by default at once.
#[derive(Debug, Default)]
pub struct Timing {
    pub idle: Option<Idle>,
    /// Traffic goes on until the tunnel's lifetime is over.
    pub until_lifetime: bool,
    pub segments: Option<(usize, Duration)>,
    pub drip: Option<(String, Duration)>,
    /// The client stops reading.
    pub slow_read: bool,
}

#[derive(Debug, Clone, Copy)]
pub enum Idle {
    Seconds(u64),
    /// Until the policy's `tunnel_idle`.
    TunnelIdle,
}

fn timing<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Timing, D::Error> {
    let mut out = Timing::default();
    for step in Vec::<Vec<Value>>::deserialize(from)? {
        let number = |at: usize| step.get(at).and_then(Value::as_u64);
        let text = |at: usize| step.get(at).and_then(Value::as_str);
        match (text(0), number(1), text(1), number(3)) {
            (Some("idle_seconds"), Some(seconds), _, _) => out.idle = Some(Idle::Seconds(seconds)),
            (Some("idle_seconds"), None, Some("idle_timeout+5"), _) => out.idle = Some(Idle::TunnelIdle),
            (Some("traffic_for"), None, Some("max_lifetime+5"), _) => out.until_lifetime = true,
            (Some("segment_bytes"), Some(size), _, Some(gap)) => {
                out.segments = Some((usize::try_from(size).unwrap(), Duration::from_millis(gap)));
            }
            (Some("drip"), None, Some(text), Some(every)) => {
                out.drip = Some((text.to_owned(), Duration::from_secs(every)));
            }
            (Some("read_rate_bps"), Some(1), _, _) => out.slow_read = true,
            _ => return Err(serde::de::Error::custom(format!("unknown timing {step:?}"))),
        }
    }
    Ok(out)
}
