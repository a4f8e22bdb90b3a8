//! Questions for names, as tools ask them that know of no proxy (RFC 1035, RFC 7766).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Gate;
use crate::dns_message::Received;

pub use crate::dns_message::Transport;

/// How long a connection may be idle, and how long a question or an answer may take to pass.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest question over a connection.
const LONGEST: usize = 4096;
/// Questions of clients that nobody knows that are answered and recorded within a second. Their
/// addresses may be anybody's.
const STRANGERS: u32 = 20;

/// Counts what comes from clients that nobody knows.
#[derive(Debug)]
pub struct Strangers(Mutex<(Instant, u32)>);

impl Default for Strangers {
    fn default() -> Self {
        Self(Mutex::new((Instant::now(), 0)))
    }
}

impl Strangers {
    fn admit(&self) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0.elapsed() >= Duration::from_secs(1) {
            *known = (Instant::now(), 0);
        }
        known.1 = known.1.saturating_add(1);
        known.1 <= STRANGERS
    }
}

/// Answers one message; `None` where there must be no answer.
pub async fn answer(
    gate: &Gate,
    packet: &[u8],
    peer: SocketAddr,
    transport: Transport,
    strangers: &Strangers,
) -> Option<Vec<u8>> {
    let received = Received::read(packet);
    let answer = match gate.egress.identify_asker(peer.ip()) {
        Ok(client) => gate.egress.answer_name(&client, &received, peer).await,
        Err(refusal) => {
            if !strangers.admit() {
                gate.egress.metrics().question_dropped();
                return None;
            }
            gate.egress.refuse_asker(&received, peer, refusal).await
        }
    };
    received.back?.answer(&answer, transport)
}

/// Answers one question after the other until the client has no more, or the process stops.
pub async fn serve(gate: Arc<Gate>, mut stream: TcpStream, peer: SocketAddr, strangers: Arc<Strangers>) {
    let mut draining = std::pin::pin!(gate.egress.draining());
    loop {
        let question = tokio::select! {
            question = timeout(PATIENCE, read(&mut stream)) => question,
            () = &mut draining => return,
        };
        let Ok(Some(question)) = question else { return };
        let Some(answer) = answer(&gate, &question, peer, Transport::Tcp, &strangers).await else { return };
        let Ok(length) = u16::try_from(answer.len()) else { return };
        let whole = [&length.to_be_bytes()[..], &answer].concat();
        if !matches!(timeout(PATIENCE, stream.write_all(&whole)).await, Ok(Ok(()))) {
            return;
        }
    }
}

/// A message with its length before it; `None` at the end, and for one that is too long.
async fn read(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let length = usize::from(stream.read_u16().await.ok()?);
    if length > LONGEST {
        return None;
    }
    let mut question = vec![0; length];
    stream.read_exact(&mut question).await.ok()?;
    Some(question)
}
