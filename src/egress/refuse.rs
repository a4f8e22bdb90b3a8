//! Refusals of all kinds: what is recorded of them, and what the client is told.

use std::net::SocketAddr;
use std::time::Duration;

use egret_policy::{Action, Client, Destination, Entry, Host, Intent, Reason, Refusal};

use super::open::note_parent;
use super::way::NoWay;
use super::{Egress, Peer};
use crate::audit::{self, Attempt, AuditUnavailable, Text};
use crate::dial::DialCause;
use crate::limit::Exceeded;
use crate::resolve::ResolveError;

/// A refusal that has been recorded.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub refusal: Refusal,
    /// The status that the client gets, if it speaks HTTP.
    pub status: u16,
    /// The audit ID.
    pub id: String,
    /// When a new attempt can succeed, where that is known.
    pub retry_after: Option<Duration>,
}

/// A request that never became an intent: what is known of it, for the record.
#[derive(Debug, Default)]
pub struct Malformed<'a> {
    /// Who sent it, if it got that far.
    pub client: Option<&'a Client>,
    /// The way in, where that alone says the protocol.
    pub entry: Option<Entry>,
    /// The method, if there is one.
    pub method: Option<&'a str>,
    /// Where it wanted to go, if that can be read.
    pub destination: Option<&'a Destination>,
    /// The path at that place, without the query.
    pub path: Option<&'a [u8]>,
    /// Without a destination: what stands where the authority belongs.
    pub target: Option<&'a [u8]>,
}

impl Egress {
    /// Records a request that could not be understood, or whose client is not known. One whose
    /// client is known uses up its request rate, and is refused for that once the rate is used up.
    pub async fn refuse(
        &self,
        what: Malformed<'_>,
        peer: impl Into<Peer>,
        refusal: Refusal,
        status: u16,
    ) -> Refused {
        let attempt = self.begin_malformed(&what, peer.into());
        match what.client.map_or(Ok(()), |client| self.count_request(client)) {
            Ok(()) => {
                // What is diverted gets here as HTTP alone.
                let told = attempt.is_answered_by_status() || attempt.request().original.is_some();
                self.refuse_attempt(attempt, refusal, status, told.then_some(status)).await
            }
            Err(exceeded) => self.refuse_limit(attempt, &exceeded).await,
        }
    }

    /// The same for a diverted connection that gets no answer in HTTP.
    pub async fn refuse_diverted(&self, what: Malformed<'_>, peer: Peer, refusal: Refusal) -> Refused {
        let attempt = self.begin_malformed(&what, peer);
        match what.client.map_or(Ok(()), |client| self.count_request(client)) {
            Ok(()) => self.refuse_for(attempt, refusal).await,
            Err(exceeded) => self.refuse_limit(attempt, &exceeded).await,
        }
    }

    fn begin_malformed(&self, what: &Malformed<'_>, peer: Peer) -> Attempt {
        let mut request = audit::Request {
            method: what.method.map(Text::from),
            path: what.path.map(|path| self.parts.paths.record(path)),
            host: what.target.filter(|target| !target.is_empty()).map(Text::new),
            ..peer_record(peer)
        };
        request.protocol = match (what.entry, what.method) {
            (Some(entry), _) => protocol(entry, &Action::Place),
            (None, Some(method)) if request.protocol.is_none() => Some(by_method(method)),
            (None, _) => request.protocol,
        };
        if let Some(client) = what.client {
            identify_record(&mut request, client);
        }
        if let Some(destination) = what.destination {
            place_record(&mut request, destination);
        }
        self.parts.audit.begin(request)
    }

    /// Records a client that could not be spoken to, and so gets no answer.
    pub async fn refuse_connection(&self, client: Option<&Client>, peer: SocketAddr, refusal: &Refusal) {
        let mut request = audit::Request { client: Some(peer), ..audit::Request::default() };
        if let Some(client) = client {
            identify_record(&mut request, client);
        }
        self.record_refusal(self.parts.audit.begin(request), refusal, None).await;
    }

    pub(super) async fn refuse_limit(&self, attempt: Attempt, exceeded: &Exceeded) -> Refused {
        let refusal = Refusal::new(exceeded.reason).with_detail(format!("limit: {}", exceeded.limit));
        let refused = self.refuse_for(attempt, refusal).await;
        Refused { retry_after: Some(exceeded.retry_after), ..refused }
    }

    pub(super) async fn refuse_dial(&self, mut attempt: Attempt, error: NoWay) -> Refused {
        if let Some(parent) = &error.parent {
            note_parent(&mut attempt, parent);
        }
        self.refuse_for(attempt, error.refusal).await
    }

    pub(super) async fn refuse_for(&self, attempt: Attempt, refusal: Refusal) -> Refused {
        let status = self.status(refusal.reason, attempt.request().original.is_some());
        // Other protocols than HTTP have no status to answer with.
        let told = attempt.is_answered_by_status().then_some(status);
        self.refuse_attempt(attempt, refusal, status, told).await
    }

