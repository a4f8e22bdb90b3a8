//! Every packet that gets outside, whoever it is for and whether or not somebody answers.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Mutex;

use socket2::{Domain, Protocol, Socket, Type};

const HEADER: usize = 14; // Ethernet

/// A packet as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    pub to: IpAddr,
    /// The IP protocol: 1, 6, 17 or 58.
    pub protocol: u8,
}

/// A packet socket on all interfaces of the namespace that it was opened in.
#[derive(Debug)]
pub struct Watch {
    socket: Socket,
    seen: Mutex<Vec<Packet>>,
}

impl Watch {
    pub fn open() -> Self {
        let every_protocol = Protocol::from(i32::from(3_u16.to_be())); // ETH_P_ALL
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(every_protocol)).unwrap();
        socket.set_recv_buffer_size(8 << 20).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket, seen: Mutex::default() }
    }

    /// What was seen so far.
    pub fn seen(&self) -> Vec<Packet> {
        let mut seen = self.seen.lock().unwrap();
        let mut frame = [0_u8; 128];
        while let Ok(length) = (&self.socket).read(&mut frame) {
            seen.extend(parse(&frame[..length]));
        }
        seen.clone()
    }

    /// Packets to an address by this protocol.
    pub fn count(&self, to: &str, protocol: u8) -> usize {
        let wanted = Packet { to: to.parse().unwrap(), protocol };
        self.seen().into_iter().filter(|packet| *packet == wanted).count()
    }
}

fn parse(frame: &[u8]) -> Option<Packet> {
    let ip = frame.get(HEADER..)?;
    match frame.get(12..HEADER)? {
        [0x08, 0x00] => {
            let to = Ipv4Addr::from(<[u8; 4]>::try_from(ip.get(16..20)?).ok()?);
            Some(Packet { to: to.into(), protocol: *ip.get(9)? })
        }
        [0x86, 0xdd] => {
            let to = Ipv6Addr::from(<[u8; 16]>::try_from(ip.get(24..40)?).ok()?);
            Some(Packet { to: to.into(), protocol: *ip.get(6)? })
        }
        _ => None,
    }
}
