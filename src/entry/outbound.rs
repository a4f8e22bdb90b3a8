//! The request as it goes to the origin: written anew from what was understood, in origin-form,
//! with `Host` from the target and without what was meant for the proxy.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use egret_policy::Destination;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};

use crate::forward::OutBody;
use crate::http1::{
    BodyLength, Connection, RequestHead, Version, announced_trailers, expects_continue,
    forward_request_field, forward_response_field, max_forwards, write_interim_head,
};

/// Most interim responses that wait for the client.
const MOST_INTERIMS: usize = 16;

/// What the request to the origin is made from.
pub(super) struct RequestPlan<'a> {
    pub(super) head: &'a RequestHead,
    pub(super) connection: &'a Connection,
    pub(super) destination: &'a Destination,
    /// The request target in origin-form, or `*`.
    pub(super) target: &'a [u8],
    pub(super) length: BodyLength,
    pub(super) websocket: bool,
    /// This instance's pseudonym.
    pub(super) name: &'a str,
}

/// An interim response of the origin.
#[derive(Debug)]
pub(super) struct Interim {
    status: StatusCode,
    fields: HeaderMap,
}

/// Interim responses that the client has not got yet. The connection to the origin is driven by
/// the task that empties it, so nobody has to be woken.
#[derive(Debug, Clone, Default)]
pub(super) struct Interims(Arc<Mutex<VecDeque<Interim>>>);

impl Interims {
    /// The first one that waits.
    pub(super) fn pop(&self) -> Option<Interim> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Is there none?
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// An origin that sends more of them than the client takes loses some.
    fn push(&self, interim: Interim) {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() < MOST_INTERIMS {
            queue.push_back(interim);
        }
    }
}

impl Interim {
    /// The bytes for a client of this version; HTTP/1.0 has no interim responses.
    pub(super) fn encode(&self, version: Version) -> BytesMut {
        let connection =
            Connection::from_values(self.fields.get_all(CONNECTION).iter().map(HeaderValue::as_bytes));
        let fields =
            self.fields.iter().filter(|(name, _)| forward_response_field(name.as_str(), &connection));
        let fields = fields.map(|(name, value)| (name.as_str(), value.as_bytes()));
        let reason = self.status.canonical_reason().unwrap_or_default();
        let mut out = BytesMut::new();
        // One that can't be written is left out: it carries nothing that the client needs.
        let _ = write_interim_head(&mut out, self.status.as_u16(), reason.as_bytes(), fields, version);
        out
    }
}

impl RequestPlan<'_> {
    /// May the request be sent twice without having an effect twice, body included?
    pub(super) fn is_repeatable(&self) -> bool {
        matches!(self.head.method(), "GET" | "HEAD" | "OPTIONS")
            && matches!(self.length, BodyLength::None | BodyLength::Length(0))
    }

    /// The request; interim responses to it go to `interims`.
    pub(super) fn build(&self, body: OutBody, interims: &Interims) -> Result<Request<OutBody>, http::Error> {
        let mut request = Request::new(body);
        *request.method_mut() = Method::from_bytes(self.head.method().as_bytes())?;
        *request.uri_mut() = Uri::try_from(self.target)?;
        *request.headers_mut() = self.fields()?;
        let interims = interims.clone();
        hyper::ext::on_informational(&mut request, move |response| {
            interims.push(Interim { status: response.status(), fields: response.headers().clone() });
        });
        Ok(request)
    }

    fn fields(&self) -> Result<HeaderMap, http::Error> {
        // Room for `Host` and `Via`, one of which is mostly there already.
        let mut fields = HeaderMap::with_capacity(self.head.fields().count() + 1);
        fields.insert(HOST, HeaderValue::from_str(&self.destination.host_field())?);
        for (name, value) in self.head.fields() {
            if self.goes_on(name) {
                fields.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_bytes(value)?);
            }
        }
        // Said for every method: without it, hyper takes a GET to have no body.
        match self.length {
            BodyLength::None => {}
            BodyLength::Length(length) => {
                fields.insert(CONTENT_LENGTH, HeaderValue::from(length));
            }
            BodyLength::Chunked => {
                fields.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
        }
        if let Some(left) = max_forwards(self.head) {
            let left = HeaderValue::from(left.saturating_sub(1));
            fields.insert(HeaderName::from_static("max-forwards"), left);
        }
        if let Some(names) = announced_trailers(self.head.values("Trailer"), self.connection) {
            fields.insert(TRAILER, HeaderValue::from_str(&names)?);
        }
        if self.websocket {
            fields.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            fields.insert(UPGRADE, HeaderValue::from_static("websocket"));
        } else if self.head.single("TE").is_some_and(|te| te.eq_ignore_ascii_case(b"trailers")) {
            // Said anew for this hop: trailers are passed on.
            fields.insert(CONNECTION, HeaderValue::from_static("TE"));
            fields.insert(TE, HeaderValue::from_static("trailers"));
        }
        let received = match self.head.version() {
            Version::Http10 => "1.0",
            Version::Http11 => "1.1",
        };
        fields.append(VIA, HeaderValue::from_str(&format!("{received} {}", self.name))?);
        Ok(fields)
    }

    fn goes_on(&self, name: &str) -> bool {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        forward_request_field(name, self.connection)
            // HTTP/1.0 clients don't wait for a 100, whatever they say.
            && (!is(EXPECT.as_str()) || expects_continue(self.head))
            // Counted down and written anew.
            && (!is("Max-Forwards") || max_forwards(self.head).is_none())
    }
}
