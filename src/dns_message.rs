//! DNS messages of clients (RFC 1035, RFC 6891): octets become one question, an answer becomes
//! octets. Asks nobody, and decides nothing.
//!
//! hickory reads and writes the messages; what of them is a question that may be put to the policy
//! is said here. Whatever is no such question says with which code it is to be refused.

mod answer;

use std::fmt;

use egret_policy::{DnsName, HostError};
use hickory_resolver::proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::{DNSClass, RecordType};
use hickory_resolver::proto::serialize::binary::{BinDecodable, BinDecoder};

pub use answer::{Answer, Note, Service, Transport};

/// Octets of a header (RFC 1035 section 4.1.1).
const HEADER: usize = 12;

/// The types that are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// How a web server is to be spoken to (RFC 9460).
    Https,
}

/// A question that the policy can decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The canonical name.
    pub name: DnsName,
    /// What of it.
    pub kind: Kind,
}

/// A message from a client.
#[derive(Debug)]
pub struct Received {
    /// What an answer has to repeat; without it there must be none.
    pub back: Option<Back>,
    /// The name as sent, where one could be read.
    pub shown: Option<Vec<u8>>,
    /// The type by its name, where one could be read.
    pub kind: Option<String>,
    /// The question, or why it is none.
    pub asked: Result<Asked, Unfit>,
}

/// What an answer repeats of its question: the ID, some flags, and the question to the letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Back {
    id: u16,
    opcode: OpCode,
    recursion_desired: bool,
    checking_disabled: bool,
    query: Option<Query>,
    /// The size of answers that the client takes over UDP, if it speaks EDNS.
    payload: Option<u16>,
}

/// Why a message is no question for the policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Unfit {
    #[error("the message is shorter than a header")]
    Short,
    #[error("the message is an answer, not a question")]
    Response,
    #[error("operation {0} is not served")]
    Opcode(u8),
    #[error("the message does not hold one question and nothing else")]
    Counts,
    #[error("the message can't be read")]
    Malformed,
    #[error("EDNS version {0} is not spoken")]
    Version(u8),
    #[error("class {0} is not served")]
    Class(u16),
    #[error("type {0} is not answered")]
    Type(String),
    #[error(transparent)]
    Name(#[from] HostError),
}

/// A response code (RFC 1035 section 4.1.1, RFC 6891 section 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// An answer, which may be empty.
    NoError,
    /// The message can't be read.
    FormErr,
    /// No answer now.
    ServFail,
    /// There is no such name.
    NxDomain,
    /// The operation is not served.
    NotImp,
    /// It is not permitted.
    Refused,
    /// The version of EDNS is not spoken.
    BadVers,
}

impl Code {
    /// Its number.
    #[must_use]
    pub fn number(self) -> u16 {
        self.code().into()
    }

    const fn code(self) -> ResponseCode {
        match self {
            Self::NoError => ResponseCode::NoError,
            Self::FormErr => ResponseCode::FormErr,
            Self::ServFail => ResponseCode::ServFail,
            Self::NxDomain => ResponseCode::NXDomain,
            Self::NotImp => ResponseCode::NotImp,
            Self::Refused => ResponseCode::Refused,
            Self::BadVers => ResponseCode::BADVERS,
        }
    }
}

impl Kind {
    fn of(kind: RecordType) -> Option<Self> {
        match kind {
            RecordType::A => Some(Self::A),
            RecordType::AAAA => Some(Self::Aaaa),
            RecordType::HTTPS => Some(Self::Https),
            _ => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "A",
            Self::Aaaa => "AAAA",
            Self::Https => "HTTPS",
        })
    }
}

impl Unfit {
    /// With which code it is refused.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Short | Self::Response | Self::Counts | Self::Malformed => Code::FormErr,
            Self::Opcode(_) => Code::NotImp,
            Self::Version(_) => Code::BadVers,
            Self::Class(_) | Self::Type(_) | Self::Name(_) => Code::Refused,
        }
    }
}

