//! Audit records as server-sent events (HTML Living Standard, section 9.2).

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};

use crate::ledger::{Listener, Message};

/// A response body that goes on until the listener or the process leaves.
pub(super) struct EventStream(Listener);

impl EventStream {
    pub(super) const fn new(listener: Listener) -> Self {
        Self(listener)
    }
}

impl Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let message = self.0.poll_recv(context);
        message.map(|message| message.map(|message| Ok(Frame::data(encode(&message).into()))))
    }
}

/// Records are one line of printable ASCII, so that they need no escaping.
fn encode(message: &Message) -> String {
    match message {
        Message::Record(line) => format!("event: record\ndata: {line}\n\n"),
        Message::Dropped(count) => format!("event: dropped\ndata: {{\"count\":{count}}}\n\n"),
        Message::Alive => ":\n\n".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_events() {
        assert_eq!(encode(&Message::Record("{\"seq\":1}".into())), "event: record\ndata: {\"seq\":1}\n\n");
        assert_eq!(encode(&Message::Dropped(7)), "event: dropped\ndata: {\"count\":7}\n\n");
        assert_eq!(encode(&Message::Alive), ":\n\n");
    }
}
