//! Who sends a request: by its credentials alone if it has any, else by the certificate of its
//! connection, else by its source address.
//!
//! All are judged anew for every request. Bad ones never fall back to what comes after them, and
//! nothing of credentials is logged, recorded or told to the client.

mod certificate;
mod claims;
mod credentials;
mod guesses;
mod journal;
mod key;
mod registry;
mod revocations;
mod token;
mod trust;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwapOption;
use egret_policy::{Certificate, Client, Identity, Policy, Reason, Refusal};

pub use certificate::{SANDBOX_URI, UnreadableCertificate, parse, read_certificate, sandbox_of, times};
pub use claims::{Audience, BadClaim, Claims, LimitClaims, is_token_id};
pub use credentials::{Credentials, Unreadable, login_of};
use guesses::Guesses;
pub use key::{KeyError, PublicKey, SigningKey};
pub use registry::{Entry, MOST_REGISTERED, Put, Registry, RegistryError, Snapshot, Wanted, WantedBody};
pub use revocations::{Revocation, Revocations, RevocationsError};
pub use token::{MAX_LIFETIME, MAX_TOKEN, TokenError, TokenKeys, sign, unverified};
pub use trust::{Trust, TrustError};

/// Why a request has no client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unidentified {
    /// `identity_required`, `identity_rejected` or `rate_limited`.
    pub refusal: Refusal,
    /// When to try again, of `rate_limited`.
    pub retry_after: Option<Duration>,
}

impl From<Refusal> for Unidentified {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, retry_after: None }
    }
}

/// What identifies clients beside the policy's own table of sources.
#[derive(Debug)]
pub struct Identities {
    /// `None` while tokens are off.
    keys: ArcSwapOption<TokenKeys>,
    /// `None` while no client certificate is believed.
    trust: ArcSwapOption<Trust>,
    revocations: Revocations,
    /// Sandboxes that were registered while the process runs.
    pub registry: Registry,
    guesses: Guesses,
}

impl Identities {
    /// With keys, if tokens are on, whom certificates are believed from, and what was revoked and
    /// registered before.
    #[must_use]
    pub fn new(
        keys: Option<TokenKeys>,
        trust: Option<Trust>,
        revocations: Revocations,
        registry: Registry,
    ) -> Self {
        let (keys, trust) = (ArcSwapOption::from_pointee(keys), ArcSwapOption::from_pointee(trust));
        Self { keys, trust, revocations, registry, guesses: Guesses::default() }
    }

    /// Puts other keys in force.
    pub fn replace_keys(&self, keys: Option<TokenKeys>) {
        self.keys.store(keys.map(Arc::new));
    }

    /// Believes others from now on.
    pub fn replace_trust(&self, trust: Option<Trust>) {
        self.trust.store(trust.map(Arc::new));
    }

    /// Are there keys that tokens are verified with?
    #[must_use]
    pub fn tokens_are_on(&self) -> bool {
        self.keys.load().is_some()
    }

    /// Who sends a request with these credentials, as read, from this address, over a connection
    /// with this certificate.
    ///
    /// # Errors
    /// Nothing identifies the client, or its certificate or its credentials are bad.
    pub fn identify(
        &self,
        policy: &Policy,
        source: IpAddr,
        certificate: Option<&Arc<Certificate>>,
        credentials: Result<Option<Credentials>, Unreadable>,
    ) -> Result<Client, Unidentified> {
        let source = source.to_canonical();
        if let Some(certificate) = certificate {
            self.check_certificate(certificate, now())?;
        }
        let credentials = match credentials {
            Ok(None) => return Ok(self.identify_connection(policy, source, certificate)?),
            Ok(Some(credentials)) => Ok(credentials),
            Err(unreadable) => Err(unreadable),
        };
        let Some(keys) = self.keys.load_full() else {
            return Err(rejected("credentials are not accepted here").into());
        };
        let sent = credentials.as_ref().ok().map(|credentials| credentials.token.as_str());
        let started = Instant::now();
        if let Err(left) = self.guesses.admit(source, sent, started) {
            let refusal = Refusal::new(Reason::RateLimited).with_detail("too many bad credentials");
            return Err(Unidentified { refusal, retry_after: Some(left) });
        }
        let judged = match credentials {
            Ok(credentials) => {
                let judged = self.judge(&keys, policy, &credentials, source);
                judged.and_then(|client| agree(client, certificate)).map(|client| (client, credentials))
            }
            Err(unreadable) => Err(rejected(unreadable.to_string())),
        };
        match judged {
            Ok((client, credentials)) => {
                self.registry.used_by_token(&client.sandbox);
                self.guesses.know(source, &credentials.token, started);
                Ok(client)
            }
            Err(refusal) => {
                self.guesses.count(source, started);
                Err(refusal.into())
            }
        }
    }

