//! What a token claims (RFC 7519 section 4), as it is written and as it is read.
//!
//! Unknown claims are ignored. A known one of the wrong type, a missing one and one that stands
//! twice refuse the token; `null` is a wrong type, because nobody can say what it was meant to lift.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use egret_policy::units::{Quota, parse_duration, parse_quota, parse_rate};
use egret_policy::{Limits, strict_network};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Most octets of a token ID.
const MAX_ID: usize = 128;
/// Most octets of `workspace` and of `tool`.
const MAX_WORDS: usize = 128;

/// The claims of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// The sandbox ID.
    pub sub: String,
    /// The policy's name.
    pub policy: String,
    /// For whom the token is.
    pub aud: Audience,
    /// From when on it is refused, in seconds since 1970.
    pub exp: u64,
    /// Before when it is refused, in seconds since 1970.
    pub nbf: u64,
    /// The token's ID.
    pub jti: String,
    /// When it was issued, in seconds since 1970.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub iat: Option<u64>,
    /// The networks from which it may be used; anywhere if absent.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub src: Option<Vec<String>>,
    /// For the audit record.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// For the audit record.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Limits that hold beside the policy's.
    #[serde(default, deserialize_with = "present_table", skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitClaims>,
}

/// One audience or several (RFC 7519 section 4.1.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Audience {
    /// Is this one of them?
    #[must_use]
    pub fn names(&self, audience: &str) -> bool {
        match self {
            Self::One(one) => one == audience,
            Self::Several(list) => list.iter().any(|one| one == audience),
        }
    }
}

/// The `limits` claim: keys and values as in a policy. One that is not known can't be kept, so it
/// refuses the token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the keys of a policy's limits")]
pub struct LimitClaims {
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub requests: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub bytes: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub bytes_up: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub bytes_down: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub domains: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub dns_queries: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub dns_names: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub tunnel_idle: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub tunnel_lifetime: Option<String>,
}

