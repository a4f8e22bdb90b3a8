//! One forwarded request: sent to its origin as it comes in, answered as the answer comes back.
//!
//! `upload` is the client's body on its way, `send` the request until the head of its response,
//! `answer` the way back.

mod answer;
mod send;
mod upload;

use egret_policy::{Action, Client, Destination, Intent, Reason};
use http::Response;
use hyper::body::Incoming;

use self::upload::{Upload, UploadRun, UploadWatch};
use super::Gate;
use super::http::{Next, tell};
use super::request::Forward;
use super::wire::Wire;
use crate::egress::{ByteCounters, Exchange, Peer};
use crate::forward::{OutBody, Upstream};
use crate::http1::{Abort, BodyDecoder, BodyLength, RequestHead, wants_websocket};

/// Forwards one request and its answer.
pub(super) async fn serve(
    gate: &Gate,
    wire: Wire,
    peer: Peer,
    client: Client,
    head: &RequestHead,
    forward: Forward,
) -> Next {
    let destination = forward.destination.clone();
    let action = Action::Request { method: head.method().into(), path: forward.path.clone() };
    let intent =
        Intent { client, entry: peer.http_entry(), destination: forward.destination.clone(), action };
    let opened = tokio::select! {
        opened = gate.egress.open_exchange(intent, peer) => opened,
        // Dropping the attempt cancels the dial and records that.
        () = wire.stream.failed() => return Next::Gone,
    };
    match opened {
        Ok(exchange) => Run::new(gate, head, &forward, &destination, exchange).serve(wire).await,
        Err(refused) => tell(gate, wire, head, Some(&destination), &refused).await,
    }
}

/// An exchange under way.
struct Run<'a> {
    gate: &'a Gate,
    head: &'a RequestHead,
    forward: &'a Forward,
    destination: &'a Destination,
    exchange: Exchange,
    counters: ByteCounters,
    websocket: bool,
}

/// How a response ended.
enum Outcome {
    /// It was relayed whole; the connection to the origin if it can be used again.
    Relayed { upstream: Option<Upstream>, status: u16, persistent: bool },
    /// The origin agreed to speak WebSocket.
    Upgraded { upstream: Box<Upstream>, response: Response<Incoming> },
    /// Nothing was sent to the client yet.
    Failed { reason: Reason, error: Option<String> },
    /// It broke off after its head had been sent.
    Cut { reason: Reason, status: u16, error: Option<String>, abort: Abort },
    /// The client can't be written to.
    ClientGone { status: Option<u16>, error: Option<String> },
}

impl<'a> Run<'a> {
    fn new(
        gate: &'a Gate,
        head: &'a RequestHead,
        forward: &'a Forward,
        destination: &'a Destination,
        exchange: Exchange,
    ) -> Self {
        let websocket = exchange.may_upgrade() && wants_websocket(head, &forward.connection);
        let counters = exchange.counters();
        Self { gate, head, forward, destination, exchange, counters, websocket }
    }

    async fn serve(mut self, mut wire: Wire) -> Next {
        let Some(upstream) = self.exchange.take_upstream() else {
            return Next::Close(wire);
        };
        let bodiless = matches!(self.forward.length, BodyLength::None | BodyLength::Length(0));
        let uploaded = UploadWatch::new(if bodiless { Upload::Complete } else { Upload::Running });
        let outcome = {
            let Wire { stream, buffer, .. } = &mut wire;
            let (body, upload) = if bodiless {
                (OutBody::empty(), None)
            } else {
                let (sender, body) = OutBody::streaming(self.forward.length);
                let run = UploadRun {
                    decoder: BodyDecoder::new(self.forward.length, &self.forward.connection),
                    sender,
                    counters: self.counters.clone(),
                    stall: self.gate.egress.timeouts().body,
                    watch: &uploaded,
                };
                // In a box, as all is that few requests have: idle connections hold room for the rest.
                (body, Some(Box::pin(async { uploaded.set(run.run(stream, buffer).await) })))
            };
            let mut down = std::pin::pin!(self.download(stream, upstream, body, &uploaded));
            match upload {
                None => down.await,
                Some(mut upload) => tokio::select! {
                    biased;
                    outcome = &mut down => outcome,
                    () = &mut upload => down.await,
                },
            }
        };
        self.conclude(wire, outcome, uploaded.state()).await
    }

    /// Records the end of the exchange and says what becomes of the client's connection.
    async fn conclude(self, wire: Wire, outcome: Outcome, uploaded: Upload) -> Next {
        match outcome {
            Outcome::Relayed { upstream, status, persistent } => {
                self.exchange.finish(upstream, Reason::Allowed, Some(status), None);
                let read_whole = uploaded == Upload::Complete;
                if persistent && read_whole { Next::Request(wire) } else { Next::Close(wire) }
            }
            Outcome::Upgraded { upstream, response } => {
                Box::pin(self.upgrade(wire, *upstream, response)).await
            }
            Outcome::Failed { reason, error } => Box::pin(self.fail(wire, reason, error, uploaded)).await,
            Outcome::Cut { reason, status, error, abort } => {
                // An upload that breaks off takes the connection to the origin with it.
                let broken_off = uploaded.fault().filter(|_| reason == Reason::UpstreamClosed);
                let reason = broken_off.unwrap_or(reason);
                self.exchange.finish(None, reason, Some(status), error);
                match abort {
                    Abort::Close => Next::Close(wire),
                    Abort::Reset => {
                        wire.reset();
                        Next::Gone
                    }
                }
            }
            Outcome::ClientGone { status, error } => {
                self.exchange.finish(None, Reason::ClientCancel, status, error);
                Next::Gone
            }
        }
    }

    /// Answers in place of the origin.
    async fn fail(self, wire: Wire, reason: Reason, error: Option<String>, uploaded: Upload) -> Next {
        let Self { gate, head, destination, exchange, .. } = self;
        if uploaded == Upload::Broken {
            exchange.finish(None, Reason::ClientCancel, None, error);
            return Next::Gone;
        }
        let refused = match uploaded {
            Upload::Faulty(status) => exchange.fail_as(Reason::BadRequest, status, error),
            Upload::OverQuota => exchange.fail(Reason::QuotaExceeded, error),
            _ => exchange.fail(reason, error),
        };
        match tell(gate, wire, head, Some(destination), &refused).await {
            // What is left of a body can't be told from the next request.
            Next::Request(wire) if uploaded != Upload::Complete => Next::Close(wire),
            next => next,
        }
    }
}
