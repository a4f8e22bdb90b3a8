//! SOCKS version 5 as a server reads and writes it (RFC 1928, RFC 1929), on buffers.
//!
//! Every message is bounded by its own length octets, 513 octets at most. Does no I/O, knows no
//! policy, and leaves it to the one parser of hosts what a name may be.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The version octet of every message but those of user and password (RFC 1928 section 3).
pub const VERSION: u8 = 5;
/// The first octet of the predecessor, which has no names and no passwords.
pub const VERSION_4: u8 = 4;
/// What a client of version 4 understands as a refusal.
pub const REJECTED_4: [u8; 8] = [0, 0x5b, 0, 0, 0, 0, 0, 0];
/// The version of the negotiation of user and password (RFC 1929 section 2).
const LOGIN_VERSION: u8 = 1;

/// Why octets are not a message of this protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Fault {
    #[error("the SOCKS version is {0}, not 5")]
    Version(u8),
    #[error("the version of the user and password message is {0}, not 1")]
    LoginVersion(u8),
    #[error("the reserved octet of the request is not 0")]
    Reserved,
    #[error("the address type {0} is not IPv4 (1), a domain name (3) or IPv6 (4)")]
    AddressType(u8),
}

/// How a client offers to identify itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Methods {
    /// Not at all.
    pub none: bool,
    /// By user and password.
    pub login: bool,
}

/// A user and a password as sent, 0 to 255 octets each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Login<'a> {
    /// The user.
    pub user: &'a [u8],
    /// The password.
    pub password: &'a [u8],
}

/// Shows nothing: what it holds is a secret.
impl std::fmt::Debug for Login<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login")
    }
}

/// What a client wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the standard")]
pub enum Command {
    Connect,
    Bind,
    UdpAssociate,
    /// No such command exists.
    Other(u8),
}

/// Where, as sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address<'a> {
    /// An address in octets.
    Ip(IpAddr),
    /// A domain name, or whatever stands in its place; 0 to 255 octets.
    Name(&'a [u8]),
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// To do what.
    pub command: Command,
    /// Where.
    pub address: Address<'a>,
    /// At which port, which may be 0.
    pub port: u16,
}

/// Which method the client shall use, or none of what it offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in `Methods`")]
pub enum Method {
    None,
    Login,
    NotAcceptable,
}

impl Method {
    /// The message that says so (RFC 1928 section 3).
    #[must_use]
    pub const fn message(self) -> [u8; 2] {
        let code = match self {
            Self::None => 0,
            Self::Login => 2,
            Self::NotAcceptable => 0xff,
        };
        [VERSION, code]
    }
}

/// The message that says whether user and password are good (RFC 1929 section 2).
#[must_use]
pub const fn login_message(good: bool) -> [u8; 2] {
    [LOGIN_VERSION, if good { 0 } else { 1 }]
}

/// What becomes of a request (RFC 1928 section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the standard")]
pub enum Reply {
    Succeeded,
    GeneralFailure,
    NotAllowed,
    NetworkUnreachable,
    HostUnreachable,
    ConnectionRefused,
    TtlExpired,
    CommandNotSupported,
    AddressTypeNotSupported,
}

impl Reply {
    /// The code of the reply.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Succeeded => 0,
            Self::GeneralFailure => 1,
            Self::NotAllowed => 2,
            Self::NetworkUnreachable => 3,
            Self::HostUnreachable => 4,
            Self::ConnectionRefused => 5,
            Self::TtlExpired => 6,
            Self::CommandNotSupported => 7,
            Self::AddressTypeNotSupported => 8,
        }
    }

    /// The message that says so. The bound address in it is `0.0.0.0:0`: from where the proxy
    /// connects is no business of its clients, and none of them needs it after CONNECT.
    #[must_use]
    pub const fn message(self) -> [u8; 10] {
        [VERSION, self.code(), 0, 1, 0, 0, 0, 0, 0, 0]
    }
}

/// A message and how many octets it took; `None` if it is not whole yet.
type Parsed<T> = Result<Option<(T, usize)>, Fault>;

/// Reads the first message of a client: what it offers.
///
/// # Errors
/// The version is another one.
pub fn methods(octets: &[u8]) -> Parsed<Methods> {
    let mut octets = Octets::new(octets);
    let Some(version) = octets.one() else { return Ok(None) };
    if version != VERSION {
        return Err(Fault::Version(version));
    }
    let Some(offered) = octets.counted() else { return Ok(None) };
    let methods = Methods { none: offered.contains(&0), login: offered.contains(&2) };
    Ok(Some((methods, octets.taken)))
}

/// Reads user and password.
///
/// # Errors
/// The version is another one.
pub fn login(octets: &[u8]) -> Parsed<Login<'_>> {
    let mut octets = Octets::new(octets);
    let Some(version) = octets.one() else { return Ok(None) };
    if version != LOGIN_VERSION {
        return Err(Fault::LoginVersion(version));
    }
    let Some(user) = octets.counted() else { return Ok(None) };
    let Some(password) = octets.counted() else { return Ok(None) };
    Ok(Some((Login { user, password }, octets.taken)))
}

/// Reads a request.
///
/// # Errors
/// The version, the reserved octet or the type of the address is another one: then nobody knows
/// where the message ends. A command that does not exist is no fault.
pub fn request(octets: &[u8]) -> Parsed<Request<'_>> {
    let mut octets = Octets::new(octets);
    let Some(version) = octets.one() else { return Ok(None) };
    if version != VERSION {
        return Err(Fault::Version(version));
    }
    let Some(command) = octets.one() else { return Ok(None) };
    let command = match command {
        1 => Command::Connect,
        2 => Command::Bind,
        3 => Command::UdpAssociate,
        other => Command::Other(other),
    };
    match octets.one() {
        None => return Ok(None),
        Some(0) => {}
        Some(_) => return Err(Fault::Reserved),
    }
    let address = match octets.one() {
        None => return Ok(None),
        Some(1) => octets.array().map(|v4| Address::Ip(Ipv4Addr::from_octets(v4).into())),
        Some(3) => octets.counted().map(Address::Name),
        Some(4) => octets.array().map(|v6| Address::Ip(Ipv6Addr::from_octets(v6).into())),
        Some(other) => return Err(Fault::AddressType(other)),
    };
    let Some(address) = address else { return Ok(None) };
    let Some(port) = octets.array().map(u16::from_be_bytes) else { return Ok(None) };
    Ok(Some((Request { command, address, port }, octets.taken)))
}

/// What is left of a message, and how much of it was taken.
struct Octets<'a> {
    left: &'a [u8],
    taken: usize,
}

impl<'a> Octets<'a> {
    const fn new(octets: &'a [u8]) -> Self {
        Self { left: octets, taken: 0 }
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.left.split_at_checked(count)?;
        self.left = left;
        self.taken += count;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn one(&mut self) -> Option<u8> {
        self.array().map(|[octet]| octet)
    }

    /// As many as the next octet says.
    fn counted(&mut self) -> Option<&'a [u8]> {
        let count = self.one()?;
        self.take(count.into())
    }
}

#[cfg(test)]
#[path = "socks5_tests.rs"]
mod tests;
