//! The client's end of a connection, and whether the system diverted it to this process.

use std::net::{IpAddr, SocketAddr};

use egret_policy::Entry;

/// Where a client is, and where it believes to be connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its address and port.
    pub address: SocketAddr,
    /// Where its connection was meant to go, if it was diverted. Recorded and compared; what is
    /// dialled is decided and resolved like any other destination.
    pub original: Option<SocketAddr>,
}

impl Peer {
    /// A client whose connection was meant for `original`.
    #[must_use]
    pub const fn diverted(address: SocketAddr, original: SocketAddr) -> Self {
        Self { address, original: Some(original) }
    }

    /// The address by which it may be known.
    #[must_use]
    pub const fn ip(&self) -> IpAddr {
        self.address.ip()
    }

    /// The way in of a client that speaks HTTP/1.
    #[must_use]
    pub const fn http_entry(&self) -> Entry {
        if self.original.is_some() { Entry::Transparent } else { Entry::Proxy }
    }
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self { address, original: None }
    }
}
