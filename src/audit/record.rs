//! The records of schema `egret.audit/1` as their makers fill them in. No encoding, no I/O.
//!
//! Words of closed sets that other modules own (reason codes) come as `&'static str`; text that
//! an outsider may have chosen is [`Text`], which is bounded.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::{AttemptId, PathRecord, Text, Timestamp};

/// Name and version of the format, told in every `start` record.
pub const SCHEMA: &str = "egret.audit/1";
/// Addresses of an answer that are written out; of more, the number is told.
pub const ADDRESS_LIMIT: usize = 16;
/// The reason of an attempt whose owner went away without giving another.
pub(super) const CLIENT_CANCEL: &str = "client_cancel";

/// What the policy said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Permitted. Stays so when DNS, the dial or the origin fails afterwards.
    Allow,
    /// Refused, or never got as far as a permission.
    #[default]
    Deny,
    /// Refused by the rules, but the policy only observes.
    WouldDeny,
}

/// How the sandbox was recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IdentitySource {
    /// By the client's address.
    Source,
    /// By its credentials.
    Token,
    /// By its TLS certificate.
    Cert,
    /// By the listener it came to.
    Listener,
}

/// By which protocol the client asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// A CONNECT tunnel.
    Connect,
    /// A forwarded HTTP request.
    Http,
    /// A SOCKS5 CONNECT.
    Socks5,
    /// A diverted connection, or a request on one.
    Transparent,
    /// A question for a name.
    Dns,
}

/// Who asked for what: the first half of a `decision` record, known when an attempt begins.
///
/// What is not known (of a request that could not be parsed, say) is left out of the record.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Request {
    /// Sandbox ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Text>,
    /// How it was recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<IdentitySource>,
    /// The `workspace` claim of the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Text>,
    /// The `tool` claim of the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<Text>,
    /// Address and port of the client's end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<SocketAddr>,
    /// The protocol spoken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// HTTP method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Text>,
    /// Type of a question for a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qtype: Option<Text>,
    /// URL scheme, where the protocol leaves it open: plain HTTP and CONNECT don't, and every
    /// record has a size budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<&'static str>,
    /// Canonical host; of a bad request what stood in its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Text>,
    /// Destination port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The address that a diverted connection was meant for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original: Option<IpAddr>,
    /// Path without query, usually as a hash.
    #[serde(flatten)]
    pub path: Option<PathRecord>,
    /// The response that named this destination to this sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirected_from: Option<AttemptId>,
}

/// What became of it: the second half of a `decision` record.
///
/// The default is that of an attempt whose client left before a decision: `deny`,
/// `client_cancel`.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The policy's verdict.
    pub verdict: Verdict,
    /// Reason code.
    pub reason: &'static str,
    /// The rule that decided, `file:line`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Text>,
    /// Name of the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Text>,
    /// Generation of the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The whole DNS answer, or the literal.
    #[serde(flatten)]
    pub addresses: Option<Addresses>,
    /// Is the address that a diverted connection was meant for none of those above?
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub original_differs: bool,
    /// The address that was connected to, one of those above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialed: Option<IpAddr>,
    /// The parent proxy, `host:port`, through which it was, or could not be, connected to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via_parent: Option<Text>,
    /// How long DNS took; whole milliseconds in the record.
    #[serde(rename = "dns_ms", skip_serializing_if = "Option::is_none", serialize_with = "milliseconds")]
    pub dns: Option<Duration>,
    /// The status that egret itself answered, else null.
    pub status: Option<u16>,
    /// Free text for people: which address `inet_aton` would have read, which dial failed how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Text>,
}

impl Default for Outcome {
    fn default() -> Self {
        Self {
            verdict: Verdict::Deny,
            reason: CLIENT_CANCEL,
            rule: None,
            policy: None,
            generation: None,
            addresses: None,
            original_differs: false,
            dialed: None,
            via_parent: None,
            dns: None,
            status: None,
            detail: None,
        }
    }
}

/// The addresses of a DNS answer, at most [`ADDRESS_LIMIT`] of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Addresses {
    addresses: Vec<IpAddr>,
    #[serde(skip_serializing_if = "is_zero")]
    addresses_omitted: usize,
}

impl FromIterator<IpAddr> for Addresses {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(answer: I) -> Self {
        let mut answer = answer.into_iter();
        let addresses = answer.by_ref().take(ADDRESS_LIMIT).collect();
        Self { addresses, addresses_omitted: answer.count() }
    }
}

/// How permitted traffic ended: what the owner of a `close` record fills in.
#[derive(Clone, Debug, Serialize)]
pub struct Closing {
    /// Payload bytes from client to origin.
    pub bytes_up: u64,
    /// Payload bytes from origin to client.
    pub bytes_down: u64,
    /// Status of the response that the client got.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Reason code; `allowed` for a regular end.
    pub reason: &'static str,
    /// What failed, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Text>,
}

impl Default for Closing {
    fn default() -> Self {
        Self { bytes_up: 0, bytes_down: 0, status: None, reason: CLIENT_CANCEL, error: None }
    }
}