impl Received {
    /// Reads one message; every octet sequence is one, if only to be refused.
    #[must_use]
    pub fn read(packet: &[u8]) -> Self {
        let Some(head) = Head::read(packet) else {
            return Self::without_answer(Unfit::Short);
        };
        if head.is_response {
            // Answering one could go on for ever between two that do.
            return Self::without_answer(Unfit::Response);
        }
        let mut received =
            Self { back: Some(head.back()), shown: None, kind: None, asked: Err(Unfit::Malformed) };
        received.asked = received.question(packet, &head);
        received
    }

    fn without_answer(unfit: Unfit) -> Self {
        Self { back: None, shown: None, kind: None, asked: Err(unfit) }
    }

    fn question(&mut self, packet: &[u8], head: &Head) -> Result<Asked, Unfit> {
        let opcode = u8::from(head.opcode);
        if opcode != 0 {
            return Err(Unfit::Opcode(opcode));
        }
        // Before hickory makes room for as many as the header claims. OPT is the one record that a
        // question has.
        let [questions, answers, authorities, additionals] = head.counts;
        if questions != 1 || answers != 0 || authorities != 0 || additionals > 1 {
            return Err(Unfit::Counts);
        }
        let mut decoder = BinDecoder::new(packet);
        let message = Message::read(&mut decoder).map_err(|_| Unfit::Malformed)?;
        if !decoder.is_empty() {
            return Err(Unfit::Malformed);
        }
        let [query] = message.queries.as_slice() else {
            return Err(Unfit::Counts);
        };
        let labels: Vec<&[u8]> = query.name.iter().collect();
        self.shown = Some(if labels.is_empty() { b".".to_vec() } else { labels.join(&b'.') });
        self.kind = Some(type_name(query.query_type));
        if let Some(back) = &mut self.back {
            back.query = Some(query.clone());
            back.payload = message.edns.as_ref().map(|edns| edns.max_payload());
        }
        match &message.edns {
            Some(edns) if edns.version() != 0 => return Err(Unfit::Version(edns.version())),
            None if additionals != 0 => return Err(Unfit::Counts),
            _ => {}
        }
        if query.query_class != DNSClass::IN {
            return Err(Unfit::Class(query.query_class.into()));
        }
        let kind = Kind::of(query.query_type).ok_or_else(|| Unfit::Type(type_name(query.query_type)))?;
        Ok(Asked { name: DnsName::from_labels(query.name.iter())?, kind })
    }
}

/// The parts of a header that are looked at before the rest.
struct Head {
    id: u16,
    is_response: bool,
    opcode: OpCode,
    recursion_desired: bool,
    checking_disabled: bool,
    counts: [u16; 4],
}

impl Head {
    fn read(packet: &[u8]) -> Option<Self> {
        let header = packet.get(..HEADER)?;
        let mut words = header.chunks_exact(2).map(|pair| match pair {
            [high, low] => u16::from_be_bytes([*high, *low]),
            _ => 0,
        });
        let (id, flags) = (words.next()?, words.next()?);
        let counts = [words.next()?, words.next()?, words.next()?, words.next()?];
        let [upper, _] = flags.to_be_bytes();
        Some(Self {
            id,
            is_response: flags & 0x8000 != 0,
            opcode: OpCode::from_u8(upper >> 3 & 0x0f),
            recursion_desired: flags & 0x0100 != 0,
            checking_disabled: flags & 0x0010 != 0,
            counts,
        })
    }

    fn back(&self) -> Back {
        Back {
            id: self.id,
            opcode: self.opcode,
            recursion_desired: self.recursion_desired,
            checking_disabled: self.checking_disabled,
            query: None,
            payload: None,
        }
    }
}

impl Back {
    fn message(&self, code: Code) -> Message {
        let mut message = Message::new(self.id, MessageType::Response, self.opcode);
        message.metadata.recursion_desired = self.recursion_desired;
        message.metadata.checking_disabled = self.checking_disabled;
        message.metadata.recursion_available = true;
        message.metadata.response_code = code.code();
        message.queries.extend(self.query.clone());
        message
    }
}

/// A type by its name, one without by its number (RFC 3597 section 5).
fn type_name(kind: RecordType) -> String {
    match kind {
        RecordType::Unknown(number) => format!("TYPE{number}"),
        known => known.to_string(),
    }
}

#[cfg(test)]
mod tests;
