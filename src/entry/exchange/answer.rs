//! The response on its way to the client: redirects judged, framed anew, frame by frame.

use egret_policy::Reason;
use http::Response;
use hyper::body::Incoming;

use super::upload::{Upload, UploadWatch};
use super::{Outcome, Run};
use crate::entry::http::Next;
use crate::entry::response::{self, Reply, Unusable};
use crate::entry::wire::{Wire, write_all};
use crate::forward::{OutBody, Upstream};
use crate::http1::Recipient;
use crate::redirect;
use crate::stream::Stream;

impl Run<'_> {
    /// Sends the request and relays the response, interim ones included.
    pub(super) async fn download(
        &mut self,
        stream: &Stream,
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
            let checked = tokio::select! {
                checked = Box::pin(self.exchange.check_redirects(&targets)) => checked.is_ok(),
                () = stream.failed() => return Outcome::ClientGone { status: None, error: None },
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

    /// Passes a response on, frame by frame.
    async fn relay(
        &mut self,
        stream: &Stream,
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
                Err((reason, error)) => {
                    // What came before the fault is delivered, and the fault stays visible.
                    let _ = write_all(stream, &mut reply.take_head()).await;
                    return cut(reason, Some(error), reply.on_abort());
                }
            };
            if !self.counters.take_down(payload) {
                if piece.has_head() {
                    return Outcome::Failed { reason: Reason::QuotaExceeded, error: None };
                }
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
    pub(super) async fn upgrade(self, wire: Wire, upstream: Upstream, response: Response<Incoming>) -> Next {
        let status = response.status().as_u16();
        let Ok(mut head) = response::switching(&response, &self.gate.name) else {
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