/// Events beside the attempts.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A reload of the configuration.
    Reload(Reload),
    /// A redirect that was not permitted.
    Redirect(Redirect),
    /// A limit that refused something.
    Limit(Limit),
    /// Tokens that were revoked.
    Revoke(Revoke),
    /// A sandbox that was registered, or no longer is.
    Sandbox(Sandbox),
}

/// A reload, successful or not.
#[derive(Clone, Debug, Serialize)]
pub struct Reload {
    /// Whether the candidate is in force now.
    pub ok: bool,
    /// The generation in force after the reload.
    pub generation: u64,
    /// What identifies the policy in force, a digest for example.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_digest: Option<Text>,
    /// Why the candidate was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Text>,
}

/// A response that named a destination its sandbox may not reach.
#[derive(Clone, Debug, Serialize)]
pub struct Redirect {
    /// The attempt whose response it was.
    pub id: AttemptId,
    /// Sandbox ID.
    pub sandbox: Text,
    /// The responding origin.
    pub from: Endpoint,
    /// The named destination.
    pub to: Endpoint,
    /// The verdict on that destination.
    pub verdict: Verdict,
    /// Reason code of that verdict.
    pub reason: &'static str,
    /// The rule that decided, `file:line`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Text>,
    /// Generation of the policy.
    pub generation: u64,
}

/// One end of a redirect.
#[derive(Clone, Debug, Serialize)]
pub struct Endpoint {
    /// URL scheme.
    pub scheme: Text,
    /// Host, canonical where it has a canonical form.
    pub host: Text,
    /// Port, also when it is the scheme's default.
    pub port: u16,
}

/// Refusals by one limit, which may be summed up in one record.
#[derive(Clone, Debug, Serialize)]
pub struct Limit {
    /// Sandbox ID.
    pub sandbox: Text,
    /// The limit's key in the configuration, as `requests`.
    pub limit: &'static str,
    /// Reason code of the refusals.
    pub reason: &'static str,
    /// How many refusals this record stands for.
    pub count: u64,
    /// When the first of them was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// A revocation: of one token, or of every token of a sandbox that was issued before.
#[derive(Clone, Debug, Serialize)]
pub struct Revoke {
    /// The token's ID; never the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Text>,
    /// Sandbox ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Text>,
    /// Whether it is on the disk, and so outlives the process.
    pub kept: bool,
}

/// A change of what is registered.
#[derive(Clone, Debug, Serialize)]
pub struct Sandbox {
    /// Sandbox ID.
    pub sandbox: Text,
    /// What happened: `registered`, `replaced`, `deleted` or `expired`.
    pub change: &'static str,
    /// Name of its policy.
    pub policy: Text,
    /// The networks of its clients.
    pub source: Vec<Text>,
    /// Whether that is on the disk, and so outlives the process.
    pub kept: bool,
}

/// What runs: the first record of every process.
#[derive(Clone, Debug, Serialize)]
pub struct Start {
    /// Version of egret.
    pub version: &'static str,
    /// Generation of the policy at start.
    pub generation: u64,
    /// What identifies that policy, a digest for example.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_digest: Option<Text>,
}

/// The writer's own events.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum OwnEvent {
    Start {
        schema: &'static str,
        pid: u32,
        #[serde(flatten)]
        start: Start,
    },
    Stop {
        pid: u32,
    },
    /// What the file lacks. `refused`: decisions that could not be recorded, their requests were
    /// refused; `count`: other records that had to be given up.
    Dropped {
        count: u64,
        refused: u64,
        since: Timestamp,
    },
}

/// A `decision` as it is encoded.
#[derive(Serialize)]
pub(super) struct DecisionRecord<'a> {
    pub ts: Timestamp,
    pub event: &'static str,
    pub id: AttemptId,
    #[serde(flatten)]
    pub request: &'a Request,
    #[serde(flatten)]
    pub outcome: &'a Outcome,
}

/// A `close` as it is encoded.
#[derive(Serialize)]
pub(super) struct CloseRecord<'a> {
    pub ts: Timestamp,
    pub event: &'static str,
    pub id: AttemptId,
    #[serde(rename = "duration_ms", serialize_with = "milliseconds")]
    pub duration: Option<Duration>,
    #[serde(flatten)]
    pub closing: &'a Closing,
}

/// Any other event as it is encoded.
#[derive(Serialize)]
pub(super) struct EventRecord<'a, E: Serialize> {
    pub ts: Timestamp,
    #[serde(flatten)]
    pub event: &'a E,
}

fn milliseconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        None => serializer.serialize_none(),
    }
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl From<&egret_policy::Identity> for IdentitySource {
    fn from(identity: &egret_policy::Identity) -> Self {
        match identity {
            egret_policy::Identity::Source | egret_policy::Identity::Registered(_) => Self::Source,
            egret_policy::Identity::Token(_) => Self::Token,
            egret_policy::Identity::Cert(_) => Self::Cert,
            egret_policy::Identity::Listener => Self::Listener,
        }
    }
}
