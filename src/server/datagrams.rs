//! Questions for names that come in datagrams: as many at once as there is room for, each answered
//! from the address that it was sent to.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use super::Server;
use crate::entry::dns;

/// Longest question that is read. A name has 255 octets at most; the rest is for options of EDNS.
const LONGEST: usize = 4096;
/// How long to wait after an error that is not the fault of one datagram.
const BACKOFF: Duration = Duration::from_millis(100);

/// Opens a socket for datagrams.
///
/// # Errors
/// The address can't be bound.
pub fn bind_datagrams(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    UdpSocket::from_std(socket.into())
}

impl Server {
    /// Answers questions until the process begins to stop.
    pub async fn receive(&self, socket: UdpSocket, stopping: impl Future<Output = ()>) {
        let socket = Arc::new(socket);
        let mut stopping = std::pin::pin!(stopping);
        let mut packet = vec![0; LONGEST];
        loop {
            let received = tokio::select! {
                received = socket.recv_from(&mut packet) => received,
                () = &mut stopping => return,
            };
            match received {
                // A longer one is cut by the system, and then can't be read.
                Ok((length, peer)) => self.answer(&socket, packet.get(..length).unwrap_or_default(), peer),
                // The answer to an earlier question could not be delivered.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => {
                    tracing::debug!(%error, "a question can't be received");
                    tokio::time::sleep(BACKOFF).await;
                }
            }
        }
    }

    fn answer(&self, socket: &Arc<UdpSocket>, packet: &[u8], peer: SocketAddr) {
        let egress = &self.gate.egress;
        // Nobody listens on port 0.
        let Some(slot) = self.questions.slot(peer.ip()).filter(|_| peer.port() != 0) else {
            egress.metrics().question_dropped();
            return;
        };
        let (gate, strangers) = (Arc::clone(&self.gate), Arc::clone(&self.strangers));
        let (socket, packet) = (Arc::clone(socket), packet.to_vec());
        let closing = egress.closing();
        self.tasks.spawn(async move {
            let _slot = slot;
            let answering = async {
                if let Some(answer) = dns::answer(&gate, &packet, peer, dns::Transport::Udp, &strangers).await
                    && let Err(error) = socket.send_to(&answer, peer).await
                {
                    tracing::debug!(%error, %peer, "an answer can't be sent");
                }
            };
            tokio::select! {
                () = answering => {}
                () = closing => {}
            }
        });
    }
}
