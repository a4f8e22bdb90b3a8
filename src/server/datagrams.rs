//! Questions for names that come in datagrams: as many at once as there is room for, each answered
//! from the address that it was sent to.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::runtime::{self, Handle};

use super::Server;
use crate::entry::dns;

/// Longest question that is read. A name has 255 octets at most; the rest is for options of EDNS.
const LONGEST: usize = 4096;
/// Octets of questions that the system is asked to keep while nobody takes them.
const BACKLOG: usize = 4 << 20;
/// How long to wait after an error that is not the fault of one datagram.
const BACKOFF: Duration = Duration::from_millis(100);

/// Opens a socket for datagrams.
///
/// # Errors
/// The address can't be bound.
pub fn bind_datagrams(address: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if let Err(error) = socket.set_recv_buffer_size(BACKLOG) {
        tracing::debug!(%error, %address, "questions have the usual room to wait");
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

impl Server {
    /// Answers questions until the process begins to stop. They are received on a thread of its own: of
    /// what one client sends too much, the rest has to be dropped as fast as it comes, or else the
    /// system drops what others send.
    ///
    /// # Errors
    /// The system gives no descriptor or no thread.
    pub fn receive(
        self: Arc<Self>,
        socket: std::net::UdpSocket,
        stopping: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let answers = Arc::new(UdpSocket::from_std(socket.try_clone()?)?);
        let workers = Handle::current();
        let receiving = runtime::Builder::new_current_thread().enable_all().build()?;
        let work = move || {
            receiving.block_on(async {
                match UdpSocket::from_std(socket) {
                    Ok(socket) => self.take_questions(&socket, &answers, &workers, stopping).await,
                    Err(error) => tracing::error!(%error, "questions can't be received"),
                }
            });
        };
        thread::Builder::new().name("questions".to_owned()).spawn(work)?;
        Ok(())
    }

    async fn take_questions(
        &self,
        questions: &UdpSocket,
        answers: &Arc<UdpSocket>,
        workers: &Handle,
        stopping: impl Future<Output = ()>,
    ) {
        let mut stopping = std::pin::pin!(stopping);
        let mut packet = vec![0; LONGEST];
        loop {
            let received = tokio::select! {
                received = questions.recv_from(&mut packet) => received,
                () = &mut stopping => return,
            };
            match received {
                // A longer one is cut by the system, and then can't be read.
                Ok((length, peer)) => {
                    self.answer(answers, packet.get(..length).unwrap_or_default(), peer, workers);
                }
                // The answer to an earlier question could not be delivered.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => {
                    tracing::debug!(%error, "a question can't be received");
                    tokio::time::sleep(BACKOFF).await;
                }
            }
        }
    }

    fn answer(&self, socket: &Arc<UdpSocket>, packet: &[u8], peer: SocketAddr, workers: &Handle) {
        let egress = &self.gate.egress;
        // Nobody listens on port 0.
        let Some(slot) = self.questions.slot(peer.ip()).filter(|_| peer.port() != 0) else {
            egress.metrics().question_dropped();
            return;
        };
        let (gate, strangers) = (Arc::clone(&self.gate), Arc::clone(&self.strangers));
        let (socket, packet) = (Arc::clone(socket), packet.to_vec());
        let closing = egress.closing();
        let answering = async move {
            let _slot = slot;
            let answered = async {
                if let Some(answer) = dns::answer(&gate, &packet, peer, dns::Transport::Udp, &strangers).await
                    && let Err(error) = socket.send_to(&answer, peer).await
                {
                    tracing::debug!(%error, %peer, "an answer can't be sent");
                }
            };
            tokio::select! {
                () = answered => {}
                () = closing => {}
            }
        };
        self.tasks.spawn_on(answering, workers);
    }
}
