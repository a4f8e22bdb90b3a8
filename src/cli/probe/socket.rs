//! Sockets past the proxy, to see whether there is a way: the one place beside `src/dial.rs` that
//! opens any, because this tests the sandbox and carries no traffic of anybody.
//!
//! Sends nothing but questions, and judges no answer.
#![allow(clippy::disallowed_methods, reason = "the probe tries what a sandbox must not be able to")]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket, UnixStream};
use tokio::time::timeout;

use super::check::Kind;
use super::packet;
use super::target::{Target, Way};

/// How often a datagram is sent while nothing answers.
const TRIES: u32 = 3;
/// How long the kernel may look for hosts on the link.
const LOOKED_FOR: Duration = Duration::from_secs(1);
/// What a host that answers DNS is asked for.
const NAME: &str = "example.com";
/// What something on an unknown port is sent.
const DATAGRAM: &[u8] = b"egret probe\n";

/// How an attempt ended, in short and in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reach {
    pub(super) kind: Kind,
    pub(super) detail: String,
}

impl Reach {
    pub(super) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

impl From<io::Error> for Reach {
    fn from(error: io::Error) -> Self {
        Self::new(kind(&error), error.to_string())
    }
}

/// What an error of the system says about the way there.
fn kind(error: &io::Error) -> Kind {
    use io::ErrorKind as E;
    // In TLS 1.3 a server judges a client's certificate after the client's part of the handshake.
    if error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) {
        return Kind::Handshake;
    }
    match error.kind() {
        E::ConnectionRefused | E::ConnectionReset | E::ConnectionAborted => Kind::Refused,
        // Without any address of the family there is no way either.
        E::NetworkUnreachable | E::HostUnreachable | E::NetworkDown | E::AddrNotAvailable => {
            Kind::Unreachable
        }
        E::TimedOut => Kind::TimedOut,
        E::PermissionDenied => Kind::Permission,
        _ if error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error()) => Kind::Unreachable,
        _ => Kind::Other,
    }
}

/// Tries a target.
pub(super) async fn reach(target: &Target, patience: Duration) -> Reach {
    let Target { way, address } = *target;
    let id = number();
    match way {
        Way::Tcp => match connect(address, patience).await {
            Ok(_) => Reach::new(Kind::Reached, "connected"),
            Err(reach) => reach,
        },
        Way::Icmp => echo(address.ip(), id, patience).await,
        Way::Udp if address.port() == 443 => {
            ask(address, &packet::quic_greeting(id), patience, |_| true).await
        }
        Way::Udp if address.port() != 53 => ask(address, DATAGRAM, patience, |_| true).await,
        Way::Udp | Way::Dns => {
            let query = packet::dns_query(id, NAME).unwrap_or_default();
            ask(address, &query, patience, |answer| packet::dns_answer(id, answer).is_some()).await
        }
    }
}

/// A connection, or why there is none.
pub(super) async fn connect(address: SocketAddr, patience: Duration) -> Result<TcpStream, Reach> {
    match timeout(patience, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(nothing(patience)),
    }
}

/// Sends a datagram until something comes back that is an answer.
async fn ask(
    to: SocketAddr,
    datagram: &[u8],
    patience: Duration,
    is_answer: impl Fn(&[u8]) -> bool,
) -> Reach {
    let any: IpAddr = if to.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let exchange = async {
        let socket = UdpSocket::bind((any, 0)).await?;
        socket.connect(to).await?;
        exchange(&socket, datagram, patience, is_answer).await
    };
    exchange.await.unwrap_or_else(Reach::from)
}

