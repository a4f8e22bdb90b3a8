//! Where egret listens in the namespace of a command, and what is spoken there. The sockets are opened
//! inside and served outside; nothing is ever connected from here.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;

use crate::server::{Door, bind_datagrams, listen};

/// The proxy's port. The namespace is new, so nobody has it.
const PROXY: u16 = 3128;
/// Where connections come that were meant to go elsewhere.
const DIVERTED: u16 = 3131;
/// Where names are asked for: who finds no resolver named asks at this port of this address too.
const NAMES: u16 = 53;
const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// What a resolver's configuration says inside.
pub const RESOLV_CONF: &str = "# Made by `egret run`.\nnameserver 127.0.0.1\n";

/// Where connections are diverted to, in each family.
#[must_use]
pub const fn diverted_to() -> [SocketAddr; 2] {
    [SocketAddr::new(V4, DIVERTED), SocketAddr::new(V6, DIVERTED)]
}

/// The sockets of one run.
#[derive(Debug, Default)]
pub struct Doors {
    /// Where connections come in, and what they speak.
    pub listeners: Vec<(TcpListener, Door)>,
    /// Where names are asked for in datagrams.
    pub datagrams: Vec<UdpSocket>,
}

/// Opens them, in the namespace of this process. Where there is no IPv6, there are fewer.
///
/// # Errors
/// One can't be opened; the text says which.
pub(super) fn open(transparent: bool) -> Result<Vec<OwnedFd>, String> {
    let told = |address: SocketAddr| {
        move |error: io::Error| format!("{address} in the namespace can't be listened on: {error}")
    };
    let mut sockets = Vec::new();
    let mut opened = |ip, port, needed: bool| {
        let address = SocketAddr::new(ip, port);
        match listen(address, door(port)) {
            Ok(listener) => sockets.push(OwnedFd::from(listener)),
            Err(error) if needed => return Err(told(address)(error)),
            Err(_) => {}
        }
        Ok(())
    };
    opened(V4, PROXY, true)?;
    opened(V6, PROXY, false)?;
    if transparent {
        opened(V4, DIVERTED, true)?;
        opened(V6, DIVERTED, false)?;
        opened(V4, NAMES, true)?;
        let names = SocketAddr::new(V4, NAMES);
        sockets.push(bind_datagrams(names).map_err(told(names))?.into());
    }
    Ok(sockets)
}

/// Tells them apart again.
///
/// # Errors
/// One is no socket.
pub(super) fn sort(sockets: Vec<OwnedFd>) -> io::Result<Doors> {
    let mut doors = Doors::default();
    for socket in sockets {
        if socket_type(&socket)? == SocketType::DGRAM {
            doors.datagrams.push(socket.into());
            continue;
        }
        let listener = TcpListener::from(socket);
        let door = door(listener.local_addr()?.port());
        doors.listeners.push((listener, door));
    }
    Ok(doors)
}

/// What is spoken at a port.
const fn door(port: u16) -> Door {
    match port {
        NAMES => Door::Dns,
        DIVERTED => Door::Transparent,
        _ => Door::Plain,
    }
}
