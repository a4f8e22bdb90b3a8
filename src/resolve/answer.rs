//! What one DNS message says about the addresses of a name.
//!
//! Pure. Takes addresses only from the answer section, only of the type asked for, and only
//! under the owner name at the end of the CNAME chain that starts at the question. Whatever else
//! a message holds (glue, service bindings, other owners) is never an address to dial.

use std::net::IpAddr;

use hickory_resolver::proto::op::{Message, Query, ResponseCode};
use hickory_resolver::proto::rr::{DNSClass, Name, RData, Record, RecordType};

/// Longest CNAME chain that is followed. Real ones have two to five steps.
pub(super) const MAX_CHAIN: usize = 16;

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extract {
    /// The addresses in the order of the message, each once; never empty.
    Addresses {
        /// The addresses of the family asked for.
        addresses: Vec<IpAddr>,
        /// Seconds: the smallest TTL of the chain and the addresses.
        ttl: u32,
    },
    /// The name has no address of this family.
    Empty {
        /// The name at the end of the chain does not exist at all (RFC 8020).
        nxdomain: bool,
        /// Seconds that this may be remembered (RFC 2308 section 5), when the message says so.
        ttl: Option<u32>,
    },
    /// An alias whose target the message says nothing about: to be asked for.
    Alias {
        /// The end of the chain.
        target: Name,
        /// Seconds: the smallest TTL of the chain.
        ttl: u32,
    },
}

/// Why a message is unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    /// It answers another question, or none or several.
    #[error("the answer is to another question")]
    Question,
    /// It holds a record of another class than IN.
    #[error("the answer holds a record of a foreign class")]
    Class,
    /// Its response code is neither NOERROR nor NXDOMAIN.
    #[error("the server answered with an error code")]
    Code,
    /// It was cut off.
    #[error("the answer is truncated")]
    Truncated,
    /// A name is an alias of itself, or of several names.
    #[error("the CNAME chain is a loop or forks")]
    Loop,
    /// The chain has more steps than are followed.
    #[error("the CNAME chain has more than {MAX_CHAIN} steps")]
    TooLong,
}

/// Checks that `message` is a whole answer to `question`; whether the name at the end of its chain
/// does not exist at all, and that chain.
pub(super) fn open<'a>(message: &'a Message, question: &'a Query) -> Result<(bool, Chain<'a>), BadAnswer> {
    match message.queries.as_slice() {
        [echoed] if same_question(echoed, question) => {}
        _ => return Err(BadAnswer::Question),
    }
    if message.metadata.truncation {
        return Err(BadAnswer::Truncated);
    }
    if message.answers.iter().any(|record| record.dns_class != DNSClass::IN) {
        return Err(BadAnswer::Class);
    }
    let nxdomain = match message.metadata.response_code {
        ResponseCode::NoError => false,
        ResponseCode::NXDomain => true,
        _ => return Err(BadAnswer::Code),
    };
    Ok((nxdomain, Chain::follow(&message.answers, &question.name)?))
}

/// Reads the answer to `question` (type A or AAAA) out of `message`.
pub fn extract(message: &Message, question: &Query) -> Result<Extract, BadAnswer> {
    let (nxdomain, chain) = open(message, question)?;
    let (addresses, ttl) = addresses_of(&message.answers, chain.end, question.query_type);
    if !addresses.is_empty() && !nxdomain {
        return Ok(Extract::Addresses { addresses, ttl: chain.ttl.min(ttl) });
    }
    let negative = negative_ttl(&message.authorities);
    // An SOA record beside the chain says that its end was looked at and has nothing.
    if chain.steps > 0 && !nxdomain && negative.is_none() {
        return Ok(Extract::Alias { target: chain.end.clone(), ttl: chain.ttl });
    }
    Ok(Extract::Empty { nxdomain, ttl: negative })
}

/// Names compare without regard to ASCII case (RFC 4343).
pub(super) fn same_question(a: &Query, b: &Query) -> bool {
    a.name == b.name && a.query_type == b.query_type && a.query_class == b.query_class
}

/// TTLs are 31 bits; one with the top bit set counts as zero (RFC 2181 section 8).
pub(super) fn seconds(ttl: u32) -> u32 {
    if i32::try_from(ttl).is_ok() { ttl } else { 0 }
}

/// The walk along the aliases of one message.
pub(super) struct Chain<'a> {
    pub(super) end: &'a Name,
    pub(super) steps: usize,
    pub(super) ttl: u32,
}

impl<'a> Chain<'a> {
    fn follow(answers: &'a [Record], start: &'a Name) -> Result<Self, BadAnswer> {
        let mut chain = Self { end: start, steps: 0, ttl: u32::MAX };
        let mut passed = vec![start];
        while let Some((target, ttl)) = alias_of(answers, chain.end)? {
            if passed.contains(&target) {
                return Err(BadAnswer::Loop);
            }
            if chain.steps == MAX_CHAIN {
                return Err(BadAnswer::TooLong);
            }
            passed.push(target);
            chain = Self { end: target, steps: chain.steps + 1, ttl: chain.ttl.min(ttl) };
        }
        Ok(chain)
    }
}

/// The one target of `owner`, if it is an alias. The same record twice is one alias.
fn alias_of<'a>(answers: &'a [Record], owner: &Name) -> Result<Option<(&'a Name, u32)>, BadAnswer> {
    let mut found: Option<(&Name, u32)> = None;
    for record in answers.iter().filter(|record| &record.name == owner) {
        let RData::CNAME(target) = &record.data else {
            continue;
        };
        let ttl = seconds(record.ttl);
        found = match found {
            None => Some((&target.0, ttl)),
            Some((known, old)) if *known == target.0 => Some((known, old.min(ttl))),
            Some(_) => return Err(BadAnswer::Loop),
        };
    }
    Ok(found)
}

/// The addresses of `owner`, each once, and their smallest TTL.
fn addresses_of(answers: &[Record], owner: &Name, kind: RecordType) -> (Vec<IpAddr>, u32) {
    let mut addresses = Vec::new();
    let mut smallest = u32::MAX;
    for record in answers.iter().filter(|record| &record.name == owner) {
        let address = match &record.data {
            RData::A(a) if kind == RecordType::A => IpAddr::V4(a.0),
            RData::AAAA(aaaa) if kind == RecordType::AAAA => IpAddr::V6(aaaa.0),
            _ => continue,
        };
        smallest = smallest.min(seconds(record.ttl));
        addresses.push(address);
    }
    let mut seen = std::collections::HashSet::new();
    addresses.retain(|address| seen.insert(*address));
    (addresses, smallest)
}

/// RFC 2308 section 5: the smaller of the SOA record's TTL and its MINIMUM.
pub(super) fn negative_ttl(authorities: &[Record]) -> Option<u32> {
    authorities.iter().find_map(|record| match &record.data {
        RData::SOA(soa) => Some(seconds(record.ttl).min(seconds(soa.minimum))),
        _ => None,
    })
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
