//! The loopback interface of a new network namespace, by netlink messages (RFC 3549, rtnetlink(7)): up,
//! and as the way to every address, where all that is sent is to stay. Makes no other interface, and
//! no address.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

const RTM_NEWLINK: u16 = 16;
const RTM_NEWROUTE: u16 = 24;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_CREATE: u16 = 0x400;
const IFF_UP: u32 = 1;
/// The loopback interface is the first of every namespace.
const LOOPBACK: u32 = 1;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_BOOT: u8 = 3;
const RT_SCOPE_HOST: u8 = 254;
const RTN_LOCAL: u8 = 2;
const RTA_OIF: u16 = 4;
const RTA_PREFSRC: u16 = 7;
/// Octets of the header of a message.
const HEADER: usize = 16;

/// Brings it up.
///
/// # Errors
/// The system's, as where `CAP_NET_ADMIN` is missing.
pub(super) fn bring_up() -> io::Result<()> {
    // Family, padding and type of the interface: any.
    let mut body = vec![0; 4];
    body.extend(LOOPBACK.to_ne_bytes());
    body.extend(IFF_UP.to_ne_bytes());
    // Which flags are to change.
    body.extend(IFF_UP.to_ne_bytes());
    ask(RTM_NEWLINK, 0, &body)
}

/// Has it be the way to every address: what is sent anywhere stays here, but passes the rules of the
/// namespace, which can divert it. Without a route, a connection fails before them.
///
/// # Errors
/// The system's.
pub(super) fn take_everything() -> io::Result<()> {
    ask(RTM_NEWROUTE, NLM_F_CREATE, &route(AddressFamily::INET, &Ipv4Addr::LOCALHOST.octets()))?;
    match ask(RTM_NEWROUTE, NLM_F_CREATE, &route(AddressFamily::INET6, &Ipv6Addr::LOCALHOST.octets())) {
        // Nothing can be sent by IPv6 then: there is none, or not on this interface.
        Err(_) if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() => Ok(()),
        other => other,
    }
}

fn route(family: AddressFamily, from: &[u8]) -> Vec<u8> {
    let family = u8::try_from(family.as_raw()).unwrap_or_default();
    // Lengths of destination and source, and the kind of service: everything.
    let mut body = vec![family, 0, 0, 0, RT_TABLE_MAIN, RTPROT_BOOT, RT_SCOPE_HOST, RTN_LOCAL, 0, 0, 0, 0];
    attribute(&mut body, RTA_OIF, &LOOPBACK.to_ne_bytes());
    attribute(&mut body, RTA_PREFSRC, from);
    body
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or_default();
    body.extend(length.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
}

/// Sends a request, and waits for the answer.
fn ask(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let mut message = Vec::new();
    message.extend(u32::try_from(HEADER + body.len()).unwrap_or_default().to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
    // Its number, and the sender, whom the kernel knows.
    message.extend([0; 8]);
    message.extend(body);
    sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 1024];
    let (received, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    let answer = answer.get(..received).unwrap_or_default();
    let kind = answer.get(4..6).and_then(|octets| octets.try_into().ok()).map(u16::from_ne_bytes);
    let error = answer.get(16..20).and_then(|octets| octets.try_into().ok()).map(i32::from_ne_bytes);
    match (kind, error) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(error)) => Err(io::Error::from_raw_os_error(-error)),
        _ => Err(io::Error::other("the kernel gave no answer that rtnetlink knows")),
    }
}
