//! TLS from clients: the handshake, and then HTTP/1 inside.
//!
//! A client whose certificate is bad gets no further, whatever its address would have made of it.

use std::sync::Arc;

use egret_policy::{Reason, Refusal};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsAcceptor;

use super::connect::Connected;
use super::http::refuse_unread;
use super::wire::Wire;
use super::{Gate, http};
use crate::egress::Peer;
use crate::stream::Stream;

/// The type of the record that a handshake begins with (RFC 8446 section 5.1).
const HANDSHAKE: u8 = 0x16;
const NOT_TLS: &str = "this port of the proxy speaks TLS; use https:// in the proxy URL";

/// Serves a client's connection over TLS, as [`http::serve`] does a plain one.
pub async fn serve(gate: Arc<Gate>, socket: TcpStream, peer: Peer) -> Option<Connected> {
    // Boxed: it is over when the first request is read.
    let stream = Box::pin(accept(&gate, socket, peer)).await?;
    http::serve(gate, stream, peer).await
}

/// Shakes hands, within the time for a request head; `None` if that came to nothing.
async fn accept(gate: &Gate, socket: TcpStream, peer: Peer) -> Option<Stream> {
    let deadline = Instant::now() + gate.egress.timeouts().header;
    let mut first = [0];
    match timeout_at(deadline, socket.peek(&mut first)).await {
        Ok(Ok(1)) if first == [HANDSHAKE] => {}
        Ok(Ok(1)) => {
            let wire = Wire::new(socket.into(), gate.egress.timeouts().body);
            refuse_unread(gate, wire, peer, 400, NOT_TLS.to_owned()).await;
            return None;
        }
        // It left, or said nothing: as on the plain port, that is no request.
        _ => return None,
    }
    let tls = gate.egress.client_tls()?;
    let accepting = TlsAcceptor::from(tls.config()).accept(socket).into_fallible();
    match timeout_at(deadline, accepting).await {
        Ok(Ok(accepted)) => {
            let (socket, session) = accepted.into_inner();
            match tls.certificate(&session) {
                Ok(certificate) => Some(Stream::tls(socket, session, certificate.map(Arc::new))),
                Err(error) => {
                    let refusal = Refusal::new(Reason::IdentityRejected).with_detail(error.to_string());
                    gate.egress.refuse_connection(None, peer.address, &refusal).await;
                    None
                }
            }
        }
        Ok(Err((error, socket))) => {
            refuse(gate, socket, peer, &error).await;
            None
        }
        Err(_) => {
            let client = gate.egress.identify_connection(peer.ip(), None).ok();
            let refusal = Refusal::new(Reason::TlsTimeout);
            gate.egress.refuse_connection(client.as_ref(), peer.address, &refusal).await;
            None
        }
    }
}

/// Records why a handshake failed, if that was more than a client's leaving. The library has sent
/// the alert that says so.
async fn refuse(gate: &Gate, socket: TcpStream, peer: Peer, error: &std::io::Error) {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let refusal = match cause {
        None | Some(rustls::Error::AlertReceived(_)) => {
            tracing::debug!(%error, peer = %peer.address, "a client left the TLS handshake");
            return;
        }
        Some(rustls::Error::NoCertificatesPresented) => Refusal::new(Reason::IdentityRequired),
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::InvalidCertRevocationList(_)) => {
            Refusal::new(Reason::IdentityRejected).with_detail(error.to_string())
        }
        Some(_) => Refusal::new(Reason::TlsMalformed).with_detail(error.to_string()),
    };
    let of_identity = matches!(refusal.reason, Reason::IdentityRequired | Reason::IdentityRejected);
    // No certificate, or a bad one: then the address says nothing either.
    let client = gate.egress.identify_connection(peer.ip(), None).ok().filter(|_| !of_identity);
    gate.egress.refuse_connection(client.as_ref(), peer.address, &refusal).await;
    // What the client has sent on is read, so that it can read the alert.
    Wire::new(socket.into(), gate.egress.timeouts().body).close().await;
}
