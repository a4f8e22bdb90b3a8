//! Ways out that egret itself wants on a command's behalf, with no client behind them. The order of
//! things is the same: decide, resolve, pin, dial. There is no server, and so no record: whoever runs
//! the command reads what it says.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use egret_policy::{Action, Client, Destination, Entry, Identity, Intent, Policy, Refusal, Route, Verdict};
use tokio::net::TcpStream;

use super::dns_reason;
use super::way::Walk;
use crate::chain::Chain;
use crate::dial::{Dialer, is_local};
use crate::resolve::Resolver;

/// What an errand is run with.
pub struct Errand {
    /// The operator's policy, whose denials hold.
    pub policy: Policy,
    /// Looks names up.
    pub resolver: Resolver,
    /// Opens connections.
    pub dialer: Dialer,
    /// Which way they go.
    pub chain: Chain,
    /// How long a parent may take to open a tunnel.
    pub patience: Duration,
}

impl Errand {
    /// Where a destination leads, if this policy lets it.
    ///
    /// # Errors
    /// The refusal.
    pub async fn look(&self, policy: &Arc<Policy>, name: &str, to: &Destination) -> Result<Route, Refusal> {
        let client = Client {
            sandbox: "errand".into(),
            policy: name.into(),
            identity: Identity::Listener,
            source: Ipv4Addr::LOCALHOST.into(),
        };
        let intent = Intent { client, entry: Entry::Proxy, destination: to.clone(), action: Action::Place };
        let grant = match policy.decide(&intent) {
            Verdict::Allow(grant) => grant,
            Verdict::Deny(refusal) => return Err(refusal),
        };
        let resolution = self
            .resolver
            .resolve(&grant)
            .await
            .map_err(|error| Refusal::new(dns_reason(&error)).with_detail(error.to_string()))?;
        let route = grant.pin(&resolution.into(), is_local)?;
        self.walk().keep_off_parent(to, route).await
    }

    /// Connects to one of a route's addresses; gives the connection and what already came on it.
    ///
    /// # Errors
    /// The refusal.
    pub async fn dial(&self, to: &Destination, route: &Route) -> Result<(TcpStream, Bytes), Refusal> {
        let dialled = self.walk().dial(to, route).await;
        dialled.map(|opened| (opened.stream, opened.early)).map_err(|error| error.refusal)
    }

    fn walk(&self) -> Walk<'_> {
        let Self { policy, chain, resolver, dialer, patience } = self;
        Walk { chain, policy, resolver, dialer, patience: *patience, service: None }
    }
}