/// A claim whose value can't be used; the word is its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the claim `{0}` has a value that can't be used")]
pub struct BadClaim(pub &'static str);

impl LimitClaims {
    /// The limits; what is not claimed is not limited.
    ///
    /// # Errors
    /// The first value that is not one of its key.
    pub fn read(&self) -> Result<Limits, BadClaim> {
        // In a policy zero lifts a limit; a token can't.
        let time = |t: &str| parse_duration(t).filter(|d| !d.is_zero());
        Ok(Limits {
            requests: value(self.requests.as_deref(), "limits.requests", parse_rate)?,
            connections: match self.connections {
                Some(0) => return Err(BadClaim("limits.connections")),
                other => other,
            },
            bytes: value(self.bytes.as_deref(), "limits.bytes", size)?,
            bytes_up: value(self.bytes_up.as_deref(), "limits.bytes_up", size)?,
            bytes_down: value(self.bytes_down.as_deref(), "limits.bytes_down", size)?,
            domains: value(self.domains.as_deref(), "limits.domains", |t| parse_quota(t, false))?,
            dns_queries: value(self.dns_queries.as_deref(), "limits.dns_queries", parse_rate)?,
            dns_names: value(self.dns_names.as_deref(), "limits.dns_names", |t| parse_quota(t, false))?,
            tunnel_idle: value(self.tunnel_idle.as_deref(), "limits.tunnel_idle", time)?,
            tunnel_lifetime: value(self.tunnel_lifetime.as_deref(), "limits.tunnel_lifetime", time)?,
        })
    }
}

impl Claims {
    /// Checks what can be checked without a clock, a key or a client, and reads the limits.
    ///
    /// # Errors
    /// The first claim whose value can't be used.
    pub fn check(&self) -> Result<Option<Arc<Limits>>, BadClaim> {
        if !egret_policy::is_sandbox_id(&self.sub) {
            return Err(BadClaim("sub"));
        }
        if !is_token_id(&self.jti) {
            return Err(BadClaim("jti"));
        }
        if self.src.iter().flatten().any(|text| strict_network(text).is_none()) {
            return Err(BadClaim("src"));
        }
        for (name, words) in [("workspace", &self.workspace), ("tool", &self.tool)] {
            if !words.as_deref().is_none_or(is_words) {
                return Err(BadClaim(name));
            }
        }
        self.limits.as_ref().map(|limits| limits.read().map(Arc::new)).transpose()
    }

    /// May the token be used from this address?
    #[must_use]
    pub fn permits_source(&self, source: std::net::IpAddr) -> bool {
        let holds = |text: &String| strict_network(text).is_some_and(|net| net.contains(&source));
        self.src.as_ref().is_none_or(|list| list.iter().any(holds))
    }
}

/// May this be the ID of a token: 1 to 128 visible ASCII characters?
#[must_use]
pub fn is_token_id(text: &str) -> bool {
    (1..=MAX_ID).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// May this be a `workspace` or a `tool`?
pub(super) fn is_words(text: &str) -> bool {
    text.len() <= MAX_WORDS && !text.chars().any(char::is_control)
}

fn size(text: &str) -> Option<Quota> {
    parse_quota(text, true)
}

fn value<T>(
    text: Option<&str>,
    name: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, BadClaim> {
    text.map(|text| parse(text).ok_or(BadClaim(name))).transpose()
}

/// An optional claim that must have its type where it stands.
pub(super) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// The same for one that must be an object.
pub(super) fn present_table<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    table(deserializer).map(Some)
}

/// An object. A struct alone would also be read from a list of its values in order.
pub(super) fn table<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    struct Table<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Table<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }

    deserializer.deserialize_map(Table(PhantomData))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use serde_json::{Value, json};

    use super::*;

    fn good() -> Value {
        json!({
            "sub": "build-7", "policy": "build", "aud": "egret", "exp": 2_000, "nbf": 1_000, "jti": "id-1",
            "src": ["10.0.0.0/8", "::1"], "workspace": "w", "tool": "t", "iat": 999,
            "limits": {"requests": "5/s burst 9", "connections": 3, "bytes": "1MiB/hour", "tunnel_idle": "5s"},
            "unknown": {"deep": [null]},
        })
    }

    fn read(value: &Value) -> Result<Option<Arc<Limits>>, String> {
        let claims: Claims = serde_json::from_str(&value.to_string()).map_err(|error| error.to_string())?;
        claims.check().map_err(|error| error.to_string())
    }

    #[test]
    fn good_claims() {
        let limits = read(&good()).unwrap().unwrap();
        assert_eq!(limits.connections, Some(3));
        assert_eq!(limits.requests.unwrap().burst.get(), 9);
        assert_eq!((limits.tunnel_lifetime, limits.domains), (None, None));
        let mut several = good();
        several["aud"] = json!(["other", "egret"]);
        let claims: Claims = serde_json::from_value(several).unwrap();
        assert!(claims.aud.names("egret") && !claims.aud.names("egre"));
    }

    #[test]
    fn required_claims() {
        for name in ["sub", "policy", "aud", "exp", "nbf", "jti"] {
            let mut claims = good();
            claims.as_object_mut().unwrap().remove(name);
            assert!(read(&claims).is_err(), "{name}");
        }
    }

    #[test]
    fn wrong_types_and_values() {
        let long = "x".repeat(129);
        for (pointer, value) in [
            ("/sub", json!(7)),
            ("/sub", json!("a/b")),
            ("/sub", json!("")),
            ("/policy", json!(null)),
            ("/aud", json!({"egret": true})),
            ("/exp", json!("2000")),
            ("/exp", json!(2000.5)),
            ("/exp", json!(-1)),
            ("/nbf", json!(null)),
            ("/iat", json!(null)),
            ("/jti", json!("")),
            ("/jti", json!("a b")),
            ("/jti", json!(long)),
            ("/src", json!(null)),
            ("/src", json!("10.0.0.0/8")),
            ("/src", json!(["10.0.0.1/8"])),
            ("/src", json!(["host"])),
            ("/workspace", json!(["w"])),
            ("/workspace", json!(long)),
            ("/tool", json!("a\nb")),
            ("/limits", json!("5/s")),
            ("/limits", json!([])),
            ("/limits", json!({"unknown": 1})),
            ("/limits/requests", json!(5)),
            ("/limits/requests", json!("0/s")),
            ("/limits/connections", json!("3")),
            ("/limits/connections", json!(0)),
            ("/limits/bytes", json!("1MiB")),
            ("/limits/tunnel_idle", json!("0s")),
        ] {
            let mut claims = good();
            *claims.pointer_mut(pointer).unwrap() = value.clone();
            assert!(read(&claims).is_err(), "{pointer} {value}");
        }
        let twice = good().to_string().replacen('{', "{\"sub\":\"other\",", 1);
        assert!(serde_json::from_str::<Claims>(&twice).is_err());
    }

    #[test]
    fn sources() {
        let mut claims: Claims = serde_json::from_value(good()).unwrap();
        for (address, fits) in [("10.1.2.3", true), ("11.0.0.1", false), ("::1", true), ("::2", false)] {
            assert_eq!(claims.permits_source(address.parse().unwrap()), fits, "{address}");
        }
        claims.src = Some(Vec::new());
        assert!(!claims.permits_source("10.1.2.3".parse().unwrap()), "an empty list permits nobody");
        claims.src = None;
        assert!(claims.permits_source("11.0.0.1".parse().unwrap()));
    }
}
