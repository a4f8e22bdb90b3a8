//! A question put to the policy: who asks, by which way, for what. Harmless to make.

use std::net::IpAddr;
use std::sync::Arc;

use crate::destination::Destination;

/// How a client was identified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// By its source address.
    Source,
    /// By nothing but having reached the listener (`anonymous`).
    Listener,
}

impl Identity {
    /// The word for the audit record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Source => "source",
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
        method: Box<str>,
        /// The path as sent, without the query.
        path: Box<[u8]>,
    },
}

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Who asks.
    pub client: Client,
    /// For which place.
    pub destination: Destination,
    /// To do what.
    pub action: Action,
}
