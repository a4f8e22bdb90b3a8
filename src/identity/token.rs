//! Tokens: compact JWS with EdDSA over Ed25519 (RFC 7515 section 7.1, RFC 8037), and nothing else.
//!
//! The signature is verified over the octets as they came, before any of them is decoded for its
//! meaning. The keys decide the algorithm; the header can only agree.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use egret_policy::{Client, Identity, Token};
use serde::Deserialize;

use super::claims::{BadClaim, Claims, present, table};
use super::credentials::Credentials;
use super::key::{KeyError, PublicKey, SigningKey};

/// Most octets of a token.
pub const MAX_TOKEN: usize = 4096;
/// The longest that a token may be valid, in seconds: 30 days. A revocation is kept as long.
pub const MAX_LIFETIME: u64 = 30 * 86_400;
/// How far the clock of whoever issues tokens may be ahead, in seconds.
const CLOCK_LEEWAY: u64 = 5;

/// Why a token is refused. For the audit record, never for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TokenError {
    #[error("the token is not three parts of base64url")]
    Shape,
    #[error("no key in force signed the token as it is")]
    Signature,
    #[error("the header is not that of a JWT signed with EdDSA")]
    Header,
    #[error("a claim is missing, stands twice or has the wrong type")]
    Claims,
    #[error(transparent)]
    Value(#[from] BadClaim),
    #[error("the token is for another audience")]
    Audience,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    TooEarly,
    #[error("the token is valid for longer than 30 days")]
    Lifetime,
    #[error("the token may not be used from this address")]
    Source,
    #[error("the user is not the token's sandbox")]
    User,
    #[error("the token has been revoked")]
    Revoked,
    #[error("the token names a policy that does not exist")]
    Policy,
}

/// The part of a header that matters. `crit` asks for what a recipient must understand, and we
/// understand no extension.
#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default, deserialize_with = "present")]
    typ: Option<String>,
    #[serde(default, deserialize_with = "present")]
    crit: Option<serde::de::IgnoredAny>,
}

/// What tokens are verified with.
#[derive(Debug, Clone)]
pub struct TokenKeys {
    keys: Vec<PublicKey>,
    audience: Arc<str>,
}

impl TokenKeys {
    /// Trusts the holders of any of these keys, for tokens to this audience.
    #[must_use]
    pub fn new(keys: Vec<PublicKey>, audience: &str) -> Self {
        Self { keys, audience: audience.into() }
    }

    /// Would a token with this key and for this audience still be accepted?
    #[must_use]
    pub fn trust(&self, token: &Token) -> bool {
        token.audience == self.audience && self.keys.iter().any(|key| *key.bytes() == token.key)
    }

    /// The claims of a token that one of the keys signed, and that key. Nothing else is checked.
    ///
    /// # Errors
    /// The token is malformed, or not signed by any of the keys.
    pub fn open(&self, token: &str) -> Result<(Claims, &PublicKey), TokenError> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Shape)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Shape)?;
        // Strict: every token has one spelling, which is what was signed.
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Shape);
        let signature = decode(signature)?;
        let key = self.keys.iter().find(|key| key.verifies(signed.as_bytes(), &signature));
        let key = key.ok_or(TokenError::Signature)?;
        let header: Header = parse(&decode(header)?).ok_or(TokenError::Header)?;
        let is_jwt = header.typ.is_none_or(|typ| typ.eq_ignore_ascii_case("JWT"));
        if header.alg != "EdDSA" || !is_jwt || header.crit.is_some() {
            return Err(TokenError::Header);
        }
        let claims = parse(&decode(claims)?).ok_or(TokenError::Claims)?;
        Ok((claims, key))
    }

    /// Whom credentials from this address identify at this time, in seconds since 1970. Whether the
    /// policy exists and whether the token was revoked is not looked at.
    ///
    /// # Errors
    /// The first thing that is wrong, with the claims if the signature holds.
    pub fn identify(
        &self,
        credentials: &Credentials,
        source: IpAddr,
        now: u64,
    ) -> Result<Client, (TokenError, Option<Box<Claims>>)> {
        let (claims, key) = self.open(&credentials.token).map_err(|error| (error, None))?;
        match self.judge(&claims, key, credentials.user.as_deref(), source, now) {
            Ok(client) => Ok(client),
            Err(error) => Err((error, Some(Box::new(claims)))),
        }
    }

    fn judge(
        &self,
        claims: &Claims,
        key: &PublicKey,
        user: Option<&str>,
        source: IpAddr,
        now: u64,
    ) -> Result<Client, TokenError> {
        let limits = claims.check()?;
        if !claims.aud.names(&self.audience) {
            return Err(TokenError::Audience);
        }
        check_times(claims, now)?;
        if !claims.permits_source(source) {
            return Err(TokenError::Source);
        }
        if user.is_some_and(|user| user != claims.sub) {
            return Err(TokenError::User);
        }
        let token = Token {
            id: claims.jti.as_str().into(),
            issued: claims.iat,
            key: *key.bytes(),
            audience: Arc::clone(&self.audience),
            workspace: claims.workspace.as_deref().map(Arc::from),
            tool: claims.tool.as_deref().map(Arc::from),
            limits,
            over: None,
        };
        Ok(Client {
            sandbox: claims.sub.as_str().into(),
            policy: claims.policy.as_str().into(),
            identity: Identity::Token(Arc::new(token)),
            source,
        })
    }
}

/// Is the token valid now? Its end is exact; its beginning forgives a clock that is ahead.
fn check_times(claims: &Claims, now: u64) -> Result<(), TokenError> {
    if now >= claims.exp {
        return Err(TokenError::Expired);
    }
    let begin = claims.iat.unwrap_or(claims.nbf);
    if now.saturating_add(CLOCK_LEEWAY) < claims.nbf.max(begin) {
        return Err(TokenError::TooEarly);
    }
    // From the earlier of the two, so that a revocation outlives whatever was issued before it.
    if claims.exp.saturating_sub(claims.nbf.min(begin)) > MAX_LIFETIME {
        return Err(TokenError::Lifetime);
    }
    Ok(())
}

/// Signs claims.
///
/// # Errors
/// The library refuses to.
pub fn sign(claims: &Claims, key: &SigningKey) -> Result<String, KeyError> {
    let claims = serde_json::to_vec(claims).map_err(|_| KeyError::Failed)?;
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA","typ":"JWT"}"#);
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes())?);
    Ok(format!("{signed}.{signature}"))
}

/// Header and claims of a token as JSON, for a person to look at. Nothing of it is verified.
#[must_use]
pub fn unverified(token: &str) -> Option<(serde_json::Value, serde_json::Value)> {
    let mut parts = token.split('.').map(|part| URL_SAFE_NO_PAD.decode(part).ok());
    let header = parse(&parts.next()??)?;
    let claims = parse(&parts.next()??)?;
    Some((header, claims))
}

/// One JSON object in UTF-8, as header and claims have to be (RFC 7515 section 5.2, RFC 7519 section
/// 7.2), and nothing behind it.
fn parse<T: for<'de> Deserialize<'de>>(json: &[u8]) -> Option<T> {
    let mut reader = serde_json::Deserializer::from_str(std::str::from_utf8(json).ok()?);
    let value = table(&mut reader).ok()?;
    reader.end().ok()?;
    Some(value)
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
