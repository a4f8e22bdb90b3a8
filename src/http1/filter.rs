//! Which fields may cross the proxy, in either direction and in trailers.
//!
//! It only ever says no: it adds nothing, and what it refuses is either meant for one hop, or
//! written anew by the caller (`Host`, `Content-Length`, `Connection`, `Via`), or a claim that
//! only the operator's own infrastructure may make. Names are compared without regard to case and
//! with `_` as `-`, see `connection::canonical`.

use super::connection::{Connection, canonical};
use super::syntax::{is_token, list_members};

/// Meant for one hop, in both directions (RFC 9110 7.6.1), or regenerated from the framing.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "content-length",
    "http2-settings",
    "keep-alive",
    "proxy",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// By these a client could claim to be somebody, or to come from somewhere.
const IDENTITY_CLAIMS: [&str; 4] = ["forwarded", "x-real-ip", "x-remote-user", "x-sandbox-id"];
const IDENTITY_CLAIM_PREFIXES: [&str; 3] = ["x-client-cert", "x-forwarded", "x-ssl-"];

/// Must not occur in trailers, where they would come after the decisions they bear upon
/// (RFC 9110 6.5.1): request modifiers, authentication, response control, representation.
const NEVER_IN_TRAILERS: [&str; 24] = [
    "age",
    "alt-svc",
    "authorization",
    "cache-control",
    "cookie",
    "date",
    "expect",
    "expires",
    "host",
    "location",
    "max-forwards",
    "pragma",
    "range",
    "refresh",
    "retry-after",
    "set-cookie",
    "set-cookie2",
    "strict-transport-security",
    "trailer",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "authentication-info",
];
const NEVER_IN_TRAILERS_PREFIXES: [&str; 3] = ["access-control-", "content-", "if-"];

/// Whether a request field goes to the origin as it is.
///
/// `Host`, `Content-Length` and the hop-by-hop fields do not: the caller writes those it needs
/// anew, so nominating them in `Connection` changes nothing.
pub fn forward_request_field(name: &str, connection: &Connection) -> bool {
    let name = canonical(name);
    !(matches!(&*name, "host" | "trailer") || is_hop_by_hop(&name, connection) || is_identity_claim(&name))
}

/// Whether a response field goes to the client as it is.
///
/// `Content-Length` does not; [`BodyEncoder`](super::BodyEncoder) writes it. `connection` holds the
/// options of the response.
pub fn forward_response_field(name: &str, connection: &Connection) -> bool {
    let name = canonical(name);
    !(matches!(&*name, "alt-svc" | "trailer") || is_hop_by_hop(&name, connection))
}

/// Whether a trailer field goes on, in either direction.
///
/// `connection` holds the options of the message that the trailer belongs to.
pub fn forward_trailer_field(name: &str, connection: &Connection) -> bool {
    let name = canonical(name);
    !(is_hop_by_hop(&name, connection)
        || is_identity_claim(&name)
        || NEVER_IN_TRAILERS.contains(&&*name)
        || starts_with_any(&name, &NEVER_IN_TRAILERS_PREFIXES))
}

