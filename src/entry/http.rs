//! HTTP/1 from clients: reads one request after the other and has each decided on its own.

use std::sync::Arc;

use bytes::BytesMut;
use egret_policy::{Action, Client, Destination, Intent, Reason, Refusal};
use tokio::time::{Instant, timeout_at};

use super::connect::Connected;
use super::request::{Asked, Fault, is_loop, read, shown_target};
use super::respond::Answer;
use super::wire::Wire;
use super::{Gate, connect, exchange};
use crate::egress::{Malformed, Peer, Refused};
use crate::http1::{BodyLength, HeadError, HeadReader, Recipient, RequestHead, body_length};
use crate::stream::Stream;

/// Serves a client's connection until it ends or becomes a tunnel, which is given back: its
/// future is much smaller than this one.
pub async fn serve(gate: Arc<Gate>, stream: Stream, peer: Peer) -> Option<Connected> {
    let wire = Wire::new(stream, gate.egress.timeouts().body);
    serve_wire(gate, wire, peer).await
}

/// The same where some of the first request may have been read.
pub(super) async fn serve_wire(gate: Arc<Gate>, mut wire: Wire, peer: Peer) -> Option<Connected> {
    let mut reader = HeadReader::new();
    let mut draining = std::pin::pin!(gate.egress.draining());
    loop {
        let head = tokio::select! {
            head = read_head(&gate, &mut wire, &mut reader) => head,
            // Only what has been asked is still answered.
            () = &mut draining => return None,
        };
        let head = match head {
            Ok(head) => head,
            Err(Unread::Gone) => return None,
            Err(Unread::TooSlow) => {
                let fault = "the request head did not arrive in time".to_owned();
                refuse_unread(&gate, wire, peer, 408, fault).await;
                return None;
            }
            Err(Unread::Faulty(error)) => {
                refuse_unread(&gate, wire, peer, error.status(), error.to_string()).await;
                return None;
            }
        };
        wire = match serve_request(&gate, wire, peer, head).await {
            Next::Request(wire) => wire,
            Next::Tunnel(connected) => return Some(*connected),
            Next::Close(wire) => {
                wire.close().await;
                return None;
            }
            Next::Gone => return None,
        };
    }
}

/// What becomes of the connection after a request.
pub(super) enum Next {
    /// It serves another one.
    Request(Wire),
    /// It carries a tunnel from now on.
    Tunnel(Box<Connected>),
    /// It is closed, after what the client still sends.
    Close(Wire),
    /// It is closed already, or handed over.
    Gone,
}

enum Unread {
    /// The client left, or sent nothing for too long.
    Gone,
    TooSlow,
    Faulty(HeadError),
}

async fn read_head(gate: &Gate, wire: &mut Wire, reader: &mut HeadReader) -> Result<RequestHead, Unread> {
    let timeouts = gate.egress.timeouts();
    // Counted from the first octet; until then the connection may be idle.
    let mut deadline = Instant::now() + timeouts.idle;
    let mut begun = false;
    loop {
        if !wire.buffer.is_empty() {
            if let Some(head) = reader.read(&mut wire.buffer).map_err(Unread::Faulty)? {
                return Ok(head);
            }
            if !begun {
                begun = true;
                deadline = Instant::now() + timeouts.header;
            }
        }
        match timeout_at(deadline, wire.read()).await {
            Ok(Ok(0) | Err(_)) => return Err(Unread::Gone),
            Ok(Ok(_)) => {}
            Err(_) if begun => return Err(Unread::TooSlow),
            Err(_) => return Err(Unread::Gone),
        }
    }
}

/// Answers what can't be read as a request, and ends the connection.
pub(super) async fn refuse_unread(gate: &Gate, wire: Wire, peer: Peer, status: u16, fault: String) {
    let client = gate.egress.identify_connection(peer.ip(), wire.stream.certificate()).ok();
    let what = Malformed { client: client.as_ref(), ..Malformed::default() };
    let refusal = Refusal::new(Reason::BadRequest).with_detail(fault.as_str());
    let refused = gate.egress.refuse(what, peer, refusal, status).await;
    let answer = Answer { refused: &refused, destination: None, fault: Some(fault), name: &gate.name };
    if let Ok(mut bytes) = answer.encode(&Recipient::unknown())
        && wire.write(&mut bytes).await.is_ok()
    {
        wire.close().await;
    }
}

