//! Answers as octets, no longer than their client takes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_resolver::proto::op::{Edns, Message};
use hickory_resolver::proto::rr::rdata::opt::EdnsOption;
use hickory_resolver::proto::rr::rdata::svcb::{Alpn, IpHint, Mandatory, SvcParamKey, SvcParamValue};
use hickory_resolver::proto::rr::rdata::{A, AAAA, HTTPS, SVCB};
use hickory_resolver::proto::rr::{Name, RData, Record};

use super::{Back, Code};

/// Longest answer over UDP, whatever the client takes: what passes every network unfragmented, and
/// too little to be of use to who sends questions in another's name.
const MOST_UDP: u16 = 1232;
/// Shortest size of answers over UDP that every client takes (RFC 1035 section 2.3.4).
const LEAST_UDP: u16 = 512;
/// The option for an extended error (RFC 8914 section 2).
const EXTENDED_ERROR: u16 = 15;

/// How a question came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// In a datagram.
    Udp,
    /// Over a connection.
    Tcp,
}

/// Why there is no answer (RFC 8914); only for clients that speak EDNS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note {
    /// The code.
    pub code: u16,
    /// Text for people.
    pub text: &'static str,
}

/// How to speak to a web server: an HTTPS record in service mode for its own name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    /// The smallest first; not 0.
    pub priority: u16,
    /// Parameters that a client has to understand, by their numbers.
    pub mandatory: Vec<u16>,
    /// Protocols.
    pub alpn: Vec<String>,
    /// Are these all protocols?
    pub no_default_alpn: bool,
    /// A port other than 443.
    pub port: Option<u16>,
    /// Addresses, as a hint.
    pub ipv4: Vec<Ipv4Addr>,
    /// Addresses, as a hint.
    pub ipv6: Vec<Ipv6Addr>,
}

/// What a client is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The code.
    pub code: Code,
    /// Why there is no answer.
    pub note: Option<Note>,
    /// Addresses, all of one family.
    pub addresses: Vec<IpAddr>,
    /// Services.
    pub services: Vec<Service>,
    /// How long that may be remembered, in seconds.
    pub ttl: u32,
}

impl Answer {
    /// No records.
    #[must_use]
    pub const fn empty(code: Code, note: Option<Note>) -> Self {
        Self { code, note, addresses: Vec::new(), services: Vec::new(), ttl: 0 }
    }
}

impl Back {
    /// The message that answers. One too long for a datagram has no record and says so (TC), so that
    /// its client asks over TCP. `None` if it can't be written.
    #[must_use]
    pub fn answer(&self, answer: &Answer, transport: Transport) -> Option<Vec<u8>> {
        let mut message = self.message(answer.code);
        if let Some(query) = &self.query {
            let data = answer.addresses.iter().map(|address| match address {
                IpAddr::V4(v4) => RData::A(A(*v4)),
                IpAddr::V6(v6) => RData::AAAA(AAAA(*v6)),
            });
            let data = data.chain(answer.services.iter().map(|service| RData::HTTPS(HTTPS(service.data()))));
            message.answers =
                data.map(|data| Record::from_rdata(query.name.clone(), answer.ttl, data)).collect();
        }
        message.edns = self.payload.map(|_| edns(answer.note));
        let octets = message.to_vec().ok()?;
        match transport {
            Transport::Udp if octets.len() > usize::from(self.most_udp()) => shorter(&message),
            Transport::Tcp if octets.len() > usize::from(u16::MAX) => shorter(&message),
            _ => Some(octets),
        }
    }

    fn most_udp(&self) -> u16 {
        self.payload.map_or(LEAST_UDP, |payload| payload.clamp(LEAST_UDP, MOST_UDP))
    }
}

fn shorter(message: &Message) -> Option<Vec<u8>> {
    message.truncate().to_vec().ok()
}

fn edns(note: Option<Note>) -> Edns {
    let mut edns = Edns::new();
    edns.set_max_payload(MOST_UDP);
    if let Some(Note { code, text }) = note {
        let mut data = code.to_be_bytes().to_vec();
        data.extend_from_slice(text.as_bytes());
        edns.options_mut().insert(EdnsOption::Unknown(EXTENDED_ERROR, data));
    }
    edns
}

impl Service {
    /// The record's data; its parameters in the order of their keys (RFC 9460 section 2.2).
    fn data(&self) -> SVCB {
        let mut parameters = Vec::new();
        let mut add = |wanted: bool, key, value: SvcParamValue| {
            if wanted {
                parameters.push((key, value));
            }
        };
        let mandatory: Vec<SvcParamKey> = self.mandatory.iter().map(|key| SvcParamKey::from(*key)).collect();
        let wanted = !mandatory.is_empty();
        add(wanted, SvcParamKey::Mandatory, SvcParamValue::Mandatory(Mandatory(mandatory)));
        add(!self.alpn.is_empty(), SvcParamKey::Alpn, SvcParamValue::Alpn(Alpn(self.alpn.clone())));
        add(self.no_default_alpn, SvcParamKey::NoDefaultAlpn, SvcParamValue::NoDefaultAlpn);
        if let Some(port) = self.port {
            add(true, SvcParamKey::Port, SvcParamValue::Port(port));
        }
        let ipv4 = self.ipv4.iter().copied().map(A).collect();
        add(!self.ipv4.is_empty(), SvcParamKey::Ipv4Hint, SvcParamValue::Ipv4Hint(IpHint(ipv4)));
        let ipv6 = self.ipv6.iter().copied().map(AAAA).collect();
        add(!self.ipv6.is_empty(), SvcParamKey::Ipv6Hint, SvcParamValue::Ipv6Hint(IpHint(ipv6)));
        SVCB::new(self.priority, Name::root(), parameters)
    }
}
