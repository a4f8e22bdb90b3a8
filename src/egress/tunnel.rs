//! A tunnel that was decided, dialled and recorded.
//!
//! Dropping it frees its slot and records its end. Its inside is not read beyond the ClientHello, or the
//! last of them where the server asks for more.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use egret_policy::{Host, Reason, Route, TlsRule};
use tokio::net::TcpStream;

use super::flow::{Cause, FlowWatch, relay_limits};
use super::hello::Hellos;
use super::{Egress, Stop};
use crate::audit::Flow;
use crate::limit::Permit;
use crate::relay::{self, Gate};
use crate::stream::Stream;

/// An opened tunnel; no byte has passed yet.
pub struct Tunnel {
    egress: Arc<Egress>,
    /// The connection, and what was already read from it.
    upstream: (TcpStream, Bytes),
    route: Route,
    flow: Flow,
    permit: Permit,
    stop: Stop,
}

impl Tunnel {
    pub(super) const fn new(
        egress: Arc<Egress>,
        upstream: (TcpStream, Bytes),
        route: Route,
        flow: Flow,
        permit: Permit,
        stop: Stop,
    ) -> Self {
        Self { egress, upstream, route, flow, permit, stop }
    }

    /// The client could not be told that the tunnel is open.
    pub fn abandon(self, error: &std::io::Error) {
        FlowWatch::new(self.flow, self.egress).record(Reason::ClientCancel, Some(error.to_string()), None);
    }

    /// Carries bytes until the tunnel ends, and records the end. `early` are bytes of the client
    /// that were read with its request; `held` is let go of at the end.
    ///
    /// Where the rule asks for TLS, nothing passes before the ClientHello has named the host, and
    /// no further ClientHello that does not.
    pub fn carry<H: Send>(
        self,
        client: Stream,
        mut early: BytesMut,
        host: Host,
        held: H,
    ) -> impl Future<Output = ()> + Send {
        let Self { egress, upstream: (upstream, early_down), route, flow, permit, stop } = self;
        let (limits, limit) = (relay_limits(&route), egress.parts.timeouts.tls);
        let hellos = (route.tls == TlsRule::Required)
            .then(|| Box::new(Hellos::new(host, limit, early.split(), &early_down)));
        let mut watch = FlowWatch::new(flow, egress);
        // What a future is given it keeps to its end, even what it moves on: hence the boxes, here
        // and below, for whatever is over when the tunnel begins. Every idle tunnel holds the rest.
        let tunnel = relay::Tunnel { client, upstream, early_up: early.freeze(), early_down };
        let mut opening = Box::new(Opening { limits, hellos, tunnel, stop: Box::new(stop) });
        async move {
            let Opening { hellos, tunnel, stop, .. } = &mut *opening;
            if let Some(hellos) = hellos {
                match Box::pin(hellos.first(&tunnel.client, stop)).await {
                    Ok(first) => tunnel.early_up = first,
                    Err(Cause { reason, detail }) => return watch.record(reason, detail, None),
                }
            }
            let _open = watch.egress.parts.metrics.tunnel_open();
            let Opening { limits, hellos, tunnel, mut stop } = *opening;
            let gate = hellos.map(|hellos| hellos as Box<dyn Gate<Cause>>);
            let counters = Arc::clone(&watch.counters);
            let stopped = Box::pin(async { stop.wait().await.into() });
            let tally = relay::relay(tunnel, gate, limits, counters, permit.meter(), stopped).await;
            watch.end(tally.end, None);
            // In here: a future around this one, that kept it, would hold all of it twice.
            drop(held);
        }
    }
}

/// A tunnel before its first byte has passed.
struct Opening {
    limits: relay::Limits,
    /// Where the rule asks for TLS.
    hellos: Option<Box<Hellos>>,
    tunnel: relay::Tunnel,
    stop: Box<Stop>,
}
