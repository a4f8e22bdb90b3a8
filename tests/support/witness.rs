//! Sees every connection attempt on the wire, also those that nobody accepts.

use std::collections::HashSet;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;

use socket2::{Domain, Protocol, SockFilter, Socket, Type};

const HEADER: usize = 14; // Ethernet; the loopback has one too
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// Classic BPF that keeps TCP segments with SYN and without ACK, IPv4 or IPv6.
///
/// Without it a busy tunnel would fill the socket's queue and hide a dial.
const FILTER: [(u16, u8, u8, u32); 15] = [
    (0x28, 0, 0, 12),           //  0 load the ether type
    (0x15, 0, 5, 0x0800),       //  1 IPv4, else to 7
    (0x30, 0, 0, 23),           //  2 load the protocol
    (0x15, 0, 9, 6),            //  3 TCP, else drop
    (0xb1, 0, 0, 14),           //  4 X = length of the IPv4 header
    (0x50, 0, 0, 14 + 13),      //  5 load the TCP flags
    (0x05, 0, 0, 4),            //  6 go to 11
    (0x15, 0, 5, 0x86dd),       //  7 IPv6, else drop
    (0x30, 0, 0, 20),           //  8 load the next header
    (0x15, 0, 3, 6),            //  9 TCP, else drop
    (0x30, 0, 0, 14 + 40 + 13), // 10 load the TCP flags
    (0x54, 0, 0, 0x12),         // 11 SYN and ACK alone
    (0x15, 1, 0, 0x02),         // 12 SYN without ACK: keep
    (0x06, 0, 0, 0),            // 13 drop
    (0x06, 0, 0, 128),          // 14 keep
];

/// A packet socket on all interfaces of the namespace, which is the loopback.
#[derive(Debug)]
pub struct Witness {
    state: Mutex<State>,
    clients: Vec<IpAddr>,
    ignored: SocketAddr,
}

#[derive(Debug)]
struct State {
    socket: Socket,
    seen: HashSet<(u16, SocketAddr)>,
    dials: Vec<SocketAddr>,
}

impl Witness {
    /// Watches from now on. Dials *of* `clients` and dials *to* `ignored` don't count:
    /// the first are the test's own, the second the DNS server over TCP.
    pub fn open(clients: Vec<IpAddr>, ignored: SocketAddr) -> io::Result<Self> {
        let every_protocol = Protocol::from(i32::from(3_u16.to_be())); // ETH_P_ALL
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(every_protocol))?;
        socket.attach_filter(&FILTER.map(|(code, jt, jf, k)| SockFilter::new(code, jt, jf, k)))?;
        socket.set_recv_buffer_size(8 << 20)?;
        socket.set_nonblocking(true)?;
        let state = State { socket, seen: HashSet::new(), dials: Vec::new() };
        Ok(Self { state: Mutex::new(state), clients, ignored })
    }

    /// Forgets what was seen so far.
    pub fn clear(&self) {
        self.dials();
        let mut state = self.state.lock().unwrap();
        state.seen.clear();
        state.dials.clear();
    }

    /// Each dial since `clear`, in order; a retransmission is not a second dial.
    pub fn dials(&self) -> Vec<SocketAddr> {
        let mut state = self.state.lock().unwrap();
        let mut frame = [0_u8; 128];
        while let Ok(length) = (&state.socket).read(&mut frame) {
            let Some((source, target)) = parse_syn(&frame[..length]) else { continue };
            if self.clients.contains(&source.ip()) || target == self.ignored {
                continue;
            }
            if state.seen.insert((source.port(), target)) {
                state.dials.push(target);
            }
        }
        state.dials.clone()
    }
}

/// Source and destination of a SYN, or nothing for any other frame.
fn parse_syn(frame: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let ip = frame.get(HEADER..)?;
    let (source, target, tcp): (IpAddr, IpAddr, &[u8]) = match frame.get(12..HEADER)? {
        [0x08, 0x00] => {
            let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(ip.get(at..at + 4)?).ok()?));
            let length = usize::from(ip.first()? & 15) * 4;
            (address(12)?.into(), address(16)?.into(), ip.get(length..)?)
        }
        [0x86, 0xdd] => {
            let address = |at: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(ip.get(at..at + 16)?).ok()?));
            (address(8)?.into(), address(24)?.into(), ip.get(40..)?)
        }
        _ => return None,
    };
    if tcp.get(13)? & (SYN | ACK) != SYN {
        return None;
    }
    let port = |at: usize| Some(u16::from_be_bytes(<[u8; 2]>::try_from(tcp.get(at..at + 2)?).ok()?));
    Some((SocketAddr::new(source, port(0)?), SocketAddr::new(target, port(2)?)))
}
