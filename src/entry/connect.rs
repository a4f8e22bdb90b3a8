//! CONNECT: opens a tunnel and hands the client's connection over to it.

use std::net::SocketAddr;

use bytes::BytesMut;
use egret_policy::{Action, Client, Destination, Entry, Host, Intent};

use super::Gate;
use super::wire::Wire;
use crate::egress::{Refused, Tunnel};
use crate::http1::{BodyEncoder, Recipient, RequestHead, Version, write_final_head};

/// An open tunnel with the client's connection.
pub struct Connected {
    tunnel: Tunnel,
    wire: Wire,
    host: Host,
}

impl Connected {
    /// Carries the tunnel to its end, and lets go of `held` then.
    pub fn carry<H: Send>(self, held: H) -> impl Future<Output = ()> + Send {
        self.tunnel.carry(self.wire.stream, self.wire.buffer, self.host, held)
    }
}

/// Opens the tunnel and tells the client so; `None` if the client went away.
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
) -> Result<Option<Connected>, (Wire, Refused)> {
    let host = destination.host().clone();
    let intent = Intent { client, entry: Entry::Proxy, destination, action: Action::Tunnel };
    let opened = tokio::select! {
        opened = gate.egress.open_tunnel(intent, peer) => opened,
        // Dropping the attempt cancels the dial and records that.
        () = wire.stream.failed() => return Ok(None),
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
    // The head shares its buffer with what follows, and should not outlive it.
    drop(head);
    match written {
        Ok(()) => Ok(Some(Connected { tunnel, wire, host })),
        Err(error) => {
            tunnel.abandon(&error);
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten thousand idle tunnels are ten thousand of these.
    #[test]
    fn the_future_of_a_tunnel_is_small() {
        fn size<F: Future>(_: impl FnOnce(Connected) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(|connected| connected.carry(()));
        assert!(size <= 1500, "{size} bytes");
    }
}
