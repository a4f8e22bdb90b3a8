//! The ClientHello of a tunnel whose rule asks for TLS, and every further one that the server asks for:
//! each has to name the host, and nothing of it passes before it has.
//!
//! A server that asks again (RFC 8446 section 4.1.4) takes the name out of the second hello where it likes.
//! So what could be one waits for the beginning of the server's answer, which is looked at on its way: it is
//! neither held up nor changed. Early data is not held up either.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use egret_policy::{Host, Reason};
use tokio::time::Sleep;

use super::Stop;
use super::flow::Cause;
use crate::client_hello::{AnswerReader, ClientHello, ClientHelloError, ClientHelloReader, LeadingRecords};
use crate::relay::Gate;
use crate::stream::Stream;

/// Bytes asked of the client at once.
const READ: usize = 4096;

/// Lets hellos through that name the host, as many as the server asks for, and then everything.
pub(super) struct Hellos {
    host: Host,
    /// How long each may take.
    limit: Duration,
    /// What the client has sent and may not pass yet.
    held: BytesMut,
    /// How many have passed.
    passed: usize,
    /// The one that is awaited.
    due: Option<Due>,
    /// What passes without being one.
    between: LeadingRecords,
    answer: AnswerReader,
}

/// A hello that has to come.
struct Due {
    reader: ClientHelloReader,
    late: Pin<Box<Sleep>>,
}

impl Hellos {
    /// `early` was read from the client, `early_down` from the upstream.
    pub(super) fn new(host: Host, limit: Duration, early: BytesMut, early_down: &[u8]) -> Self {
        let mut answer = AnswerReader::default();
        answer.read(early_down);
        Self { host, limit, held: early, passed: 0, due: None, between: LeadingRecords::default(), answer }
    }

    /// The first hello, once it names the host.
    pub(super) async fn first(&mut self, client: &Stream, stop: &mut Stop) -> Result<Bytes, Cause> {
        let first = tokio::select! {
            first = poll_fn(|cx| self.poll_next(cx, client)) => first?,
            reason = stop.wait() => return Err(reason.into()),
        };
        first.filter(|hello| !hello.is_empty()).ok_or_else(|| Reason::ClientCancel.into())
    }

    /// Whether a hello has to come next: the first one, or one that the server has asked for.
    fn is_due(&self) -> bool {
        self.passed <= self.answer.retries()
    }

    /// How many of the bytes held may pass: none as long as they could be a hello that nobody has asked for.
    fn poll_passing(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Cause>> {
        if self.passed > 0 {
            match self.between.read(&self.held) {
                Ok(0) => {}
                Ok(passing) => return Poll::Ready(Ok(passing)),
                Err(error) if self.is_due() => return Poll::Ready(Err(error.into())),
                // Another protocol, perhaps: the answer will tell.
                Err(_) => return Poll::Pending,
            }
        }
        if !self.is_due() {
            return Poll::Pending;
        }
        let due = self.due.get_or_insert_with(|| Due {
            reader: ClientHelloReader::new(),
            late: Box::pin(tokio::time::sleep(self.limit)),
        });
        if let Some(hello) = due.reader.read(&self.held)? {
            agree(&hello, &self.host)?;
            self.due = None;
            self.passed += 1;
            return Poll::Ready(Ok(hello.wire_len()));
        }
        ready!(due.late.as_mut().poll(cx));
        Poll::Ready(Err(Reason::TlsTimeout.into()))
    }
}

impl Gate<Cause> for Hellos {
    fn answered(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            self.answer.end();
        }
        self.answer.read(bytes);
    }

    fn poll_next(&mut self, cx: &mut Context<'_>, client: &Stream) -> Poll<Result<Option<Bytes>, Cause>> {
        loop {
            if self.answer.is_over() && !self.is_due() {
                let held = std::mem::take(&mut self.held).freeze();
                return Poll::Ready(Ok(Some(held).filter(|held| !held.is_empty())));
            }
            if let Poll::Ready(passing) = self.poll_passing(cx)? {
                return Poll::Ready(Ok(Some(self.held.split_to(passing).freeze())));
            }
            if !self.held.is_empty() && !self.is_due() {
                // Until the server has answered. More is not read, as if it were slow.
                return Poll::Pending;
            }
            ready!(client.poll_read_ready(cx)).map_err(gone)?;
            match client.try_read_buf(&mut self.held, READ) {
                Ok(0) if self.held.is_empty() => return Poll::Ready(Ok(Some(Bytes::new()))),
                Ok(0) => return Poll::Ready(Err(Reason::ClientCancel.into())),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(gone(error))),
            }
        }
    }
}

fn gone(error: std::io::Error) -> Cause {
    Cause { reason: Reason::ClientCancel, detail: Some(error.to_string()) }
}

impl From<ClientHelloError> for Cause {
    fn from(error: ClientHelloError) -> Self {
        match error {
            ClientHelloError::NotTls => Reason::NotTls.into(),
            error => Self { reason: Reason::TlsMalformed, detail: Some(error.to_string()) },
        }
    }
}

/// Does the server name agree with the host? An IP literal has none (RFC 6066 section 3).
fn agree(hello: &ClientHello, host: &Host) -> Result<(), Cause> {
    match (hello.server_name(), host) {
        (None, Host::Address(_)) => Ok(()),
        (None, Host::Name(_)) => Err(Reason::SniMissing.into()),
        (Some(_), Host::Name(name)) if hello.names_host(name.as_str()) => Ok(()),
        (Some(sni), _) => {
            let detail = format!("server name {}", String::from_utf8_lossy(sni));
            Err(Cause { reason: Reason::SniMismatch, detail: Some(detail) })
        }
    }
}
