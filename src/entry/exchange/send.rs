//! The request on its way to its origin, until the head of the final response is there.

use std::pin::Pin;
use std::task::Poll;

use egret_policy::Reason;
use http::Response;
use hyper::body::Incoming;
use tokio::time::Duration;

use super::upload::UploadWatch;
use super::{Outcome, Run};
use crate::egress::Redial;
use crate::entry::outbound::{Interim, Interims, RequestPlan};
use crate::entry::wire::write_all;
use crate::forward::{OutBody, SendError, Upstream};
use crate::http1::Version;
use crate::stream::Stream;

impl Run<'_> {
    /// Waits for the head of the final response.
    pub(super) async fn response(
        &mut self,
        stream: &Stream,
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
        let mut left = std::pin::pin!(stream.failed());
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
    stream: &Stream,
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
    *upstream = Box::pin(redial.connect()).await?;
    upstream.send(request).await.map_err(failure)
}

fn send_reason(error: &hyper::Error) -> Reason {
    if error.is_parse() { Reason::UpstreamProtocol } else { Reason::UpstreamClosed }
}