async fn serve_request(gate: &Gate, wire: Wire, peer: Peer, head: RequestHead) -> Next {
    let asked = read(&head, peer.original);
    // Anew for every request: who sent the last one over this connection says nothing. Nor do
    // credentials for a proxy of which the client knows nothing.
    let credentials = head.values("Proxy-Authorization").filter(|_| peer.original.is_none());
    let certificate = wire.stream.certificate();
    let client = match gate.egress.identify(peer.ip(), certificate, credentials) {
        Ok(client) => client,
        Err(unidentified) => {
            let asked = asked.as_ref().ok();
            let what = malformed(&head, None, asked);
            let has_certificate = certificate.is_some();
            let refused = gate.egress.refuse_unidentified(what, peer, unidentified).await;
            return match tell(gate, wire, &head, asked.map(Asked::destination), &refused).await {
                // Another certificate can only come with another connection.
                Next::Request(wire) if has_certificate => Next::Close(wire),
                next => next,
            };
        }
    };
    let asked = match asked {
        Ok(asked) => asked,
        Err(fault) => return refuse_fault(gate, wire, peer, &client, &head, fault).await,
    };
    if is_loop(&head, &gate.name) {
        let what = malformed(&head, Some(&client), Some(&asked));
        let refused = gate.egress.refuse(what, peer, Refusal::new(Reason::ProxyLoop), 502).await;
        return tell(gate, wire, &head, Some(asked.destination()), &refused).await;
    }
    match asked {
        Asked::Options(destination, path) => {
            let action = Action::Request { method: head.method().into(), path };
            let intent = Intent { client, entry: peer.http_entry(), destination, action };
            match gate.egress.answer_here(&intent, peer, 200).await {
                Ok(()) => match wire.write(&mut options_answer(&head)).await {
                    Ok(()) => Next::Close(wire),
                    Err(_) => Next::Gone,
                },
                Err(refused) => tell(gate, wire, &head, Some(&intent.destination), &refused).await,
            }
        }
        Asked::Tunnel(destination) => {
            let told = destination.clone();
            match connect::serve(gate, wire, peer, client, destination, head).await {
                Ok(Some(connected)) => Next::Tunnel(Box::new(connected)),
                Ok(None) => Next::Gone,
                Err((wire, refused)) => {
                    let recipient = Recipient { method: "CONNECT", ..Recipient::unknown() };
                    tell_as(gate, wire, &recipient, Some(&told), &refused, None).await
                }
            }
        }
        Asked::Forward(forward) => exchange::serve(gate, wire, peer, client, &head, forward).await,
    }
}

/// What is recorded of a request that never became an intent.
fn malformed<'a>(
    head: &'a RequestHead,
    client: Option<&'a Client>,
    asked: Option<&'a Asked>,
) -> Malformed<'a> {
    Malformed {
        client,
        entry: None,
        method: Some(head.method()),
        destination: asked.map(Asked::destination),
        path: asked.and_then(Asked::path),
        target: Some(shown_target(head.target())),
    }
}

async fn refuse_fault(
    gate: &Gate,
    wire: Wire,
    peer: Peer,
    client: &Client,
    head: &RequestHead,
    fault: Fault,
) -> Next {
    let what = malformed(head, Some(client), None);
    let refusal = Refusal::new(Reason::BadRequest).with_detail(fault.detail());
    let refused = gate.egress.refuse(what, peer, refusal, fault.status()).await;
    let recipient = Recipient { method: head.method(), ..Recipient::unknown() };
    tell_as(gate, wire, &recipient, None, &refused, Some(fault.to_string())).await
}

/// Tells a refusal; the connection goes on if the request has no body that would have to be read.
pub(super) async fn tell(
    gate: &Gate,
    wire: Wire,
    head: &RequestHead,
    destination: Option<&Destination>,
    refused: &Refused,
) -> Next {
    let connection = crate::http1::Connection::of(head);
    let bodiless = matches!(body_length(head), Ok(BodyLength::None | BodyLength::Length(0)));
    let mut recipient = Recipient::of(head, &connection);
    recipient.persistent &= bodiless && head.method() != "CONNECT" && !gate.egress.stopping();
    tell_as(gate, wire, &recipient, destination, refused, None).await
}

async fn tell_as(
    gate: &Gate,
    wire: Wire,
    recipient: &Recipient<'_>,
    destination: Option<&Destination>,
    refused: &Refused,
    fault: Option<String>,
) -> Next {
    let answer = Answer { refused, destination, fault, name: &gate.name };
    let Ok(mut bytes) = answer.encode(recipient) else {
        return Next::Gone;
    };
    match wire.write(&mut bytes).await {
        Ok(()) if recipient.persistent => Next::Request(wire),
        Ok(()) => Next::Close(wire),
        Err(_) => Next::Gone,
    }
}

/// The proxy's own answer to `OPTIONS` with `Max-Forwards: 0`.
fn options_answer(head: &RequestHead) -> BytesMut {
    let recipient = Recipient { method: head.method(), ..Recipient::unknown() };
    let encoder = crate::http1::BodyEncoder::new(&recipient, 200, Some(0));
    let mut out = BytesMut::new();
    let allow: [(&str, &[u8]); 1] = [("Allow", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, CONNECT")];
    // Constant fields always encode.
    let _ = crate::http1::write_final_head(&mut out, 200, b"OK", allow, &encoder);
    out
}
