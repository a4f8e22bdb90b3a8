//! A place where a dial gets no answer at all.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, SockFilter, Socket, Type};

/// A listener that drops every SYN, so that a dial to it only times out.
#[derive(Debug)]
pub struct BlackHole {
    pub address: SocketAddr,
    socket: Socket,
}

impl BlackHole {
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
        socket.attach_filter(&[SockFilter::new(0x06, 0, 0, 0)])?; // return 0: keep nothing
        socket.listen(1)?;
        let address = socket.local_addr()?.as_socket().expect("bound to an IP address");
        Ok(Self { address, socket })
    }
}
