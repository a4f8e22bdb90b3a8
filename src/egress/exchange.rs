//! The way for one request that was decided, dialled and recorded.
//!
//! Dropping it frees its slot and records its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use egret_policy::{Destination, Entry, Intent, Reason, Refusal, Route};
use tokio::net::TcpStream;

use super::flow::{FlowWatch, relay_limits};
use super::{Egress, RedirectDenied, Refused, Stop};
use crate::audit::Flow;
use crate::forward::Upstream;
use crate::limit::{ByteMeter, Permit};
use crate::redirect::Target;
use crate::relay::{self, Counters, Direction, Meter};
use crate::stream::Stream;

/// The way for one request, opened and recorded.
pub struct Exchange {
    intent: Intent,
    upstream: Option<Upstream>,
    redial: Redial,
    permit: Permit,
    stop: Stop,
    watch: FlowWatch,
}

/// Opens another connection over the same checked addresses.
pub struct Redial {
    egress: Arc<Egress>,
    destination: Destination,
    route: Route,
}

impl Redial {
    /// Another connection, where a pooled one turned out to be stale.
    ///
    /// # Errors
    /// None of the addresses connects; the reason and the words for the record say how that failed.
    pub async fn connect(&self) -> Result<Upstream, (Reason, Option<String>)> {
        let opened = self.egress.dial(&self.destination, &self.route).await;
        let told = |refusal: Refusal| (refusal.reason, refusal.detail.map(|detail| detail.to_string()));
        let opened = opened.map_err(|error| told(error.refusal))?;
        opened.http().await.map_err(|error| (Reason::UpstreamProtocol, Some(error)))
    }
}

impl Exchange {
    pub(super) fn new(
        egress: Arc<Egress>,
        intent: Intent,
        upstream: Upstream,
        route: Route,
        flow: Flow,
        permit: Permit,
        stop: Stop,
    ) -> Self {
        let watch = FlowWatch::new(flow, Arc::clone(&egress));
        let redial = Redial { egress, destination: intent.destination.clone(), route };
        Self { intent, upstream: Some(upstream), redial, permit, stop, watch }
    }

    /// The audit ID.
    #[must_use]
    pub fn id(&self) -> String {
        self.watch.flow.as_ref().map(|flow| flow.id().to_string()).unwrap_or_default()
    }

    /// The connection to the origin, to be used with [`Exchange::stop`]; taken once.
    pub fn take_upstream(&mut self) -> Option<Upstream> {
        self.upstream.take()
    }

    /// May an upgrade follow, whose bytes nobody can hold to methods and paths?
    #[must_use]
    pub const fn may_upgrade(&self) -> bool {
        !self.redial.route.requests_only
    }

    /// What opens another connection, and what ends the exchange.
    pub const fn parts(&mut self) -> (&Redial, &mut Stop) {
        (&self.redial, &mut self.stop)
    }

    /// Ends when the exchange must be cut.
    pub const fn stop(&mut self) -> &mut Stop {
        &mut self.stop
    }

    /// Decides where a response sends its client, before the client learns of it.
    ///
    /// # Errors
    /// One of the targets is not permitted; that is recorded.
    pub async fn check_redirects(&mut self, targets: &[Target]) -> Result<(), RedirectDenied> {
        let Self { watch, intent, .. } = self;
        match &watch.flow {
            Some(flow) => watch.egress.check_redirects(intent, flow.id(), targets).await,
            None => Err(RedirectDenied),
        }
    }

    /// Where payload bytes are counted.
    #[must_use]
    pub fn counters(&self) -> ByteCounters {
        ByteCounters { counters: Arc::clone(&self.watch.counters), meter: self.permit.meter() }
    }

    /// The exchange is over: records it, and keeps the connection if it can serve another request.
    pub fn finish(
        mut self,
        upstream: Option<Upstream>,
        reason: Reason,
        status: Option<u16>,
        error: Option<String>,
    ) {
        self.watch.record(reason, error, status);
        if let Some(upstream) = upstream {
            self.watch.egress.keep(&self.intent, upstream);
        }
    }

    /// A refusal of ours in place of the origin's answer, after the request was let out.
    #[must_use]
    pub fn fail(self, reason: Reason, error: Option<String>) -> Refused {
        let diverted = self.intent.entry == Entry::Transparent;
        let status = self.watch.egress.status(reason, diverted);
        self.fail_as(reason, status, error)
    }

    /// The same with a more exact status than the reason's own.
    #[must_use]
    pub fn fail_as(mut self, reason: Reason, status: u16, error: Option<String>) -> Refused {
        let id = self.id();
        self.watch.record(reason, error, Some(status));
        let retry_after = match reason {
            Reason::QuotaExceeded => self.permit.bytes_again_in(),
            _ => None,
        };
        Refused { refusal: egret_policy::Refusal::new(reason), status, id, retry_after }
    }

    /// Carries the bytes of an upgraded connection until it ends, and records that. Each side
    /// comes with what was already read from it.
    pub async fn carry(self, client: (Stream, Bytes), origin: (TcpStream, Bytes), status: u16) {
        let Self { mut stop, watch, redial, permit, .. } = self;
        let _open = watch.egress.parts.metrics.tunnel_open();
        let tunnel =
            relay::Tunnel { client: client.0, upstream: origin.0, early_up: client.1, early_down: origin.1 };
        let limits = relay_limits(&redial.route);
        let counters = Arc::clone(&watch.counters);
        let tally = relay::relay(tunnel, None, limits, counters, permit.meter(), Box::pin(stop.wait())).await;
        watch.end(tally.end, Some(status));
    }
}

/// Counts payload bytes of an exchange, each way, and holds them to the quota.
#[derive(Debug, Clone)]
pub struct ByteCounters {
    counters: Arc<Counters>,
    meter: ByteMeter,
}

impl ByteCounters {
    /// May so many bytes of the request body go to the origin? Takes them all or none.
    #[must_use]
    pub fn take_up(&self, bytes: usize) -> bool {
        self.take(Direction::Up, bytes)
    }

    /// May so many bytes of the response body go to the client? Takes them all or none.
    #[must_use]
    pub fn take_down(&self, bytes: usize) -> bool {
        self.take(Direction::Down, bytes)
    }

    /// Bytes of the request body were handed to the origin.
    pub fn up(&self, bytes: usize) {
        add(&self.counters.up, bytes);
    }

    /// Bytes of the response body were taken by the client's connection.
    pub fn down(&self, bytes: usize) {
        add(&self.counters.down, bytes);
    }

    fn take(&self, direction: Direction, bytes: usize) -> bool {
        // What is left is used up in vain: the exchange ends, and the next one is refused.
        bytes == 0 || self.meter.take(direction, bytes) == bytes
    }
}

fn add(counter: &AtomicU64, bytes: usize) {
    counter.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
}
