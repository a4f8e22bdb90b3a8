//! HTTP/1.1 towards origins: connections, their pool, and request bodies.
//!
//! A connection is driven by the task that uses it and by nobody while it lies in the pool. It is
//! used again only for the same sandbox, the same destination and an address that was checked
//! anew, and only if nothing has arrived on it in the meantime.

mod body;
mod parent;
mod pool;
mod socket;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use egret_policy::PinnedAddr;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::chain::Way;
use crate::http1::{MAX_FIELDS, MAX_FIELDS_BYTES, MAX_REQUEST_LINE};

pub use body::{BodyAborted, BodySender, OutBody};
pub use parent::{NoTunnel, open_tunnel};
pub use pool::Pool;
use socket::{OriginIo, OriginSocket};

/// Longest response head in octets, status line included.
const MAX_HEAD: usize = MAX_FIELDS_BYTES + MAX_REQUEST_LINE;

/// hyper's side of a connection: it moves only when polled.
type Driver = Pin<Box<dyn Future<Output = Result<(), hyper::Error>> + Send>>;

/// A connection to an origin.
pub struct Upstream {
    socket: Arc<OriginSocket>,
    address: PinnedAddr,
    way: Way,
    sender: SendRequest<OutBody>,
    /// `None` once the connection is over.
    driver: Option<Driver>,
    /// Has it served a request before?
    reused: bool,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct SendError {
    /// What hyper says.
    pub cause: hyper::Error,
    /// The request, if none of it was sent.
    pub unsent: Option<Request<OutBody>>,
    /// Had the connection served a request before, and gave nothing in answer to this one?
    pub stale: bool,
}

impl Upstream {
    /// Begins HTTP on a connection that was just opened to a checked address, this way; sends
    /// nothing yet.
    ///
    /// # Errors
    /// Whatever hyper finds wrong with that.
    pub async fn open(stream: TcpStream, address: PinnedAddr, way: Way) -> Result<Self, hyper::Error> {
        let socket = Arc::new(OriginSocket::new(stream));
        let (sender, connection) = http1::Builder::new()
            .title_case_headers(true)
            .max_headers(MAX_FIELDS)
            .max_buf_size(MAX_HEAD)
            .allow_obsolete_multiline_headers_in_responses(true)
            .allow_spaces_after_header_name_in_responses(true)
            .handshake(TokioIo::new(OriginIo::new(Arc::clone(&socket))))
            .await?;
        let driver: Driver = Box::pin(connection.with_upgrades());
        Ok(Self { socket, address, way, sender, driver: Some(driver), reused: false })
    }

    /// The checked address that it is connected to.
    #[must_use]
    pub const fn address(&self) -> PinnedAddr {
        self.address
    }

    /// How it gets there.
    #[must_use]
    pub const fn way(&self) -> &Way {
        &self.way
    }

    /// Sends a request and waits for the head of the response.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn send(&mut self, request: Request<OutBody>) -> Result<Response<Incoming>, SendError> {
        let received = self.socket.received();
        let sending = self.sender.try_send_request(request);
        match drive(&self.socket, &mut self.driver, sending).await {
            Ok(response) => Ok(response),
            Err(mut error) => {
                let unsent = error.take_message();
                let stale = self.reused && self.socket.received() == received;
                Err(SendError { cause: error.into_error(), unsent, stale })
            }
        }
    }

    /// Drives the connection until `future` is done.
    pub async fn drive<F: Future>(&mut self, future: F) -> F::Output {
        drive(&self.socket, &mut self.driver, future).await
    }

    /// The connection, if it can serve another request after a complete exchange.
    pub async fn reusable(mut self) -> Option<Self> {
        // One poll lets hyper see the end of the exchange, and whatever came behind it.
        self.drive(std::future::ready(())).await;
        self.reused = true;
        // What arrives later is looked for when it is taken out of the pool.
        let idle = self.driver.is_some() && self.sender.is_ready();
        idle.then_some(self)
    }

    /// The socket of an upgraded connection with the bytes that followed the 101.
    pub async fn upgraded(mut self, response: Response<Incoming>) -> Option<(TcpStream, bytes::Bytes)> {
        let upgraded = self.drive(hyper::upgrade::on(response)).await.ok()?;
        let parts = upgraded.downcast::<TokioIo<OriginIo>>().ok()?;
        let Self { socket, sender, driver, .. } = self;
        drop((sender, driver, parts.io));
        let stream = Arc::into_inner(socket)?.into_stream();
        Some((stream, parts.read_buf))
    }
}

/// Polls the connection along with a future that waits for something from it.
async fn drive<F: Future>(socket: &OriginSocket, driver: &mut Option<Driver>, future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    poll_fn(|cx| {
        socket.begin_turn();
        poll_driver(driver, cx);
        future.as_mut().poll(cx)
    })
    .await
}

fn poll_driver(driver: &mut Option<Driver>, cx: &mut Context<'_>) {
    if let Some(connection) = driver
        && let Poll::Ready(result) = connection.as_mut().poll(cx)
    {
        if let Err(error) = result {
            tracing::debug!(%error, "a connection to an origin failed");
        }
        *driver = None;
    }
}