    async fn refuse_attempt(
        &self,
        attempt: Attempt,
        refusal: Refusal,
        status: u16,
        told: Option<u16>,
    ) -> Refused {
        let id = self.record_refusal(attempt, &refusal, told).await;
        Refused { refusal, status, id, retry_after: None }
    }

    /// Records a refusal, and gives its audit ID.
    async fn record_refusal(&self, mut attempt: Attempt, refusal: &Refusal, status: Option<u16>) -> String {
        let outcome = attempt.outcome_mut();
        outcome.reason = refusal.reason.code();
        outcome.status = status;
        if let Some(rule) = &refusal.rule {
            outcome.rule = Some(Text::from(rule));
        }
        outcome.detail = refusal.detail.as_deref().map(Text::from);
        self.parts.metrics.decided(verdict_word(outcome.verdict), refusal.reason);
        let id = attempt.id().to_string();
        // The answer is a refusal either way; the audit's own health is told elsewhere.
        if let Err(error) = attempt.refuse().await {
            tracing::debug!(%error, %id, "a refusal could not be recorded");
        }
        id
    }

    pub(super) fn request_record(&self, intent: &Intent, peer: Peer) -> audit::Request {
        let mut request =
            audit::Request { redirected_from: self.redirects.source_of(intent), ..peer_record(peer) };
        identify_record(&mut request, &intent.client);
        place_record(&mut request, &intent.destination);
        request.protocol = protocol(intent.entry, &intent.action);
        match &intent.action {
            Action::Tunnel if intent.entry == Entry::Proxy => request.method = Some(Text::from("CONNECT")),
            Action::Tunnel | Action::Place => {}
            Action::Request { method, path } => {
                request.method = Some(Text::from(method));
                request.path = Some(self.parts.paths.record(path));
            }
        }
        request
    }
}

/// The word for metrics.
pub(super) const fn verdict_word(verdict: audit::Verdict) -> &'static str {
    match verdict {
        audit::Verdict::Allow => "allow",
        audit::Verdict::Deny => "deny",
        audit::Verdict::WouldDeny => "would_deny",
    }
}

/// What is known of a client before it has said anything.
fn peer_record(peer: Peer) -> audit::Request {
    audit::Request {
        client: Some(peer.address),
        protocol: peer.original.map(|_| audit::Protocol::Transparent),
        original: peer.original.map(|original| original.ip()),
        ..audit::Request::default()
    }
}

/// The way in of a head that was read, whatever it asks for.
fn by_method(method: &str) -> audit::Protocol {
    if method == "CONNECT" { audit::Protocol::Connect } else { audit::Protocol::Http }
}

/// How records name the way in.
const fn protocol(entry: Entry, action: &Action) -> Option<audit::Protocol> {
    match (entry, action) {
        (Entry::Proxy, Action::Tunnel) => Some(audit::Protocol::Connect),
        (Entry::Proxy, Action::Request { .. }) => Some(audit::Protocol::Http),
        (Entry::Proxy, Action::Place) => None,
        (Entry::Socks, _) => Some(audit::Protocol::Socks5),
        (Entry::Transparent, _) => Some(audit::Protocol::Transparent),
        (Entry::Dns, _) => Some(audit::Protocol::Dns),
    }
}

/// The host as records show it: an IPv6 address without brackets.
pub(super) fn host_text(host: &Host) -> Text {
    match host {
        Host::Name(name) => Text::from(name.shared()),
        Host::Address(address) => Text::from(address.to_string()),
    }
}

pub(super) fn identify_record(request: &mut audit::Request, client: &Client) {
    request.sandbox = Some(Text::from(&client.sandbox));
    request.identity = Some((&client.identity).into());
    let (workspace, tool) = client.words();
    request.workspace = workspace.map(Text::from);
    request.tool = tool.map(Text::from);
}

pub(super) fn place_record(request: &mut audit::Request, destination: &Destination) {
    request.scheme = Some(destination.scheme().as_str());
    request.host = Some(host_text(destination.host()));
    request.port = Some(destination.port());
}

pub(crate) fn dns_reason(error: &ResolveError) -> Reason {
    match error {
        ResolveError::NotFound { .. } => Reason::DnsNotFound,
        ResolveError::Failed(_) => Reason::DnsFailed,
        ResolveError::Timeout => Reason::DnsTimeout,
    }
}

pub(super) const fn dial_reason(cause: DialCause) -> Reason {
    match cause {
        DialCause::Refused => Reason::ConnectRefused,
        DialCause::Timeout => Reason::ConnectTimeout,
        DialCause::Unroutable | DialCause::Other => Reason::ConnectUnroutable,
        DialCause::Overloaded => Reason::Overloaded,
    }
}

/// What can't be recorded is refused.
pub(super) fn unrecorded(error: &AuditUnavailable, id: String) -> Refused {
    let refusal = Refusal::new(Reason::AuditUnavailable).with_detail(error.to_string());
    Refused { refusal, status: 503, id, retry_after: None }
}