/// Asks for an echo through a ping socket, which needs no privilege where the system permits them,
/// else through a raw one.
async fn echo(to: IpAddr, sequence: u16, patience: Duration) -> Reach {
    let (domain, protocol) = match to {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    let opened = Socket::new(domain, Type::DGRAM, Some(protocol))
        .or_else(|_| Socket::new(domain, Type::RAW, Some(protocol)));
    let socket = match opened {
        Ok(socket) => socket,
        Err(error) if kind(&error) == Kind::Unreachable => return error.into(),
        Err(error) => {
            return Reach::new(
                Kind::Other,
                format!(
                    "no socket for echo requests ({error}): net.ipv4.ping_group_range excludes this user"
                ),
            );
        }
    };
    let exchange = async {
        socket.set_nonblocking(true)?;
        socket.connect(&SocketAddr::new(to, 0).into())?;
        let socket = UdpSocket::from_std(socket.into())?;
        let request = packet::echo_request(to.is_ipv6(), sequence);
        let is_reply = |answer: &[u8]| packet::is_echo_reply(to.is_ipv6(), sequence, answer);
        exchange(&socket, &request, patience, is_reply).await
    };
    exchange.await.unwrap_or_else(Reach::from)
}

async fn exchange(
    socket: &UdpSocket,
    datagram: &[u8],
    patience: Duration,
    is_answer: impl Fn(&[u8]) -> bool,
) -> io::Result<Reach> {
    let mut buffer = [0; 2048];
    for _ in 0..TRIES {
        socket.send(datagram).await?;
        let answer = async {
            loop {
                let length = socket.recv(&mut buffer).await?;
                if is_answer(buffer.get(..length).unwrap_or_default()) {
                    return Ok::<_, io::Error>(length);
                }
            }
        };
        if let Ok(answered) = timeout(patience / TRIES, answer).await {
            return answered.map(|length| Reach::new(Kind::Reached, format!("answered, {length} octets")));
        }
    }
    Ok(nothing(patience))
}

pub(super) fn nothing(patience: Duration) -> Reach {
    Reach::new(Kind::TimedOut, format!("nothing came back in {} s", patience.as_secs_f32()))
}

/// The addresses of a name, as any program here would find them.
pub(super) async fn look_up(host: &str, port: u16, patience: Duration) -> Result<Vec<SocketAddr>, Reach> {
    match timeout(patience, tokio::net::lookup_host((host, port))).await {
        Ok(Ok(found)) => Ok(found.collect()),
        Ok(Err(error)) => {
            Err(Reach::new(Kind::Unreachable, format!("the name does not resolve here: {error}")))
        }
        Err(_) => Err(Reach::new(Kind::TimedOut, "the name does not resolve here in time")),
    }
}

/// Which address of this machine's own would be used towards another; no packet is sent.
pub(super) fn own_address_towards(other: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr =
        if other.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let socket = std::net::UdpSocket::bind((any, 0)).ok()?;
    socket.connect(other).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// Has the kernel look for hosts on the link: a datagram to each, which nobody answers (RFC 863).
pub(super) async fn stir(hosts: &[SocketAddr]) {
    let Ok(socket) = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await else { return };
    for host in hosts {
        // Who is not there, or refuses, is none the less looked for.
        let _ = socket.send_to(&[], SocketAddr::new(host.ip(), 9)).await;
    }
    tokio::time::sleep(LOOKED_FOR).await;
}

/// What a container engine answers on a Unix socket; nothing where it says nothing.
pub(super) async fn ask_unix(path: &Path, patience: Duration) -> io::Result<Vec<u8>> {
    let talk = async {
        let mut stream = UnixStream::connect(path).await?;
        let mut answer = Vec::new();
        // Not every engine speaks HTTP/1, and its silence is an answer too.
        let hear = async {
            stream.write_all(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n").await?;
            (&mut stream).take(4096).read_to_end(&mut answer).await
        };
        let _ = timeout(patience / 2, hear).await;
        Ok(answer)
    };
    timeout(patience, talk).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// A number that tells this run's packets from others.
fn number() -> u16 {
    let mut octets = [0; 2];
    // Without chance it is a fixed number, which serves as well.
    let _ = aws_lc_rs::rand::fill(&mut octets);
    u16::from_be_bytes(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_failure_are_told_apart() {
        use rustix::io::Errno;
        for (errno, expected) in [
            (Errno::CONNREFUSED, Kind::Refused),
            (Errno::NETUNREACH, Kind::Unreachable),
            (Errno::HOSTUNREACH, Kind::Unreachable),
            (Errno::ADDRNOTAVAIL, Kind::Unreachable),
            (Errno::AFNOSUPPORT, Kind::Unreachable),
            (Errno::TIMEDOUT, Kind::TimedOut),
            (Errno::PERM, Kind::Permission),
            (Errno::ACCESS, Kind::Permission),
            (Errno::MFILE, Kind::Other),
        ] {
            assert_eq!(kind(&io::Error::from_raw_os_error(errno.raw_os_error())), expected, "{errno:?}");
        }
    }
}
