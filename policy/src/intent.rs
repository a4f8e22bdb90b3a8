//! A question put to the policy: who asks, by which way, for what. Harmless to make.

use std::net::IpAddr;
use std::sync::Arc;

use crate::destination::Destination;
use crate::limits::Limits;
use crate::registered::Registration;

/// How a client was identified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// By its source address.
    Source,
    /// By its source address, which was registered while the proxy runs.
    Registered(Arc<Registration>),
    /// By a token that was verified for this request.
    Token(Arc<Token>),
    /// By the certificate of its TLS connection.
    Cert(Arc<Certificate>),
    /// By nothing but having reached the listener (`anonymous`).
    Listener,
}

/// What a verified token says beside whom it is for and which policy holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Its ID (`jti`), by which it can be revoked.
    pub id: Arc<str>,
    /// When it was issued, in seconds since 1970, if it says so.
    pub issued: Option<u64>,
    /// The Ed25519 public key that its signature was verified with.
    pub key: [u8; 32],
    /// The audience for which it was accepted.
    pub audience: Arc<str>,
    /// Free words for the audit record.
    pub workspace: Option<Arc<str>>,
    /// Free words for the audit record.
    pub tool: Option<Arc<str>>,
    /// Limits that hold beside those of the policy, for this token alone.
    pub limits: Option<Arc<Limits>>,
    /// The certificate of the connection that it came over, for the same sandbox.
    pub over: Option<Arc<Certificate>>,
}

/// What a client certificate says, and what it was verified with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The sandbox ID in it; `None` if it names none, or more than one.
    pub sandbox: Option<Arc<str>>,
    /// It and the certificates that the client sent with it, as DER, its own first.
    pub chain: Vec<Vec<u8>>,
    /// The first second since 1970 from which all of them are valid.
    pub begins: u64,
    /// The last second since 1970 until which all of them are valid.
    pub expires: u64,
    /// When it was verified, in seconds since 1970.
    pub verified: u64,
    /// A digest of the authorities and revocations that it was verified with.
    pub trust: [u8; 32],
}

impl Identity {
    /// The word for the audit record.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Source | Self::Registered(_) => "source",
            Self::Token(_) => "token",
            Self::Cert(_) => "cert",
            Self::Listener => "listener",
        }
    }
}

/// The sandbox that asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// The sandbox ID.
    pub sandbox: Arc<str>,
    /// The name of the policy that holds for it.
    pub policy: Arc<str>,
    /// How that is known.
    pub identity: Identity,
    /// The client's address.
    pub source: IpAddr,
}

impl Client {
    /// The token that identified it, if one did.
    #[must_use]
    pub const fn token(&self) -> Option<&Arc<Token>> {
        match &self.identity {
            Identity::Token(token) => Some(token),
            Identity::Source | Identity::Registered(_) | Identity::Cert(_) | Identity::Listener => None,
        }
    }

    /// The same, whose token came over a connection with this certificate.
    #[must_use]
    pub fn over(self, certificate: &Arc<Certificate>) -> Self {
        match self.identity {
            Identity::Token(token) => {
                let over = Some(Arc::clone(certificate));
                let token = Token { over, ..Arc::unwrap_or_clone(token) };
                Self { identity: Identity::Token(Arc::new(token)), ..self }
            }
            Identity::Source | Identity::Registered(_) | Identity::Cert(_) | Identity::Listener => self,
        }
    }

    /// The same by its address alone. What keeps a registration counts as a use of it.
    #[must_use]
    pub fn without_registration(self) -> Self {
        match self.identity {
            Identity::Registered(_) => Self { identity: Identity::Source, ..self },
            Identity::Source | Identity::Token(_) | Identity::Cert(_) | Identity::Listener => self,
        }
    }

    /// Limits of its own, beside those of the policy.
    #[must_use]
    pub fn limits(&self) -> Option<&Arc<Limits>> {
        match &self.identity {
            Identity::Token(token) => token.limits.as_ref(),
            Identity::Registered(registration) => registration.limits.as_ref(),
            Identity::Source | Identity::Cert(_) | Identity::Listener => None,
        }
    }

    /// Free words for the audit record: its workspace and its tool.
    #[must_use]
    pub fn words(&self) -> (Option<&Arc<str>>, Option<&Arc<str>>) {
        match &self.identity {
            Identity::Token(token) => (token.workspace.as_ref(), token.tool.as_ref()),
            Identity::Registered(known) => (known.workspace.as_ref(), known.tool.as_ref()),
            Identity::Source | Identity::Cert(_) | Identity::Listener => (None, None),
        }
    }
}

/// What shall be done at the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Open a tunnel whose inside is not read.
    Tunnel,
    /// Reach it over HTTP by some method and path: what is asked of a redirect's target.
    Place,
    /// Forward one request.
    Request {
        /// The method as sent.
        method: Arc<str>,
        /// The path as sent, without the query.
        path: Arc<[u8]>,
    },
}

/// The way in by which a question came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entry {
    /// The HTTP proxy: CONNECT and forwarded requests.
    Proxy,
    /// SOCKS version 5 (RFC 1928).
    Socks,
    /// A connection that the system diverted to egret; its client knows of no proxy.
    Transparent,
    /// A question for a name (RFC 1035).
    Dns,
}

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Who asks.
    pub client: Client,
    /// By which way in.
    pub entry: Entry,
    /// For which place.
    pub destination: Destination,
    /// To do what.
    pub action: Action,
}
