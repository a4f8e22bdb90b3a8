//! The origin's response as it goes to the client: checked, filtered and framed anew.

use std::io::ErrorKind;
use std::pin::Pin;
use std::task::Poll;

use bytes::{Buf, Bytes, BytesMut};
use egret_policy::Reason;
use http::header::{CONNECTION, CONTENT_LENGTH, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame as BodyFrame};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::http1::{
    Abort, BodyEncoder, Connection, Frame, MAX_FIELDS_BYTES, Recipient, Trailers, Version, WriteError,
    announced_trailers, forward_response_field, forward_trailer_field, write_final_head, write_interim_head,
};

/// Why a response can't be passed on.
#[derive(Debug)]
pub(super) struct Unusable(pub(super) String);

/// What hyper yields next of a body.
type NextFrame = Option<Result<BodyFrame<Bytes>, hyper::Error>>;

/// A response on its way to the client.
pub(super) struct Reply {
    status: u16,
    /// The encoded head until it is taken.
    head: BytesMut,
    body: Incoming,
    encoder: BodyEncoder,
    connection: Connection,
    trailers: Trailers,
    origin_usable: bool,
}

impl Reply {
    /// Checks the head of a response and encodes it for the client.
    ///
    /// `upload_done` tells whether the request was sent whole: if not, the client's connection
    /// can't serve another one.
    pub(super) fn new(
        response: Response<Incoming>,
        recipient: &Recipient<'_>,
        name: &str,
        upload_done: bool,
    ) -> Result<Self, Unusable> {
        let (parts, body) = response.into_parts();
        let status = parts.status;
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Unusable("a 101 that was not asked for".to_owned()));
        }
        if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            return Err(Unusable("a 407, which only a proxy may send".to_owned()));
        }
        let chunked = is_chunked(&parts.headers, parts.version)?;
        let announced = content_length(&parts.headers)?;
        let bodiless = recipient.method == "HEAD" || status == StatusCode::NOT_MODIFIED;
        let length = match (chunked, bodiless) {
            (false, true) => announced,
            (false, false) => body.size_hint().exact(),
            (true, _) => None,
        };
        let mut encoder = BodyEncoder::new(recipient, status.as_u16(), length);
        if !upload_done {
            encoder.close_afterwards();
        }
        if head_size(&parts.headers) > MAX_FIELDS_BYTES {
            return Err(Unusable("a head of more than 64 KiB".to_owned()));
        }
        let connection = options(&parts.headers);
        let via = via(parts.version, name);
        let trailer = parts.headers.get_all(TRAILER).iter().map(HeaderValue::as_bytes);
        let trailer = announced_trailers(trailer, &connection);
        let trailer = trailer.as_deref().map(|names| (TRAILER.as_str(), names.as_bytes()));
        let fields = forwardable(&parts.headers, &connection).chain(trailer);
        let fields = fields.chain([(VIA.as_str(), via.as_bytes())]);
        let reason = reason_phrase(&parts.extensions, status);
        let mut head = BytesMut::with_capacity(1024);
        write_final_head(&mut head, status.as_u16(), reason, fields, &encoder).map_err(unwritable)?;
        Ok(Self {
            status: status.as_u16(),
            head,
            body,
            encoder,
            connection,
            trailers: Trailers::new(),
            // With both, the next response could begin anywhere (RFC 9112 section 6.3).
            origin_usable: !(chunked && announced.is_some()),
        })
    }

    /// The status code.
    pub(super) const fn status(&self) -> u16 {
        self.status
    }

    /// The encoded head, once.
    pub(super) fn take_head(&mut self) -> BytesMut {
        std::mem::take(&mut self.head)
    }

    /// The next frame of the body.
    pub(super) async fn frame(&mut self) -> NextFrame {
        self.body.frame().await
    }

    /// The next frame, if it is there already.
    pub(super) async fn frame_if_ready(&mut self) -> Option<NextFrame> {
        std::future::poll_fn(|cx| {
            Poll::Ready(match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(frame) => Some(frame),
                Poll::Pending => None,
            })
        })
        .await
    }

    /// Encodes a frame: the bytes for the client, with the head if that was not taken, the number
    /// of payload bytes in them, and whether they are the last.
    ///
    /// # Errors
    /// The body breaks off: why, and words for the record.
    pub(super) fn encode(&mut self, frame: NextFrame) -> Result<(Piece, usize, bool), (Reason, String)> {
        let ours = |error: &dyn std::fmt::Display| (Reason::UpstreamClosed, error.to_string());
        let frame = match frame {
            None => {
                let mut out = self.take_head();
                let trailers = std::mem::take(&mut self.trailers);
                self.encoder.finish(&mut out, fields_of(&trailers)).map_err(|error| ours(&error))?;
                return Ok((Piece { head: out, frame: None }, 0, true));
            }
            Some(Err(error)) => return Err(fault(&error)),
            Some(Ok(frame)) => frame,
        };
        match frame.into_data() {
            Ok(data) => {
                let payload = data.len();
                let frame = Some(self.encoder.encode(data).map_err(|error| ours(&error))?);
                Ok((Piece { head: self.take_head(), frame }, payload, false))
            }
            Err(other) => {
                if let Ok(trailers) = other.into_trailers() {
                    self.keep_trailers(&trailers);
                }
                Ok((Piece { head: self.take_head(), frame: None }, 0, false))
            }
        }
    }

    /// How to end the client's connection if the response can't be completed.
    pub(super) fn on_abort(&self) -> Abort {
        self.encoder.on_abort()
    }

    /// May the client's connection serve another request?
    pub(super) fn persistent(&self) -> bool {
        self.encoder.persistent()
    }

    /// May the connection to the origin serve another request?
    pub(super) const fn leaves_origin_usable(&self) -> bool {
        self.origin_usable
    }

    fn keep_trailers(&mut self, trailers: &HeaderMap) {
        for (name, value) in trailers {
            if forward_trailer_field(name.as_str(), &self.connection) {
                self.trailers.push((name.to_string(), Bytes::copy_from_slice(value.as_bytes())));
            }
        }
    }
}

