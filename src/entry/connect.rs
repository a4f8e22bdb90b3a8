//! CONNECT: opens a tunnel and hands the client's connection over to it.

use std::net::SocketAddr;

use bytes::BytesMut;
use egret_policy::{Action, Client, Destination, Intent};

use super::Gate;
use super::wire::Wire;
use crate::egress::Refused;
use crate::http1::{BodyEncoder, Recipient, RequestHead, Version, write_final_head};

/// Opens the tunnel and carries it to its end.
///
/// # Errors
/// The refusal, with the connection on which to tell it.
pub(super) async fn serve(
    gate: &Gate,
    wire: Wire,
    peer: SocketAddr,
    client: Client,
    destination: Destination,
    head: RequestHead,
) -> Result<(), (Wire, Refused)> {
    let host = destination.host().clone();
    let intent = Intent { client, destination, action: Action::Tunnel };
    let opened = tokio::select! {
        opened = gate.egress.open_tunnel(intent, peer) => opened,
        // Dropping the attempt cancels the dial and records that.
        () = super::wire::gone(&wire.stream) => return Ok(()),
    };
    let tunnel = match opened {
        Ok(tunnel) => tunnel,
        Err(refused) => return Err((wire, refused)),
    };
    let mut answer = BytesMut::new();
    let recipient = Recipient { version: Version::Http11, method: "CONNECT", persistent: true };
    let encoder = BodyEncoder::new(&recipient, 200, None);
    let written = match write_final_head(&mut answer, 200, b"Connection established", [], &encoder) {
        Ok(()) => wire.write(&mut answer).await,
        Err(error) => Err(std::io::Error::other(error)),
    };
    // Neither the head nor its buffer lives as long as the tunnel.
    drop((head, answer));
    match written {
        Ok(()) => tunnel.carry(wire.stream, wire.buffer, host).await,
        Err(error) => tunnel.abandon(&error),
    }
    Ok(())
}
