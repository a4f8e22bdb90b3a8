//! What a message says about its connection: persistence, fields meant for this hop only,
//! protocol upgrades, and the few other fields that are addressed to the next recipient.
//!
//! It reads; what is removed because of it is decided in [`filter`](super::filter).

use std::borrow::Cow;
use std::collections::HashSet;

use super::request::{RequestHead, Version};
use super::syntax::{decimal, is_token, list_members};

/// The options of `Connection` and of its predecessor `Proxy-Connection` (RFC 9110 7.6.1).
///
/// The cost is linear in the length of the values, and every look-up is constant: a client can
/// nominate as many names as a head can hold.
#[derive(Debug, Clone, Default)]
pub struct Connection {
    close: bool,
    keep_alive: bool,
    upgrade: bool,
    /// Canonical spellings, see [`canonical`]; without the three options above.
    nominated: HashSet<String>,
}

impl Connection {
    /// The options of a request.
    pub fn of(head: &RequestHead) -> Self {
        Self::from_values(head.values("Connection").chain(head.values("Proxy-Connection")))
    }

    /// The options in all values of `Connection` and `Proxy-Connection` of a message.
    ///
    /// A member that is not a token can name neither an option nor a field and is skipped.
    pub fn from_values<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut options = Self::default();
        for option in values.flat_map(list_members).filter(|option| is_token(option)) {
            if option.eq_ignore_ascii_case(b"close") {
                options.close = true;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                options.keep_alive = true;
            } else if option.eq_ignore_ascii_case(b"upgrade") {
                options.upgrade = true;
            } else {
                options.nominated.insert(canonical(&String::from_utf8_lossy(option)).into_owned());
            }
        }
        options
    }

    /// Whether the client wants to go on after this request: in HTTP/1.1 unless it says `close`,
    /// in HTTP/1.0 only if it says `keep-alive` (RFC 9112 9.3).
    pub fn persistent(&self, version: Version) -> bool {
        !self.close && (self.keep_alive || version >= Version::Http11)
    }

    /// Whether the field `name`, in any case, was nominated as meant for this hop only.
    pub fn nominates(&self, name: &str) -> bool {
        self.names_canonical(&canonical(name))
    }

    /// As [`nominates`](Self::nominates), for a spelling that is already canonical.
    pub(super) fn names_canonical(&self, name: &str) -> bool {
        self.nominated.contains(name)
    }
}

/// The one spelling under which a field name is compared: lower case, `_` written as `-`.
///
/// Gateways that hand fields to programs as environment variables cannot tell `X-Real-IP` from
/// `X_Real_IP`, so a filter that could would be a hole.
pub(super) fn canonical(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte == b'_' || byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase().replace('_', "-"))
    } else {
        Cow::Borrowed(name)
    }
}

/// Whether this is a WebSocket handshake that may be passed on: HTTP/1.1 `GET` without a body, and
/// `Upgrade` has one line with the single token `websocket` (RFC 6455 4.1).
///
/// A list that also offers something else is no handshake for us: the origin could pick the other.
pub fn wants_websocket(head: &RequestHead, connection: &Connection) -> bool {
    connection.upgrade
        && head.method() == "GET"
        && head.version() == Version::Http11
        && !head.has("Transfer-Encoding")
        && !head.has("Content-Length")
        && head.single("Upgrade").is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"))
}

/// Whether the client holds its body back until it gets a `100 Continue` (RFC 9110 10.1.1).
/// HTTP/1.0 has no such answer, so the field is ignored there.
pub fn expects_continue(head: &RequestHead) -> bool {
    head.version() == Version::Http11
        && head
            .values("Expect")
            .flat_map(list_members)
            .any(|member| member.eq_ignore_ascii_case(b"100-continue"))
}

