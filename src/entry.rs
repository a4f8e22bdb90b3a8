//! Ways in: each reads one protocol from clients and turns it into intents.
//!
//! An entry talks to [`crate::egress`] and to its client, to nothing else.

mod connect;
pub mod dns;
mod exchange;
pub mod http;
mod outbound;
pub mod question;
mod request;
mod respond;
mod response;
pub mod socks;
pub mod tls;
pub mod transparent;
mod wire;

use std::sync::Arc;

use crate::egress::Egress;

pub use respond::proxy_status_name;

/// What an entry needs to serve clients.
#[derive(Clone)]
pub struct Gate {
    /// The way out.
    pub egress: Arc<Egress>,
    /// This instance's pseudonym.
    pub name: Arc<str>,
}
