//! DNS messages on the wire (RFC 1035), well and badly formed.

use std::net::{IpAddr, Ipv4Addr};

use serde::Deserialize;

pub const A: u16 = 1;
pub const CNAME: u16 = 5;
pub const AAAA: u16 = 28;
pub const DNAME: u16 = 39;
pub const OPT: u16 = 41;
pub const HTTPS: u16 = 65;

const CLASS_IN: u16 = 1;

/// A question, and how the asker wants it answered.
#[derive(Debug, Clone)]
pub struct Query {
    pub id: u16,
    flags: u16,
    /// Lower case, without the root dot.
    pub name: String,
    pub kind: u16,
    question: Vec<u8>,
    /// The longest answer over UDP: 512, or what an OPT record offers.
    pub udp_size: usize,
}

impl Query {
    /// Nothing for what is not a query with one question.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]));
        let (id, flags, additional) = (word(0)?, word(2)?, word(10)?);
        let (mut at, mut labels) = (12, Vec::new());
        loop {
            let size = usize::from(*packet.get(at)?);
            at += 1;
            if size == 0 {
                break;
            }
            let label = packet.get(at..at + size)?;
            labels.push(label.iter().map(|&b| char::from(b)).collect::<String>().to_lowercase());
            at += size;
        }
        let kind = word(at)?;
        let end = at + 4;
        let offers = additional > 0 && packet.get(end) == Some(&0) && word(end + 1) == Some(OPT);
        let udp_size = if offers { word(end + 3)?.max(512) } else { 512 };
        let question = packet.get(12..end)?.to_vec();
        Some(Self { id, flags, name: labels.join("."), kind, question, udp_size: udp_size.into() })
    }

    /// The type by its name, or its number.
    pub fn kind_name(&self) -> String {
        match self.kind {
            A => "A".to_owned(),
            AAAA => "AAAA".to_owned(),
            CNAME => "CNAME".to_owned(),
            HTTPS => "HTTPS".to_owned(),
            other => other.to_string(),
        }
    }

    /// A response to this query.
    pub fn reply(&self, id: u16, rcode: u8, truncated: bool, answers: &[Vec<u8>]) -> Vec<u8> {
        let recursion_desired = self.flags & 0x0100;
        let flags = 0x8080 | recursion_desired | if truncated { 0x0200 } else { 0 } | u16::from(rcode);
        let count = u16::try_from(answers.len()).unwrap();
        let mut out = Vec::new();
        for word in [id, flags, 1, count, 0, 0] {
            out.extend(word.to_be_bytes());
        }
        out.extend(&self.question);
        out.extend(answers.iter().flatten());
        out
    }
}

/// A name in wire form, without compression.
pub fn wire_name(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in name.split('.').filter(|l| !l.is_empty()) {
        let octets: Vec<u8> = label.chars().map(|c| u8::try_from(c).unwrap_or(b'?')).take(63).collect();
        out.push(u8::try_from(octets.len()).unwrap());
        out.extend(octets);
    }
    out.push(0);
    out
}

/// One resource record of class IN; `owner` in wire form.
pub fn record(owner: &[u8], kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let mut out = owner.to_vec();
    out.extend(kind.to_be_bytes());
    out.extend(CLASS_IN.to_be_bytes());
    out.extend(ttl.to_be_bytes());
    out.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
    out.extend(data);
    out
}

/// An A or AAAA record.
pub fn address_record(owner: &[u8], address: IpAddr, ttl: u32) -> Vec<u8> {
    match address {
        IpAddr::V4(ip) => record(owner, A, ttl, &ip.octets()),
        IpAddr::V6(ip) => record(owner, AAAA, ttl, &ip.octets()),
    }
}

/// One HTTPS record (RFC 9460), as a case file writes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpsRecord {
    priority: u16,
    target: String,
    #[serde(default)]
    ipv4hint: Vec<Ipv4Addr>,
    #[serde(default)]
    ech: Option<String>,
    #[serde(default)]
    alpn: Vec<String>,
    #[serde(default)]
    port: Option<u16>,
}

impl HttpsRecord {
    /// The record's data, its parameters in the order of their keys.
    pub fn data(&self) -> Vec<u8> {
        let mut out = self.priority.to_be_bytes().to_vec();
        out.extend(wire_name(&self.target));
        let mut parameter = |key: u16, value: Vec<u8>| {
            if !value.is_empty() {
                out.extend(key.to_be_bytes());
                out.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
                out.extend(value);
            }
        };
        let alpn = |name: &String| [&[u8::try_from(name.len()).unwrap()], name.as_bytes()].concat();
        parameter(1, self.alpn.iter().flat_map(alpn).collect());
        parameter(3, self.port.iter().flat_map(|port| port.to_be_bytes()).collect());
        parameter(4, self.ipv4hint.iter().flat_map(Ipv4Addr::octets).collect());
        parameter(5, self.ech.iter().flat_map(|_| *b"\x00\x04ECH!").collect());
        out
    }
}
