//! A question about a request that nobody has sent, read as if somebody had.

use bytes::BytesMut;
use egret_policy::{Action, Destination};

use super::request::{Asked, read as read_request};
use crate::http1::HeadReader;

/// What the request would ask for, or the status and the fault of a bad one.
///
/// Without a method, a URL means `GET` and anything else `CONNECT`; an `https` URL means the
/// tunnel that a client would open for it.
///
/// # Errors
/// The status and the fault of a bad request.
pub fn read(
    method: Option<&str>,
    target: &str,
    host: Option<&str>,
) -> Result<(Destination, Action), (u16, String)> {
    let tunnel_target = if method.is_none() { https_authority(target) } else { None };
    let target = tunnel_target.as_deref().unwrap_or(target);
    let method = method.unwrap_or(if target.contains("://") { "GET" } else { "CONNECT" });
    // The value of Host must be there and valid, and is then ignored.
    let host = host.unwrap_or("host.invalid");
    let text = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let mut bytes = BytesMut::from(text.as_bytes());
    let head = match HeadReader::new().read(&mut bytes) {
        Ok(Some(head)) if bytes.is_empty() => head,
        Ok(_) => return Err((400, "the target or the method breaks the request line".to_owned())),
        Err(error) => return Err((error.status(), error.to_string())),
    };
    match read_request(&head, None) {
        Ok(Asked::Tunnel(destination)) => Ok((destination, Action::Tunnel)),
        Ok(Asked::Forward(forward)) => {
            Ok((forward.destination, Action::Request { method: head.method().into(), path: forward.path }))
        }
        Ok(Asked::Options(..)) => Err((400, "the proxy itself answers this request".to_owned())),
        Err(fault) => Err((fault.status(), fault.detail())),
    }
}

/// `host:port` of an `https` URL.
fn https_authority(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://").filter(|(scheme, _)| scheme.eq_ignore_ascii_case("https"))?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    Some(if has_port { authority.to_owned() } else { format!("{authority}:443") })
}
