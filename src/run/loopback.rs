//! Brings the loopback interface of a new network namespace up, by one netlink message (RFC 3549,
//! rtnetlink(7)). Makes no other interface, address or route.

use std::io;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

const RTM_NEWLINK: u16 = 16;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const IFF_UP: u32 = 1;
/// The loopback interface is the first of every namespace.
const LOOPBACK: u32 = 1;
/// Octets of the header and of the body (`struct ifinfomsg`).
const LENGTH: u32 = 32;

/// Brings it up.
///
/// # Errors
/// The system's, as where `CAP_NET_ADMIN` is missing.
pub(super) fn bring_up() -> io::Result<()> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    sendto(&socket, &request(), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
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

fn request() -> Vec<u8> {
    let mut message = Vec::new();
    message.extend(LENGTH.to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend((NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    // Its number, and the sender, whom the kernel knows.
    message.extend([0; 8]);
    // Family, padding and type of the interface: any.
    message.extend([0; 4]);
    message.extend(LOOPBACK.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    // Which flags are to change.
    message.extend(IFF_UP.to_ne_bytes());
    message
}
