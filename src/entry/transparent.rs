//! Connections of programs that know of no proxy, which the system diverted to egret.
//!
//! The name comes from the ClientHello or from `Host`, and is decided and resolved like any other;
//! the address that the client meant is compared with the answer, and dialled only where there is no
//! name, after it was decided as an address literal. It never decides, and never trusts that address
//! for a name.

mod look;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use egret_policy::{Action, Client, Destination, Entry, Host, Intent, Reason, Refusal, Scheme};
use socket2::SockRef;
use tokio::net::TcpStream;

use self::look::{Look, Said};
use super::connect::{self, Connected};
use super::wire::Wire;
use super::{Gate, http};
use crate::egress::{Malformed, Peer};

/// `access_denied` (RFC 8446 section 6.2).
const ACCESS_DENIED: u8 = 49;
/// `decode_error`.
const DECODE_ERROR: u8 = 50;
/// `internal_error`.
const INTERNAL_ERROR: u8 = 80;

/// Serves a diverted connection; a tunnel is given back, as by [`http::serve`].
pub async fn serve(gate: Arc<Gate>, socket: TcpStream, client: SocketAddr) -> Option<Connected> {
    let original = match original(&socket) {
        Ok(original) => original,
        Err(error) => {
            tracing::debug!(%error, %client, "a client left before it was served");
            return None;
        }
    };
    let peer = Peer::diverted(client, original);
    let mut wire = Wire::new(socket.into(), gate.egress.timeouts().body);
    if gate.egress.is_own(original) {
        let refusal = Refusal::new(Reason::AddressForbidden)
            .with_detail("the connection was not diverted: it was made to a listener of egret itself");
        refuse(&gate, peer, original, refusal).await;
        wire.reset();
        return None;
    }
    // Boxed: it is over when the connection is served.
    let said = Box::pin(Look::new(&gate, original.port()).read(&mut wire)).await?;
    let (host, over_tls) = match said {
        Said::Http => return http::serve_wire(gate, wire, peer).await,
        Said::Tls(name) => (name.map_or(Host::Address(original.ip()), Host::Name), true),
        Said::Other => (Host::Address(original.ip()), false),
        Said::Bad(refusal) => {
            let reason = refusal.reason;
            refuse(&gate, peer, original, refusal).await;
            turn_away(wire, reason, true).await;
            return None;
        }
    };
    let destination = Destination::new(Scheme::Tunnel, host, original.port());
    match Box::pin(open(&gate, &wire, peer, destination)).await {
        Some(Ok((tunnel, host))) => Some(Connected { tunnel, wire, host }),
        Some(Err(reason)) => {
            turn_away(wire, reason, over_tls).await;
            None
        }
        None => None,
    }
}

/// Where the client's connection was meant to go: what the NAT of the system has noted, else the
/// socket's own address, which is that place where the system diverts by TPROXY.
fn original(socket: &TcpStream) -> std::io::Result<SocketAddr> {
    let local = socket.local_addr()?;
    let socket = SockRef::from(socket);
    let noted = if local.is_ipv4() { socket.original_dst_v4() } else { socket.original_dst_v6() };
    let original = noted.ok().and_then(|noted| noted.as_socket()).unwrap_or(local);
    Ok(SocketAddr::new(original.ip().to_canonical(), original.port()))
}

/// Opens the tunnel; the reason if that is refused, nothing if the client left.
async fn open(
    gate: &Gate,
    wire: &Wire,
    peer: Peer,
    destination: Destination,
) -> Option<Result<(crate::egress::Tunnel, Host), Reason>> {
    // A diverted connection shows no credentials.
    let client = match gate.egress.identify(peer.ip(), None, std::iter::empty()) {
        Ok(client) => client,
        Err(unidentified) => {
            let what = Malformed { destination: Some(&destination), ..Malformed::default() };
            let refused = gate.egress.refuse_diverted(what, peer, unidentified.refusal).await;
            return Some(Err(refused.refusal.reason));
        }
    };
    let host = destination.host().clone();
    let intent = Intent { client, entry: Entry::Transparent, destination, action: Action::Tunnel };
    let opened = connect::open(gate, wire, peer, intent).await?;
    Some(opened.map(|tunnel| (tunnel, host)).map_err(|refused| refused.refusal.reason))
}

/// Records the refusal of a connection whose destination has no name yet.
async fn refuse(gate: &Gate, peer: Peer, original: SocketAddr, refusal: Refusal) {
    let client: Option<Client> = gate.egress.identify(peer.ip(), None, std::iter::empty()).ok();
    let destination = Destination::new(Scheme::Tunnel, Host::Address(original.ip()), original.port());
    let what = Malformed { client: client.as_ref(), destination: Some(&destination), ..Malformed::default() };
    gate.egress.refuse_diverted(what, peer, refusal).await;
}

/// Ends a refused connection. A TLS client is told by an alert; to any other one a plain end would
/// look like a complete answer, so it gets a reset.
async fn turn_away(wire: Wire, reason: Reason, over_tls: bool) {
    if !over_tls {
        wire.reset();
        return;
    }
    let description = match reason {
        Reason::TlsTimeout => None,
        Reason::TlsMalformed => Some(DECODE_ERROR),
        reason if reason.status() == Some(403) => Some(ACCESS_DENIED),
        _ => Some(INTERNAL_ERROR),
    };
    if let Some(description) = description {
        // One record: alert, TLS 1.2 as of RFC 8446 section 5.1, two octets, fatal.
        let alert = [21, 3, 3, 0, 2, 2, description];
        if wire.write(Bytes::copy_from_slice(&alert)).await.is_err() {
            return;
        }
    }
    wire.close().await;
}
