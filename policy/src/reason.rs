//! Every reason code, once: the closed set that clients, operators and the audit log see.
//!
//! A code is a contract: it is never renamed, and `docs/reasons.md` explains each one.

/// What a reason code stands for, outward.
struct Facts {
    code: &'static str,
    /// The HTTP status of a refusal; `None` where no answer can be given any more.
    status: Option<u16>,
    /// The `error` parameter of `Proxy-Status` (RFC 9209 section 2.3).
    proxy_error: Option<&'static str>,
    /// One sentence for a person.
    meaning: &'static str,
}

macro_rules! reasons {
    ($($name:ident, $code:literal, $status:expr, $error:expr, $meaning:literal;)+) => {
        /// Why a request was allowed, refused or ended.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason {
            $(#[doc = $meaning] $name,)+
        }

        impl Reason {
            /// All reasons, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            const fn facts(self) -> Facts {
                match self {
                    $(Self::$name => Facts {
                        code: $code, status: $status, proxy_error: $error, meaning: $meaning,
                    },)+
                }
            }
        }
    };
}

const DENIED: Option<&str> = Some("http_request_denied");
const PROHIBITED: Option<&str> = Some("destination_ip_prohibited");
const INTERNAL: Option<&str> = Some("proxy_internal_error");

reasons! {
    Allowed, "allowed", None, None,
        "A rule allows the request.";
    BadRequest, "bad_request", Some(400), Some("http_request_error"),
        "The request is not well-formed HTTP, or its target is not a valid destination.";
    IdentityRequired, "identity_required", Some(403), DENIED,
        "Nothing identifies the client as a sandbox.";
    IdentityRejected, "identity_rejected", Some(403), DENIED,
        "The client's credentials or its certificate are not valid.";
    DomainDenied, "domain_denied", Some(403), DENIED,
        "A deny rule names the destination.";
    DomainNotAllowed, "domain_not_allowed", Some(403), DENIED,
        "No allow rule names the destination.";
    PortNotAllowed, "port_not_allowed", Some(403), DENIED,
        "The destination is allowed, but not on this port.";
    MethodNotAllowed, "method_not_allowed", Some(403), DENIED,
        "The destination is allowed, but not with this method.";
    PathNotAllowed, "path_not_allowed", Some(403), DENIED,
        "The destination is allowed, but not with this path.";
    RedirectDenied, "redirect_denied", Some(403), DENIED,
        "The response redirects to a destination that is not allowed.";
    AddressForbidden, "address_forbidden", Some(403), PROHIBITED,
        "The address can never be reached: metadata, link-local, multicast, the proxy itself or the like.";
    AddressNotAllowed, "address_not_allowed", Some(403), PROHIBITED,
        "The address is private, or an address literal, and no rule permits it.";
    MixedAnswer, "mixed_answer", Some(403), PROHIBITED,
        "DNS answered with permitted and not permitted addresses; such an answer is refused whole.";
    RateLimited, "rate_limited", Some(429), DENIED,
        "The sandbox sends requests faster than its limit.";
    QuotaExceeded, "quota_exceeded", Some(429), DENIED,
        "The sandbox has used up a quota.";
    TooManyConnections, "too_many_connections", Some(429), DENIED,
        "The sandbox has as many connections open as it may.";
    ProxyLoop, "proxy_loop", Some(502), Some("proxy_loop_detected"),
        "The request has been through this proxy already.";
    DnsNotFound, "dns_not_found", Some(502), Some("dns_error"),
        "The name does not exist or has no address.";
    DnsFailed, "dns_failed", Some(502), Some("dns_error"),
        "The name could not be resolved.";
    DnsTimeout, "dns_timeout", Some(504), Some("dns_timeout"),
        "No DNS server answered in time.";
    ConnectRefused, "connect_refused", Some(502), Some("connection_refused"),
        "The destination refused the connection.";
    ConnectUnroutable, "connect_unroutable", Some(502), Some("destination_ip_unroutable"),
        "There is no route to the destination.";
    ConnectTimeout, "connect_timeout", Some(504), Some("connection_timeout"),
        "The destination did not accept the connection in time.";
    UpstreamTls, "upstream_tls", Some(502), Some("tls_protocol_error"),
        "TLS with the destination failed.";
    UpstreamClosed, "upstream_closed", Some(502), Some("connection_terminated"),
        "The destination closed the connection before its answer was complete.";
    UpstreamTimeout, "upstream_timeout", Some(504), Some("connection_read_timeout"),
        "The destination did not answer in time.";
    UpstreamProtocol, "upstream_protocol", Some(502), Some("http_protocol_error"),
        "The destination's answer is not valid HTTP, or not one that may be passed on.";
    AuditUnavailable, "audit_unavailable", Some(503), INTERNAL,
        "The audit record could not be written, so the traffic is refused.";
    Overloaded, "overloaded", Some(503), INTERNAL,
        "The proxy is at its limit of connections or descriptors.";
    ShuttingDown, "shutting_down", Some(503), INTERNAL,
        "The proxy is stopping.";
    SniMismatch, "sni_mismatch", None, None,
        "The TLS server name differs from the CONNECT host.";
    SniMissing, "sni_missing", None, None,
        "The TLS ClientHello names no server.";
    NotTls, "not_tls", None, None,
        "The tunnel must carry TLS and its first bytes are something else.";
    TlsMalformed, "tls_malformed", None, None,
        "The TLS handshake can't be read.";
    TlsTimeout, "tls_timeout", None, None,
        "The TLS handshake did not come in time.";
    PolicyChanged, "policy_changed", None, None,
        "A new policy no longer permits the open connection.";
    IdleTimeout, "idle_timeout", None, None,
        "No byte passed for as long as the limit says.";
    LifetimeExceeded, "lifetime_exceeded", None, None,
        "The connection has been open for as long as the limit says.";
    ClientCancel, "client_cancel", None, None,
        "The client went away.";
}

impl Reason {
    /// The stable code, for example `domain_not_allowed`.
    #[must_use]
    pub const fn code(self) -> &'static str {
        self.facts().code
    }

    /// The HTTP status of a refusal for this reason; `None` where the connection is just closed.
    ///
    /// `bad_request` has more specific statuses for some faults; see the entry that answers it.
    #[must_use]
    pub const fn status(self) -> Option<u16> {
        self.facts().status
    }

    /// The `error` parameter of `Proxy-Status` (RFC 9209 section 2.3), if one fits.
    #[must_use]
    pub const fn proxy_error(self) -> Option<&'static str> {
        self.facts().proxy_error
    }

    /// One sentence for a person.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        self.facts().meaning
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_snake_case() {
        let codes: std::collections::BTreeSet<_> = Reason::ALL.iter().map(|r| r.code()).collect();
        assert_eq!(codes.len(), Reason::ALL.len());
        for code in codes {
            assert!(code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{code}");
        }
    }

    #[test]
    fn a_refusal_never_has_a_success_status() {
        for reason in Reason::ALL {
            assert!(reason.status().is_none_or(|s| s >= 400), "{reason}");
        }
    }
}
