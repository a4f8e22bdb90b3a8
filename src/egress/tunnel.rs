//! A tunnel that was decided, dialled and recorded.
//!
//! Dropping it frees its slot and records its end. Its inside is not read beyond a ClientHello.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use egret_policy::{Host, Reason, Route, TlsRule};
use tokio::net::TcpStream;

use super::flow::{FlowWatch, relay_limits};
use super::{Egress, Stop};
use crate::audit::Flow;
use crate::client_hello::{ClientHello, ClientHelloError, ClientHelloReader};
use crate::limit::Permit;
use crate::relay;
use crate::stream::Stream;

/// Bytes asked of the client at once while its ClientHello is awaited.
const HELLO_READ: usize = 4096;

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

/// Why a tunnel's first bytes were not let through.
struct NameFault {
    reason: Reason,
    detail: Option<String>,
}

impl NameFault {
    const fn new(reason: Reason) -> Self {
        Self { reason, detail: None }
    }
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
    /// Where the rule asks for TLS, nothing passes before the ClientHello has named the host.
    pub fn carry<H: Send>(
        self,
        client: Stream,
        early: BytesMut,
        host: Host,
        held: H,
    ) -> impl Future<Output = ()> + Send {
        let Self { egress, upstream: (upstream, early_down), route, flow, permit, stop } = self;
        let mut watch = FlowWatch::new(flow, egress);
        // What a future is given it keeps to its end, even what it moves on: hence the boxes, here
        // and below, for whatever is over when the tunnel begins. Every idle tunnel holds the rest.
        let mut opening = Box::new(Opening {
            tls: route.tls,
            limits: relay_limits(&route),
            host,
            client,
            early,
            upstream,
            early_down,
            stop: Box::new(stop),
        });
        async move {
            if opening.tls == TlsRule::Required {
                let checked = Box::pin(opening.check_name(watch.egress.parts.timeouts.tls)).await;
                if let Err(NameFault { reason, detail }) = checked {
                    return watch.record(reason, detail, None);
                }
            }
            let _open = watch.egress.parts.metrics.tunnel_open();
            let Opening { limits, client, early, upstream, early_down, mut stop, .. } = *opening;
            let early_up = early.freeze();
            let tunnel = relay::Tunnel { client, upstream, early_up, early_down };
            let counters = Arc::clone(&watch.counters);
            let stopped = Box::pin(stop.wait());
            let tally = relay::relay(tunnel, limits, counters, permit.meter(), stopped).await;
            watch.end(tally.end, None);
            // In here: a future around this one, that kept it, would hold all of it twice.
            drop(held);
        }
    }
}

/// A tunnel before its first byte has passed.
struct Opening {
    tls: TlsRule,
    limits: relay::Limits,
    host: Host,
    client: Stream,
    /// What was already read from the client.
    early: BytesMut,
    upstream: TcpStream,
    /// What was already read from the upstream.
    early_down: Bytes,
    stop: Box<Stop>,
}

impl Opening {
    /// Reads the ClientHello into `early` and compares its server name with the host.
    async fn check_name(&mut self, limit: Duration) -> Result<(), NameFault> {
        let deadline = tokio::time::Instant::now() + limit;
        let mut reader = ClientHelloReader::new();
        loop {
            match reader.read(&self.early) {
                Ok(Some(hello)) => return agree(&hello, &self.host),
                Ok(None) => {}
                Err(ClientHelloError::NotTls) => return Err(NameFault::new(Reason::NotTls)),
                Err(error) => {
                    let detail = Some(error.to_string());
                    return Err(NameFault { reason: Reason::TlsMalformed, detail });
                }
            }
            let read = tokio::select! {
                read = read_some(&self.client, &mut self.early) => read,
                () = tokio::time::sleep_until(deadline) => return Err(NameFault::new(Reason::TlsTimeout)),
                reason = self.stop.wait() => return Err(NameFault::new(reason)),
            };
            match read {
                Ok(0) | Err(_) => return Err(NameFault::new(Reason::ClientCancel)),
                Ok(_) => {}
            }
        }
    }
}

/// Does the server name agree with the host? An IP literal has none (RFC 6066 section 3).
fn agree(hello: &ClientHello, host: &Host) -> Result<(), NameFault> {
    match (hello.server_name(), host) {
        (None, Host::Address(_)) => Ok(()),
        (None, Host::Name(_)) => Err(NameFault::new(Reason::SniMissing)),
        (Some(_), Host::Name(name)) if hello.names_host(name.as_str()) => Ok(()),
        (Some(sni), _) => {
            let detail = format!("server name {}", String::from_utf8_lossy(sni));
            Err(NameFault { reason: Reason::SniMismatch, detail: Some(detail) })
        }
    }
}

/// One read of whatever is there.
async fn read_some(stream: &Stream, buffer: &mut BytesMut) -> std::io::Result<usize> {
    loop {
        stream.readable().await?;
        match stream.try_read_buf(buffer, HELLO_READ) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            result => return result,
        }
    }
}