/// Why a body can't be read on: its framing is not HTTP, or the connection has ended.
fn fault(error: &hyper::Error) -> (Reason, String) {
    let cause = std::error::Error::source(error);
    let io = cause.and_then(|cause| cause.downcast_ref::<std::io::Error>());
    let reason = match io.map(std::io::Error::kind) {
        Some(ErrorKind::InvalidInput | ErrorKind::InvalidData) => Reason::UpstreamProtocol,
        _ => Reason::UpstreamClosed,
    };
    let words = io.map_or_else(|| error.to_string(), |io| format!("{error}: {io}"));
    (reason, words)
}

/// The 101 of an origin that agrees to speak WebSocket.
pub(super) fn switching(response: &Response<Incoming>, name: &str) -> Result<BytesMut, Unusable> {
    let upgrade = response.headers().get(UPGRADE).map(HeaderValue::as_bytes).unwrap_or_default();
    if !upgrade.eq_ignore_ascii_case(b"websocket") {
        return Err(Unusable("the 101 agrees to something else than WebSocket".to_owned()));
    }
    let connection = options(response.headers());
    let via = via(response.version(), name);
    let ours: [(&str, &[u8]); 3] =
        [("Connection", b"Upgrade"), ("Upgrade", b"websocket"), (VIA.as_str(), via.as_bytes())];
    let fields = forwardable(response.headers(), &connection).chain(ours);
    let reason = reason_phrase(response.extensions(), response.status());
    let mut out = BytesMut::new();
    write_interim_head(&mut out, 101, reason, fields, Version::Http11).map_err(unwritable)?;
    Ok(out)
}

/// Octets of the field lines as they would be written.
fn head_size(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

fn unwritable(error: WriteError) -> Unusable {
    Unusable(error.to_string())
}

fn options(headers: &HeaderMap) -> Connection {
    Connection::from_values(headers.get_all(CONNECTION).iter().map(HeaderValue::as_bytes))
}

fn forwardable<'a>(
    headers: &'a HeaderMap,
    connection: &'a Connection,
) -> impl Iterator<Item = (&'a str, &'a [u8])> {
    let fields = headers.iter().filter(|(name, _)| forward_response_field(name.as_str(), connection));
    fields.map(|(name, value)| (name.as_str(), value.as_bytes()))
}

fn via(version: http::Version, name: &str) -> String {
    let received = if version == http::Version::HTTP_10 { "1.0" } else { "1.1" };
    format!("{received} {name}")
}

fn reason_phrase(extensions: &http::Extensions, status: StatusCode) -> &[u8] {
    match extensions.get::<hyper::ext::ReasonPhrase>() {
        // Phrases like ours are ours alone: some clients show nothing else.
        Some(phrase) if !phrase.as_bytes().starts_with(b"egret ") => phrase.as_bytes(),
        _ => status.canonical_reason().unwrap_or_default().as_bytes(),
    }
}

/// Is the body chunked? Any other transfer coding can't be passed on.
fn is_chunked(headers: &HeaderMap, version: http::Version) -> Result<bool, Unusable> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(false),
        (Some(_), _) if version == http::Version::HTTP_10 => {
            Err(Unusable("a transfer coding in HTTP/1.0".to_owned()))
        }
        (Some(only), None) if only.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(true),
        _ => Err(Unusable("a transfer coding other than chunked".to_owned())),
    }
}

/// The announced length; several that agree count as one (RFC 9110 section 8.6).
fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Unusable> {
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        for member in value.as_bytes().split(|&b| b == b',') {
            let digits = member.trim_ascii();
            let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
            let text = std::str::from_utf8(digits).ok().filter(|_| plain);
            let number = text.and_then(|t| t.parse::<u64>().ok());
            let number = number.ok_or_else(|| Unusable("an invalid Content-Length".to_owned()))?;
            if length.is_some_and(|known| known != number) {
                return Err(Unusable("different Content-Length values".to_owned()));
            }
            length = Some(number);
        }
    }
    Ok(length)
}

fn fields_of(trailers: &Trailers) -> impl Iterator<Item = (&str, &[u8])> {
    trailers.iter().map(|(name, value)| (name.as_str(), &value[..]))
}

/// A head, if it has not been written, and a piece of the body.
pub(super) struct Piece {
    head: BytesMut,
    frame: Option<Frame>,
}

impl Piece {
    /// Does it begin the response? Then the client has got nothing of it yet.
    pub(super) fn has_head(&self) -> bool {
        !self.head.is_empty()
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.head.len() + self.frame.as_ref().map_or(0, Buf::remaining)
    }

    fn chunk(&self) -> &[u8] {
        match &self.frame {
            Some(frame) if self.head.is_empty() => frame.chunk(),
            _ => &self.head,
        }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [std::io::IoSlice<'a>]) -> usize {
        let filled = self.head.chunks_vectored(slices);
        match (&self.frame, slices.get_mut(filled..)) {
            (Some(frame), Some(rest)) => filled + frame.chunks_vectored(rest),
            _ => filled,
        }
    }

    fn advance(&mut self, count: usize) {
        let of_head = count.min(self.head.len());
        self.head.advance(of_head);
        if let Some(frame) = &mut self.frame {
            frame.advance(count - of_head);
        }
    }
}
