//! A tunnel through a parent proxy, to a checked address.

use bytes::Bytes;
use egret_policy::PinnedAddr;
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use hyper::ext::ReasonPhrase;
use tokio::net::TcpStream;

use super::{OutBody, Upstream};
use crate::chain::Way;
use crate::http1::MAX_FIELDS_BYTES;

/// Most characters of the parent's words that are kept.
const PHRASE_CHARS: usize = 80;

/// Why a parent opened no tunnel.
#[derive(Debug, thiserror::Error)]
pub enum NoTunnel {
    /// It answered something else than a 2xx.
    #[error("it answered {} {phrase}", status.as_u16())]
    Refused {
        /// The status.
        status: StatusCode,
        /// The words behind it: short, printable, the parent's own.
        phrase: String,
    },
    /// Its answer is not HTTP, or its head is longer than that of a response may be.
    #[error("its answer is not one of HTTP/1: {0}")]
    Malformed(String),
    /// The connection ended before an answer.
    #[error("it closed the connection: {0}")]
    Closed(String),
}

/// Asks the parent at the other end of `stream` for a tunnel to `target`, with these fields beside
/// `Host` (RFC 9110 section 9.3.6). The parent gets an IP literal: there is nothing that it could
/// resolve. Gives the connection and the bytes that came behind the answer's head.
///
/// # Errors
/// See [`NoTunnel`]. There is no time limit here.
pub async fn open_tunnel(
    stream: TcpStream,
    target: PinnedAddr,
    fields: &HeaderMap,
) -> Result<(TcpStream, Bytes), NoTunnel> {
    let request = connect_request(target, fields).map_err(|error| NoTunnel::Malformed(error.to_string()))?;
    let opened = Upstream::open(stream, target, Way::Direct).await;
    let mut upstream = opened.map_err(|error| NoTunnel::Closed(error.to_string()))?;
    let response = upstream.send(request).await.map_err(|error| {
        // The outer text of hyper's errors says little.
        let text = std::error::Error::source(&error.cause).map_or_else(String::new, |e| format!(" ({e})"));
        let text = format!("{}{text}", error.cause);
        if error.cause.is_parse() { NoTunnel::Malformed(text) } else { NoTunnel::Closed(text) }
    })?;
    // hyper's own limit is one of its buffer.
    let size = response.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    if size.sum::<usize>() > MAX_FIELDS_BYTES {
        return Err(NoTunnel::Malformed("a head of more than 64 KiB".to_owned()));
    }
    let status = response.status();
    if !status.is_success() {
        return Err(NoTunnel::Refused { status, phrase: phrase(&response) });
    }
    // A length or a coding in the answer means nothing: what follows is the tunnel.
    upstream.upgraded(response).await.ok_or_else(|| NoTunnel::Closed("with its answer".to_owned()))
}

fn connect_request(target: PinnedAddr, fields: &HeaderMap) -> Result<Request<OutBody>, http::Error> {
    // Of an IPv6 address with brackets.
    let authority = target.socket_addr().to_string();
    let mut request = Request::new(OutBody::empty());
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() = Uri::try_from(authority.as_str())?;
    *request.headers_mut() = fields.clone();
    request.headers_mut().insert(HOST, HeaderValue::try_from(authority)?);
    Ok(request)
}

/// The words of the answer, fit for a log.
fn phrase<B>(response: &http::Response<B>) -> String {
    let own = response.extensions().get::<ReasonPhrase>().map(|phrase| phrase.as_bytes());
    let words = own.map(String::from_utf8_lossy);
    let words = words.unwrap_or_else(|| response.status().canonical_reason().unwrap_or_default().into());
    words.chars().filter(|c| !c.is_control()).take(PHRASE_CHARS).collect()
}