    /// Who a connection is as long as no credentials are sent over it.
    ///
    /// # Errors
    /// Nothing identifies it, its certificate is for no sandbox here, or what was registered for its
    /// address is not permitted.
    pub fn identify_connection(
        &self,
        policy: &Policy,
        source: IpAddr,
        certificate: Option<&Arc<Certificate>>,
    ) -> Result<Client, Refusal> {
        if let Some(certificate) = certificate {
            return policy.sandboxes.identify_certificate(source, certificate);
        }
        let client = policy.sandboxes.identify(source, &self.registry.snapshot().registered)?;
        if matches!(client.identity, Identity::Registered(_)) {
            self.registry.used(&client.sandbox);
        }
        Ok(client)
    }

    fn judge(
        &self,
        keys: &TokenKeys,
        policy: &Policy,
        credentials: &Credentials,
        source: IpAddr,
    ) -> Result<Client, Refusal> {
        let identified = keys.identify(credentials, source, now());
        let client = identified.map_err(|(error, claims)| match claims {
            // Signed by a key in force, so these words are the operator's.
            Some(claims) => rejected(format!("{error}: {}", whose(&claims.sub, &claims.jti))),
            None => rejected(error.to_string()),
        })?;
        let refuse = |error: TokenError| {
            let id = client.token().map(|token| &*token.id).unwrap_or_default();
            Err(rejected(format!("{error}: {}", whose(&client.sandbox, id))))
        };
        if policy.effective(&client).is_none() {
            return refuse(TokenError::Policy);
        }
        if self.is_revoked(&client) {
            return refuse(TokenError::Revoked);
        }
        Ok(client)
    }

    /// Is this certificate believed at this time, in seconds since 1970?
    fn check_certificate(&self, certificate: &Certificate, now: u64) -> Result<(), Refusal> {
        if !(certificate.begins..=certificate.expires).contains(&now) {
            return Err(rejected("the certificate has expired"));
        }
        if !self.believe(certificate, now) {
            return Err(rejected("the certificate is no longer believed, or has been revoked"));
        }
        Ok(())
    }

    fn believe(&self, certificate: &Certificate, at: u64) -> bool {
        self.trust.load().as_ref().is_some_and(|trust| trust.holds(certificate, at))
    }

    fn still_believe(&self, certificate: &Certificate) -> bool {
        self.believe(certificate, certificate.verified)
    }

    /// May a client that was identified go on? Its token and its certificate must not have been
    /// revoked since, and the key and the authority that signed them must still be in force. That
    /// they have expired ends nothing. What was registered must still be.
    #[must_use]
    pub fn still_hold(&self, client: &Client) -> bool {
        match &client.identity {
            Identity::Source | Identity::Listener => true,
            Identity::Registered(known) => self.registry.snapshot().holds(known, client.source),
            Identity::Cert(certificate) => self.still_believe(certificate),
            Identity::Token(token) => {
                self.keys.load().as_ref().is_some_and(|keys| keys.trust(token))
                    && !self.is_revoked(client)
                    && token.over.as_ref().is_none_or(|certificate| self.still_believe(certificate))
            }
        }
    }

    /// Revokes tokens, and returns when that is on the disk. Blocks.
    ///
    /// # Errors
    /// It counts, but only until this process ends: it could not be written down.
    pub fn revoke(&self, what: Revocation) -> Result<(), RevocationsError> {
        self.revocations.add(what, now())
    }

    fn is_revoked(&self, client: &Client) -> bool {
        client.token().is_some_and(|token| self.revocations.cover(&client.sandbox, token))
    }
}

/// A token that comes over a connection with a certificate has to be for the same sandbox: one that
/// was stolen from another sandbox is not.
fn agree(client: Client, certificate: Option<&Arc<Certificate>>) -> Result<Client, Refusal> {
    match certificate {
        None => return Ok(client),
        Some(certificate) if certificate.sandbox.as_ref() == Some(&client.sandbox) => {
            return Ok(client.over(certificate));
        }
        Some(_) => {}
    }
    let id = client.token().map(|token| &*token.id).unwrap_or_default();
    let whose = whose(&client.sandbox, id);
    Err(rejected(format!("the token and the certificate are for different sandboxes: {whose}")))
}

fn rejected(detail: impl Into<Arc<str>>) -> Refusal {
    Refusal::new(Reason::IdentityRejected).with_detail(detail)
}

fn whose(sandbox: &str, id: &str) -> String {
    format!("sandbox {}, token {}", sandbox.escape_debug(), id.escape_debug())
}

/// Seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    // A clock before 1970 leaves no token valid.
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
