//! Refusals as a client sees them: a status, the reason in every place where some client shows
//! it, and what a person can do.

use bytes::BytesMut;
use egret_policy::{Destination, Reason};
use serde::Serialize;

use crate::egress::Refused;
use crate::http1::{BodyEncoder, Recipient, WriteError, write_final_head};

/// How a client may identify itself (RFC 9110 section 11.7.1). Basic stands first: it is what clients
/// make of user and password in a proxy URL.
const CHALLENGES: [(&str, &[u8]); 2] =
    [("Proxy-Authenticate", b"Basic realm=\"egret\""), ("Proxy-Authenticate", b"Bearer realm=\"egret\"")];

/// What the `type` of a problem begins with (RFC 9457): an identifier, not a page.
const REASONS: &str = "urn:egret:reason";

/// The body of a refusal: `application/problem+json` (RFC 9457).
#[derive(Debug, Serialize)]
struct Problem<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    hint: String,
    request: &'a str,
}

/// The pseudonym as the item of a structured field (RFC 8941 section 3.3): a token begins with a
/// letter, anything else is a string.
#[must_use]
pub fn proxy_status_name(name: &str) -> std::borrow::Cow<'_, str> {
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name.into()
    } else {
        format!("\"{name}\"").into()
    }
}

/// A refusal and what it is about.
pub(super) struct Answer<'a> {
    pub(super) refused: &'a Refused,
    /// Absent where the request did not name one.
    pub(super) destination: Option<&'a Destination>,
    /// More exact than the reason's own words, for a request that is not well-formed.
    pub(super) fault: Option<String>,
    /// This instance's pseudonym.
    pub(super) name: &'a str,
}

impl Answer<'_> {
    /// The whole response. `persistent` of the recipient says whether the connection goes on.
    pub(super) fn encode(&self, recipient: &Recipient<'_>) -> Result<BytesMut, WriteError> {
        let reason = self.refused.refusal.reason;
        let body = self.body();
        let length = u64::try_from(body.len()).ok();
        let encoder = BodyEncoder::new(recipient, self.refused.status, length);
        let phrase = format!("egret {}", reason.code());
        let proxy_status = self.proxy_status();
        // Whole seconds, rounded up: coming back on time must succeed (RFC 9110 section 10.2.3).
        let wait = self.refused.retry_after.unwrap_or_default().as_millis().div_ceil(1000).max(1);
        let retry_after = wait.to_string();
        let fields: [(&str, &[u8]); 6] = [
            ("Proxy-Status", proxy_status.as_bytes()),
            ("X-Egret-Reason", reason.code().as_bytes()),
            ("X-Egret-Request", self.refused.id.as_bytes()),
            ("Cache-Control", b"no-store"),
            ("Content-Type", b"application/problem+json"),
            ("Retry-After", retry_after.as_bytes()),
        ];
        let retry = matches!(reason.status(), Some(429 | 503));
        let challenges = CHALLENGES.into_iter().filter(|_| self.refused.status == 407);
        let fields = fields.into_iter().take(if retry { 6 } else { 5 }).chain(challenges);
        let mut out = BytesMut::new();
        write_final_head(&mut out, self.refused.status, phrase.as_bytes(), fields, &encoder)?;
        if recipient.method != "HEAD" {
            out.extend_from_slice(&body);
        }
        Ok(out)
    }

    /// RFC 9209, with the name of the proxy and what it found.
    fn proxy_status(&self) -> String {
        let reason = self.refused.refusal.reason;
        let error = reason.proxy_error().unwrap_or("proxy_internal_error");
        format!("{}; error={error}; details=\"{}\"", proxy_status_name(self.name), reason.code())
    }

    fn body(&self) -> Vec<u8> {
        let refusal = &self.refused.refusal;
        let problem = Problem {
            r#type: format!("{REASONS}:{}", refusal.reason.code()),
            title: refusal.words.as_deref().unwrap_or(refusal.reason.meaning()),
            status: self.refused.status,
            reason: refusal.reason.code(),
            host: self.destination.map(|d| d.host().to_string()),
            port: self.destination.map(Destination::port),
            rule: refusal.rule.as_deref(),
            hint: self.hint(),
            request: &self.refused.id,
        };
        // The types above always encode; an empty body would still be a refusal.
        serde_json::to_vec(&problem)
            .map(|mut body| {
                body.push(b'\n');
                body
            })
            .unwrap_or_default()
    }

    /// What a person can do. Says nothing about other rules or what the name resolved to.
    fn hint(&self) -> String {
        let place = self.destination.map_or_else(|| "the destination".to_owned(), ToString::to_string);
        let id = &self.refused.id;
        match self.refused.refusal.reason {
            Reason::BadRequest => {
                self.fault.clone().unwrap_or_else(|| "Send a well-formed request.".to_owned())
            }
            Reason::DomainNotAllowed => format!("Ask the operator to allow {place}."),
            Reason::PortNotAllowed => format!("Ask the operator to allow the port of {place}."),
            Reason::MethodNotAllowed | Reason::PathNotAllowed => {
                format!("Ask the operator to allow this method and path at {place}.")
            }
            Reason::DomainDenied | Reason::RedirectDenied => {
                format!("The operator denies this; ask about request {id}.")
            }
            Reason::AddressNotAllowed | Reason::MixedAnswer => format!(
                "Ask the operator to name the networks of {place} in `addresses` of the rule that allows it."
            ),
            Reason::AddressForbidden => "No rule can allow this address.".to_owned(),
            Reason::IdentityRequired | Reason::IdentityRejected if self.refused.status == 407 => {
                "Send this sandbox's token: set the proxy to http://SANDBOX:TOKEN@HOST:PORT; ask the operator for a token that is valid.".to_owned()
            }
            Reason::IdentityRequired => {
                "Ask the operator for an entry for this client's address or, on a TLS listener, for a client certificate.".to_owned()
            }
            Reason::IdentityRejected => {
                "Remove user and password from the proxy's URL; ask the operator for a valid client certificate if one was sent.".to_owned()
            }
            Reason::ProxyLoop => {
                "Point the proxy setting at one proxy only, not at this one again.".to_owned()
            }
            Reason::DnsNotFound => format!("Check the spelling of {place}."),
            Reason::DnsFailed
            | Reason::DnsTimeout
            | Reason::ConnectRefused
            | Reason::ConnectUnroutable
            | Reason::ConnectTimeout
            | Reason::UpstreamTls
            | Reason::UpstreamClosed
            | Reason::UpstreamTimeout
            | Reason::UpstreamProtocol => {
                format!("{place} is allowed, but could not be reached; try again later.")
            }
            Reason::RateLimited | Reason::QuotaExceeded | Reason::TooManyConnections => {
                "Wait, or ask the operator for a higher limit.".to_owned()
            }
            Reason::AuditUnavailable | Reason::Overloaded | Reason::ShuttingDown => {
                format!("Try again; if it persists, tell the operator about request {id}.")
            }
            Reason::Allowed
            | Reason::SniMismatch
            | Reason::SniMissing
            | Reason::NotTls
            | Reason::TlsMalformed
            | Reason::TlsTimeout
            | Reason::PolicyChanged
            | Reason::IdleTimeout
            | Reason::LifetimeExceeded
            | Reason::ClientCancel => String::new(),
        }
    }
}