/// How many more proxies an `OPTIONS` or `TRACE` request may pass (RFC 9110 7.6.2).
///
/// `None` for other methods and for a missing, repeated or malformed field, which is then ignored;
/// a number beyond 64 bits counts as the largest within.
pub fn max_forwards(head: &RequestHead) -> Option<u64> {
    if !matches!(head.method(), "OPTIONS" | "TRACE") {
        return None;
    }
    let value = head.single("Max-Forwards")?;
    let digits_alone = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    digits_alone.then(|| decimal(value).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::testing::head;
    use super::*;

    fn get(version: &str, fields: &str) -> RequestHead {
        head(&format!("GET http://a/ HTTP/{version}"), fields)
    }

    #[test]
    fn persistence() {
        for (version, fields, persistent) in [
            ("1.1", "", true),
            ("1.0", "", false),
            ("1.1", "Connection: close", false),
            ("1.1", "Connection: x, CLOSE ,y", false),
            ("1.1", "Connection: keep-alive\r\nConnection: close", false),
            ("1.1", "Proxy-Connection: close", false),
            ("1.1", "Connection: closed", true),
            ("1.0", "Connection: Keep-Alive", true),
            ("1.0", "Proxy-Connection: keep-alive", true),
            ("1.0", "Connection: keep-alive, close", false),
        ] {
            let head = get(version, fields);
            let connection = Connection::of(&head);
            assert_eq!(connection.persistent(head.version()), persistent, "{version} {fields}");
        }
    }

    #[test]
    fn nominated_names() {
        let connection = Connection::of(&get(
            "1.1",
            "Connection: close, X-A,,x_b\r\nProxy-Connection: X-C, not a token, \"x-d\"",
        ));
        for name in ["x-a", "X-A", "X_A", "x-b", "X_B", "x-c"] {
            assert!(connection.nominates(name), "{name}");
        }
        for name in ["x-d", "\"x-d\"", "not", "a", "", "x"] {
            assert!(!connection.nominates(name), "{name}");
        }
    }

    #[test]
    fn a_head_full_of_nominations() {
        let names: Vec<_> = (0..10_000).map(|number| format!("n{number}")).collect();
        let value = names.join(",");
        let connection = Connection::from_values(std::iter::once(value.as_bytes()));
        assert!(names.iter().all(|name| connection.nominates(name)));
        assert!(!connection.nominates("n10000"));
    }

    #[test]
    fn websocket_alone_upgrades() {
        let wants = |line: &str, fields: &str| {
            let head = head(line, fields);
            wants_websocket(&head, &Connection::of(&head))
        };
        let line = "GET http://a/ HTTP/1.1";
        assert!(wants(line, "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket"));
        for (line, fields) in [
            (line, "Upgrade: websocket"),
            (line, "Connection: upgrade"),
            (line, "Connection: upgrade\r\nUpgrade: h2c"),
            (line, "Connection: upgrade\r\nUpgrade: websocket, h2c"),
            (line, "Connection: upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c"),
            (line, "Connection: upgrade\r\nUpgrade: websocket/13"),
            (line, "Connection: upgrade\r\nUpgrade: connect-udp"),
            (line, "Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 1"),
            (line, "Connection: upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked"),
            ("GET http://a/ HTTP/1.0", "Connection: upgrade\r\nUpgrade: websocket"),
            ("POST http://a/ HTTP/1.1", "Connection: upgrade\r\nUpgrade: websocket"),
        ] {
            assert!(!wants(line, fields), "{line} {fields}");
        }
    }

    #[test]
    fn expectations() {
        assert!(expects_continue(&get("1.1", "Expect: 100-Continue")));
        assert!(!expects_continue(&get("1.1", "Expect: 200-ok")));
        assert!(!expects_continue(&get("1.1", "")));
        assert!(!expects_continue(&get("1.0", "Expect: 100-continue")));
    }

    #[test]
    fn forward_limits() {
        let options = |fields: &str| max_forwards(&head("OPTIONS http://a HTTP/1.1", fields));
        assert_eq!(options("Max-Forwards: 0"), Some(0));
        assert_eq!(options("Max-Forwards: 7"), Some(7));
        assert_eq!(options("Max-Forwards: 99999999999999999999"), Some(u64::MAX));
        for fields in ["", "Max-Forwards: ", "Max-Forwards: -1", "Max-Forwards: 0\r\nMax-Forwards: 1"] {
            assert_eq!(options(fields), None, "{fields}");
        }
        assert_eq!(max_forwards(&get("1.1", "Max-Forwards: 0")), None);
    }
}
