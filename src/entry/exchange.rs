//! One forwarded request: sent to its origin as it comes in, answered as the answer comes back.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use bytes::{Buf, BytesMut};
use egret_policy::{Action, Client, Destination, Intent, Reason};
use http::Response;
use hyper::body::Incoming;
use tokio::net::TcpStream;
use tokio::time::{Duration, Instant};

use super::Gate;
use super::http::{Next, tell};
use super::outbound::{Interim, Interims, RequestPlan};
use super::request::Forward;
use super::response::{Reply, Unusable};
use super::wire::{Wire, gone, read_into, write_all};
use crate::egress::{ByteCounters, Exchange, Redial};
use crate::forward::{BodySender, OutBody, SendError, Upstream};
use crate::http1::{
    Abort, BodyDecoder, BodyLength, Decoded, Recipient, RequestHead, Version, wants_websocket,
};
use crate::redirect;

/// Forwards one request and its answer.
pub(super) async fn serve(
    gate: &Gate,
    wire: Wire,
    peer: SocketAddr,
    client: Client,
    head: &RequestHead,
    forward: Forward,
) -> Next {
    let destination = forward.destination.clone();
    let action = Action::Request { method: head.method().into(), path: forward.path.clone() };
    let intent = Intent { client, destination: forward.destination.clone(), action };
    let opened = tokio::select! {
        opened = gate.egress.open_exchange(intent, peer) => opened,
        // Dropping the attempt cancels the dial and records that.
        () = gone(&wire.stream) => return Next::Gone,
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

/// How an upload ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Upload {
    Running,
    Complete,
    /// The origin takes no more; the rest stays unread.
    Unwanted,
    /// The client's framing is wrong, or its body stalled: the status for it.
    Faulty(u16),
    /// The client went away.
    Broken,
    /// The sandbox has no bytes left to send.
    OverQuota,
}

/// What the two directions of an exchange know of the upload. They run in one task, so the lock
/// is never waited for.
struct UploadWatch(Mutex<(Upload, Instant)>);

impl UploadWatch {
    fn new(state: Upload) -> Self {
        Self(Mutex::new((state, Instant::now())))
    }

    fn state(&self) -> Upload {
        self.get().0
    }

    /// When it last made progress.
    fn touched(&self) -> Instant {
        self.get().1
    }

    fn touch(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1 = Instant::now();
    }

    fn set(&self, state: Upload) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0 = state;
    }

    fn get(&self) -> (Upload, Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        let outcome = if bodiless {
            self.download(&wire.stream, upstream, OutBody::empty(), &uploaded).await
        } else {
            let (sender, body) = OutBody::streaming(self.forward.length);
            let up = UploadRun {
                decoder: BodyDecoder::new(self.forward.length, &self.forward.connection),
                sender,
                counters: self.counters.clone(),
                stall: self.gate.egress.timeouts().body,
                watch: &uploaded,
            };
            let Wire { stream, buffer, .. } = &mut wire;
            let up = async { uploaded.set(up.run(stream, buffer).await) };
            let mut up = std::pin::pin!(up);
            let mut down = std::pin::pin!(self.download(stream, upstream, body, &uploaded));
            tokio::select! {
                biased;
                outcome = &mut down => outcome,
                () = &mut up => down.await,
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
            Outcome::Upgraded { upstream, response } => self.upgrade(wire, *upstream, response).await,
            Outcome::Failed { reason, error } => self.fail(wire, reason, error, uploaded).await,
            Outcome::Cut { reason, status, error, abort } => {
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

    /// Sends the request and relays the response, interim ones included.
    async fn download(
        &mut self,
        stream: &TcpStream,
        mut upstream: Upstream,
        body: OutBody,
        uploaded: &UploadWatch,
    ) -> Outcome {
        let response = match self.response(stream, &mut upstream, body, uploaded).await {
            Ok(response) => response,
            Err(outcome) => return outcome,
        };
        if response.status() == http::StatusCode::SWITCHING_PROTOCOLS && self.websocket {
            return Outcome::Upgraded { upstream: Box::new(upstream), response };
        }
        let targets =
            redirect::targets(self.destination, &self.forward.target, response.status(), response.headers());
        if !targets.is_empty() {
            let limit = self.gate.egress.timeouts().response;
            let checked = tokio::select! {
                checked = self.exchange.check_redirects(&targets) => checked.is_ok(),
                () = tokio::time::sleep(limit) => false,
                () = gone(stream) => return Outcome::ClientGone { status: None, error: None },
            };
            if !checked {
                return Outcome::Failed { reason: Reason::RedirectDenied, error: None };
            }
        }
        let mut recipient = Recipient::of(self.head, &self.forward.connection);
        recipient.persistent &= !self.gate.egress.stopping();
        let reply =
            match Reply::new(response, &recipient, &self.gate.name, uploaded.state() == Upload::Complete) {
                Ok(reply) => reply,
                Err(Unusable(error)) => {
                    return Outcome::Failed { reason: Reason::UpstreamProtocol, error: Some(error) };
                }
            };
        self.relay(stream, upstream, reply, uploaded).await
    }

    /// Waits for the head of the final response.
    async fn response(
        &mut self,
        stream: &TcpStream,
        upstream: &mut Upstream,
        body: OutBody,
        uploaded: &UploadWatch,
    ) -> Result<Response<Incoming>, Outcome> {
        let interims = Interims::default();
        let plan = RequestPlan {
            head: self.head,
            connection: &self.forward.connection,
            destination: self.destination,
            target: &self.forward.target,
            length: self.forward.length,
            websocket: self.websocket,
            name: &self.gate.name,
        };
        let failed = |error: http::Error| Outcome::Failed {
            reason: Reason::BadRequest,
            error: Some(error.to_string()),
        };
        let request = plan.build(body, &interims).map_err(failed)?;
        let (limit, version) = (self.gate.egress.timeouts().response, self.head.version());
        let (redial, stop) = self.exchange.parts();
        let mut sending = std::pin::pin!(send(redial, upstream, request, &plan, &interims));
        let mut left = std::pin::pin!(gone(stream));
        loop {
            tokio::select! {
                biased;
                reason = stop.wait() => return Err(Outcome::Failed { reason, error: None }),
                () = tokio::time::sleep_until(uploaded.touched() + limit) => {
                    if uploaded.touched().elapsed() >= limit {
                        return Err(Outcome::Failed { reason: Reason::UpstreamTimeout, error: None });
                    }
                }
                sent = until_interim(sending.as_mut(), &interims) => {
                    while let Some(interim) = interims.pop() {
                        pass_on(stream, &interim, version, limit).await?;
                    }
                    if let Some(sent) = sent {
                        return sent.map_err(|(reason, error)| Outcome::Failed { reason, error });
                    }
                }
                () = &mut left => return Err(Outcome::ClientGone { status: None, error: None }),
            }
        }
    }

    /// Passes a response on, frame by frame.
    async fn relay(
        &mut self,
        stream: &TcpStream,
        mut upstream: Upstream,
        mut reply: Reply,
        uploaded: &UploadWatch,
    ) -> Outcome {
        let status = reply.status();
        let stall = self.gate.egress.timeouts().body;
        let cut = |reason, error, abort| Outcome::Cut { reason, status, error, abort };
        let gone = |error: std::io::Error| Outcome::ClientGone {
            status: Some(status),
            error: Some(error.to_string()),
        };
        // The head waits for the first piece of the body if that is there already.
        let mut first = upstream.drive(reply.frame_if_ready()).await;
        loop {
            let frame = match first.take() {
                Some(frame) => frame,
                None => {
                    if let Err(error) = write_all(stream, &mut reply.take_head()).await {
                        return gone(error);
                    }
                    tokio::select! {
                        frame = upstream.drive(reply.frame()) => frame,
                        () = tokio::time::sleep(stall) => {
                            return cut(Reason::UpstreamTimeout, None, reply.on_abort());
                        }
                        reason = self.exchange.stop().wait() => return cut(reason, None, reply.on_abort()),
                    }
                }
            };
            let (mut piece, payload, last) = match reply.encode(frame) {
                Ok(encoded) => encoded,
                Err(error) => {
                    // What came before the fault is delivered, and the fault stays visible.
                    let _ = write_all(stream, &mut reply.take_head()).await;
                    return cut(Reason::UpstreamClosed, Some(error), reply.on_abort());
                }
            };
            if !self.counters.take_down(payload) {
                return cut(Reason::QuotaExceeded, None, reply.on_abort());
            }
            let written = tokio::select! {
                written = write_all(stream, &mut piece) => written,
                () = tokio::time::sleep(stall) => Err(std::io::ErrorKind::TimedOut.into()),
                reason = self.exchange.stop().wait() => return cut(reason, None, reply.on_abort()),
            };
            if let Err(error) = written {
                return gone(error);
            }
            self.counters.down(payload);
            if last {
                break;
            }
        }
        let whole = reply.leaves_origin_usable() && uploaded.state() == Upload::Complete;
        let persistent = reply.persistent();
        let upstream = if whole { upstream.reusable().await } else { None };
        Outcome::Relayed { upstream, status, persistent }
    }

    /// Passes the 101 on and carries what follows.
    async fn upgrade(self, wire: Wire, upstream: Upstream, response: Response<Incoming>) -> Next {
        let status = response.status().as_u16();
        let Ok(mut head) = super::response::switching(&response, &self.gate.name) else {
            let error = Some("the 101 response can't be passed on".to_owned());
            return self.fail(wire, Reason::UpstreamProtocol, error, Upload::Complete).await;
        };
        let Some((origin, early_down)) = upstream.upgraded(response).await else {
            let error = Some("the connection ended with the 101".to_owned());
            return self.fail(wire, Reason::UpstreamClosed, error, Upload::Complete).await;
        };
        if let Err(error) = wire.write(&mut head).await {
            self.exchange.finish(None, Reason::ClientCancel, Some(status), Some(error.to_string()));
            return Next::Gone;
        }
        let Wire { stream, buffer, .. } = wire;
        self.exchange.carry((stream, buffer.freeze()), (origin, early_down), status).await;
        Next::Gone
    }
}

/// Drives the exchange until it is answered (its result) or an interim response waits (`None`).
async fn until_interim<F: Future>(mut sending: Pin<&mut F>, interims: &Interims) -> Option<F::Output> {
    std::future::poll_fn(|cx| match sending.as_mut().poll(cx) {
        Poll::Ready(sent) => Poll::Ready(Some(sent)),
        Poll::Pending if interims.is_empty() => Poll::Pending,
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Passes an interim response on, if the client reads it in time.
async fn pass_on(
    stream: &TcpStream,
    interim: &Interim,
    version: Version,
    limit: Duration,
) -> Result<(), Outcome> {
    let mut bytes = interim.encode(version);
    let written = tokio::time::timeout(limit, write_all(stream, &mut bytes)).await;
    written
        .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
        .map_err(|error| Outcome::ClientGone { status: None, error: Some(error.to_string()) })
}

/// Sends the request; over another connection if a pooled one turns out to be stale and nothing
/// of the request can have had an effect.
async fn send(
    redial: &Redial,
    upstream: &mut Upstream,
    request: http::Request<OutBody>,
    plan: &RequestPlan<'_>,
    interims: &Interims,
) -> Result<Response<Incoming>, (Reason, Option<String>)> {
    let failure = |error: SendError| (send_reason(&error.cause), Some(error.cause.to_string()));
    let error = match upstream.send(request).await {
        Ok(response) => return Ok(response),
        Err(error) => error,
    };
    let again = match error.unsent {
        Some(request) => Some(request),
        None if error.stale && plan.is_repeatable() => plan.build(OutBody::empty(), interims).ok(),
        None => None,
    };
    let Some(request) = again else {
        return Err(failure(SendError { unsent: None, ..error }));
    };
    *upstream = redial.connect().await?;
    upstream.send(request).await.map_err(failure)
}

fn send_reason(error: &hyper::Error) -> Reason {
    if error.is_parse() { Reason::UpstreamProtocol } else { Reason::UpstreamClosed }
}

/// The client's body on its way to the origin.
struct UploadRun<'a> {
    decoder: BodyDecoder,
    sender: BodySender,
    counters: ByteCounters,
    stall: Duration,
    watch: &'a UploadWatch,
}

impl UploadRun<'_> {
    async fn run(mut self, stream: &TcpStream, buffer: &mut BytesMut) -> Upload {
        loop {
            self.watch.touch();
            match self.decoder.decode(buffer) {
                Ok(Decoded::NeedMore) => {
                    let read = tokio::time::timeout(self.stall, read_into(stream, buffer)).await;
                    match read {
                        Ok(Ok(count)) if count > 0 => {}
                        Ok(_) => return Upload::Broken,
                        Err(_) => return Upload::Faulty(408),
                    }
                }
                Ok(Decoded::Data(data)) => {
                    let length = data.remaining();
                    if !self.counters.take_up(length) {
                        return Upload::OverQuota;
                    }
                    if !self.sender.data(data).await {
                        return Upload::Unwanted;
                    }
                    self.counters.up(length);
                }
                Ok(Decoded::Trailers(trailers)) => {
                    if !self.sender.trailers(trailers).await {
                        return Upload::Unwanted;
                    }
                }
                Ok(Decoded::End) => {
                    // Whether the origin still listens shows in its answer.
                    self.sender.end().await;
                    return Upload::Complete;
                }
                Err(error) => return Upload::Faulty(error.status()),
            }
        }
    }
}