/// The value of a new `Trailer` field: the names that the given values of one announce and that
/// may pass. `None` when there are none.
pub fn announced_trailers<'a>(
    values: impl Iterator<Item = &'a [u8]>,
    connection: &Connection,
) -> Option<String> {
    let names: Vec<_> = values
        .flat_map(list_members)
        .filter(|name| is_token(name))
        .filter_map(|name| std::str::from_utf8(name).ok())
        .filter(|name| forward_trailer_field(name, connection))
        .collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn is_hop_by_hop(name: &str, connection: &Connection) -> bool {
    HOP_BY_HOP.contains(&name)
        || name == "x-egret"
        || starts_with_any(name, &["proxy-", "x-egret-"])
        || connection.names_canonical(name)
}

fn is_identity_claim(name: &str) -> bool {
    IDENTITY_CLAIMS.contains(&name) || starts_with_any(name, &IDENTITY_CLAIM_PREFIXES)
}

fn starts_with_any(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::super::testing::head;
    use super::*;

    fn nominating(value: &str) -> Connection {
        Connection::from_values(std::iter::once(value.as_bytes()))
    }

    #[test]
    fn request_fields_that_stay_here() {
        let connection = nominating("close, Authorization, X-Hop");
        for name in [
            "Connection",
            "Proxy-Connection",
            "Proxy-Authorization",
            "Proxy-Authenticate",
            "PROXY-foo",
            "Proxy",
            "Keep-Alive",
            "TE",
            "Trailer",
            "Transfer-Encoding",
            "Upgrade",
            "HTTP2-Settings",
            "Host",
            "Content-Length",
            "X-Egret-Reason",
            "x-egret-request",
            "X-Sandbox-Id",
            "X-Forwarded-For",
            "X-Forwarded-Anything",
            "Forwarded",
            "X-Remote-User",
            "X-Real-IP",
            "X-SSL-Client-S-DN",
            "X-Client-Cert",
            "X-Client-Cert-Chain",
            "X_Forwarded_For",
            "Proxy_Authorization",
            "X_Real-IP",
            "Content_Length",
            "Transfer_Encoding",
            "authorization",
            "X-Hop",
            "x_hop",
        ] {
            assert!(!forward_request_field(name, &connection), "{name}");
        }
    }

    #[test]
    fn request_fields_that_pass() {
        let connection = nominating("close");
        for name in [
            "Accept",
            "Authorization",
            "Cookie",
            "User-Agent",
            "Content-Type",
            "Content-Encoding",
            "Expect",
            "Via",
            "X-MiXeD-cAsE",
            "SOAPAction",
            "Proximity",
            "X-SSLless",
            "Host-Id",
            "Alt-Svc",
            "Te-St",
            "Sec-WebSocket-Key",
        ] {
            assert!(forward_request_field(name, &connection), "{name}");
        }
    }

    #[test]
    fn response_fields() {
        let connection = nominating("X-Drop");
        for name in [
            "Proxy-Authenticate",
            "Proxy-Connection",
            "Proxy-Status",
            "Connection",
            "X-Drop",
            "Keep-Alive",
            "Upgrade",
            "Transfer-Encoding",
            "Content-Length",
            "Alt-Svc",
            "X-Egret-Reason",
            "X_Egret_Reason",
            "Trailer",
        ] {
            assert!(!forward_response_field(name, &connection), "{name}");
        }
        for name in ["Set-Cookie", "Via", "X-Forwarded-For", "Server", "Location"] {
            assert!(forward_response_field(name, &connection), "{name}");
        }
    }

    #[test]
    fn trailer_fields() {
        let connection = nominating("X-Hop");
        for name in [
            "Content-Length",
            "Content-Type",
            "Content-Encoding",
            "Transfer-Encoding",
            "Host",
            "Authorization",
            "Cookie",
            "Set-Cookie",
            "If-Match",
            "Range",
            "Trailer",
            "Proxy-Authorization",
            "X-Forwarded-For",
            "X-Egret-Reason",
            "TE",
            "X-Hop",
            "Cache-Control",
            "WWW-Authenticate",
            "Expect",
            "content_length",
        ] {
            assert!(!forward_trailer_field(name, &connection), "{name}");
        }
        for name in ["X-Sum", "grpc-status", "Digest", "ETag", "Server-Timing"] {
            assert!(forward_trailer_field(name, &connection), "{name}");
        }
    }

    #[test]
    fn announcements_are_rebuilt() {
        let announced = |fields: &str| {
            let head = head("POST http://a/ HTTP/1.1", fields);
            announced_trailers(head.values("Trailer"), &Connection::of(&head))
        };
        assert_eq!(
            announced("Trailer: X-Sum, Content-Length\r\ntrailer: X-B,a b").as_deref(),
            Some("X-Sum, X-B")
        );
        assert_eq!(announced("Trailer: Host"), None);
        assert_eq!(announced(""), None);
    }
}
