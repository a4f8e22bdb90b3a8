//! CONNECT: opens a tunnel and hands the client's connection over to it. What is not HTTP about that
//! serves other ways in, too.

use bytes::{Buf, BytesMut};
use egret_policy::{Action, Client, Destination, Entry, Host, Intent};

use super::Gate;
use super::wire::Wire;
use crate::egress::{Peer, Refused, Tunnel};
use crate::http1::{BodyEncoder, Recipient, RequestHead, Version, write_final_head};

/// An open tunnel with the client's connection.
pub struct Connected {
    pub(super) tunnel: Tunnel,
    pub(super) wire: Wire,
    pub(super) host: Host,
}

impl Connected {
    /// Carries the tunnel to its end, and lets go of `held` then.
    pub fn carry<H: Send>(self, held: H) -> impl Future<Output = ()> + Send {
        self.tunnel.carry(self.wire.stream, self.wire.buffer, self.host, held)
    }
}

/// Opens a tunnel; `None` if the client went away meanwhile.
pub(super) async fn open(
    gate: &Gate,
    wire: &Wire,
    peer: impl Into<Peer>,
    intent: Intent,
) -> Option<Result<Tunnel, Refused>> {
    tokio::select! {
        opened = gate.egress.open_tunnel(intent, peer) => Some(opened),
        // Dropping the attempt cancels the dial and records that.
        () = wire.stream.failed() => None,
    }
}

/// Tells the client that its tunnel is open; `None` if it went away.
pub(super) async fn announce(tunnel: Tunnel, wire: Wire, host: Host, answer: impl Buf) -> Option<Connected> {
    match wire.write(answer).await {
        Ok(()) => Some(Connected { tunnel, wire, host }),
        Err(error) => {
            tunnel.abandon(&error);
            None
        }
    }
}

/// Opens the tunnel and tells the client so; `None` if the client went away.
///
/// # Errors
/// The refusal, with the connection on which to tell it.
pub(super) async fn serve(
    gate: &Gate,
    wire: Wire,
    peer: Peer,
    client: Client,
    destination: Destination,
    head: RequestHead,
) -> Result<Option<Connected>, (Wire, Refused)> {
    let host = destination.host().clone();
    let intent = Intent { client, entry: Entry::Proxy, destination, action: Action::Tunnel };
    let tunnel = match open(gate, &wire, peer, intent).await {
        Some(Ok(tunnel)) => tunnel,
        Some(Err(refused)) => return Err((wire, refused)),
        None => return Ok(None),
    };
    let mut answer = BytesMut::new();
    let recipient = Recipient { version: Version::Http11, method: "CONNECT", persistent: true };
    let encoder = BodyEncoder::new(&recipient, 200, None);
    let encoded = write_final_head(&mut answer, 200, b"Connection established", [], &encoder);
    // The head shares its buffer with what follows, and should not outlive it.
    drop(head);
    if let Err(error) = encoded {
        tunnel.abandon(&std::io::Error::other(error));
        return Ok(None);
    }
    Ok(announce(tunnel, wire, host, answer).await)
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
