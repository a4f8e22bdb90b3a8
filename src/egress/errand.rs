//! Ways out that egret itself wants on a command's behalf, with no client behind them. The order of
//! things is the same: decide, resolve, pin, dial. There is no server, and so no record: whoever runs
//! the command reads what it says.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use egret_policy::{
    Action, Client, Destination, Entry, Host, Identity, Intent, PinnedAddr, Policy, Reason, Refusal, Route,
    Verdict,
};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::dns_reason;
use super::refuse::dial_reason;
use crate::chain::{Chain, Parent, Way};
use crate::dial::{ConfiguredAddr, Dialer, is_local};
use crate::forward::open_tunnel;
use crate::resolve::Resolver;

/// What an errand is run with.
pub struct Errand {
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
        let route = grant.pin(&resolution, is_local)?;
        let addresses: Vec<_> = route.addresses().iter().map(|pinned| pinned.socket_addr().ip()).collect();
        match self.chain.refuse_parent(to, &addresses) {
            Some(refusal) => Err(refusal),
            None => Ok(route),
        }
    }

    /// Connects to one of a route's addresses; gives the connection and what already came on it.
    ///
    /// # Errors
    /// The refusal.
    pub async fn dial(&self, to: &Destination, route: &Route) -> Result<(TcpStream, Bytes), Refusal> {
        let straight = |pinned: &PinnedAddr| self.chain.way(to, pinned.socket_addr().ip()) == Way::Direct;
        let (direct, through): (Vec<_>, Vec<_>) = route.addresses().iter().copied().partition(straight);
        if !direct.is_empty() || self.chain.parent().is_none() {
            match self.dialer.connect(&direct).await {
                Ok(connected) => return Ok((connected.stream, Bytes::new())),
                Err(error) if through.is_empty() => {
                    return Err(Refusal::new(dial_reason(error.cause)).with_detail(error.to_string()));
                }
                Err(_) => {}
            }
        }
        let mut last = Refusal::new(Reason::ConnectTimeout);
        if let Some(parent) = self.chain.parent() {
            for target in self.dialer.in_order(&through) {
                last = match timeout(self.patience, self.tunnel(parent, target)).await {
                    Ok(Ok(opened)) => return Ok(opened),
                    Ok(Err(cause)) => Refusal::new(Reason::ConnectUnroutable).with_detail(cause),
                    Err(_) => Refusal::new(Reason::ConnectTimeout).with_detail("no tunnel in time"),
                };
            }
        }
        Err(last)
    }

    async fn tunnel(&self, parent: &Parent, target: PinnedAddr) -> Result<(TcpStream, Bytes), String> {
        let addresses: Vec<IpAddr> = match parent.host() {
            Host::Address(address) => vec![*address],
            Host::Name(name) => {
                let found = self.resolver.lookup(name.as_str()).await;
                found.map_err(|error| format!("the parent proxy: {error}"))?.addresses.to_vec()
            }
        };
        let placed =
            addresses.into_iter().map(|address| SocketAddr::new(address.to_canonical(), parent.port()));
        let placed: Vec<_> = placed.map(ConfiguredAddr::new).collect();
        let stream = self.dialer.connect_configured(&placed).await;
        let stream = stream.map_err(|error| format!("the parent proxy: {error}"))?;
        open_tunnel(stream, target, parent.fields())
            .await
            .map_err(|error| format!("the parent proxy: {error}"))
    }
}
