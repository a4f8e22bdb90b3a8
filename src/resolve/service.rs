//! What one DNS message says about how a web server is to be spoken to (HTTPS records, RFC 9460).
//!
//! Pure. Takes records in service mode whose target is their own name: another target would be a
//! name that nobody asked for. Of their parameters it takes those that can't lead past egret: no
//! key for an encrypted ClientHello, and nothing that it does not know.

use hickory_resolver::proto::op::{Message, Query};
use hickory_resolver::proto::rr::rdata::SVCB;
use hickory_resolver::proto::rr::rdata::svcb::{SvcParamKey, SvcParamValue};
use hickory_resolver::proto::rr::{Name, RData};

use super::answer::{BadAnswer, negative_ttl, open, seconds};
use crate::dns_message::Service;

/// Most records of one name that are passed on.
const MOST: usize = 8;

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// The records that may be passed on; maybe none.
    Services {
        services: Vec<Service>,
        /// Seconds that this may be remembered.
        ttl: u32,
    },
    /// An alias whose target the message says nothing about.
    Alias { target: Name, ttl: u32 },
}

/// Reads the answer to `question` (type HTTPS) out of `message`.
pub(super) fn services_of(message: &Message, question: &Query) -> Result<Found, BadAnswer> {
    let (nxdomain, chain) = open(message, question)?;
    let mut smallest = chain.ttl;
    let (mut services, mut any) = (Vec::new(), false);
    for record in message.answers.iter().filter(|record| record.name == *chain.end) {
        let RData::HTTPS(https) = &record.data else { continue };
        any = true;
        smallest = smallest.min(seconds(record.ttl));
        services.extend(service(&https.0, [chain.end, &question.name]));
    }
    let negative = negative_ttl(&message.authorities);
    if !any && chain.steps > 0 && !nxdomain && negative.is_none() {
        return Ok(Found::Alias { target: chain.end.clone(), ttl: chain.ttl });
    }
    services.truncate(MOST);
    let ttl = if any { smallest } else { negative.unwrap_or(0) };
    Ok(Found::Services { services, ttl })
}

/// A record that may be passed on.
fn service(record: &SVCB, own_names: [&Name; 2]) -> Option<Service> {
    // Priority 0 is an alias (RFC 9460 section 2.4.2).
    let own = record.target_name.is_root() || own_names.contains(&&record.target_name);
    if record.svc_priority == 0 || !own {
        return None;
    }
    let mut service = Service { priority: record.svc_priority, ..Service::default() };
    let (mut kept, mut needed) = (Vec::new(), Vec::new());
    for (key, value) in &record.svc_params {
        match value {
            SvcParamValue::Mandatory(keys) => needed.clone_from(&keys.0),
            SvcParamValue::Alpn(alpn) => service.alpn.clone_from(&alpn.0),
            SvcParamValue::NoDefaultAlpn => service.no_default_alpn = true,
            SvcParamValue::Port(port) => service.port = Some(*port),
            SvcParamValue::Ipv4Hint(hint) => service.ipv4 = hint.0.iter().map(|a| a.0).collect(),
            SvcParamValue::Ipv6Hint(hint) => service.ipv6 = hint.0.iter().map(|a| a.0).collect(),
            SvcParamValue::EchConfigList(_) | SvcParamValue::Unknown(_) => continue,
        }
        kept.push(*key);
    }
    // What a client has to understand can't be taken out (RFC 9460 section 8), and whoever offers no
    // default protocol has to offer another.
    let whole = needed.iter().all(|key| kept.contains(key) && *key != SvcParamKey::Mandatory);
    if !whole || service.no_default_alpn && service.alpn.is_empty() {
        return None;
    }
    service.mandatory = needed.into_iter().map(u16::from).collect();
    Some(service)
}

#[cfg(test)]
mod tests {
    use hickory_resolver::proto::op::{MessageType, OpCode};
    use hickory_resolver::proto::rr::rdata::svcb::{Alpn, EchConfigList, IpHint, Mandatory};
    use hickory_resolver::proto::rr::rdata::{A, CNAME, HTTPS};
    use hickory_resolver::proto::rr::{Record, RecordType};

    use super::*;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    fn record(owner: &str, priority: u16, target: &str, params: Vec<(SvcParamKey, SvcParamValue)>) -> Record {
        let data = RData::HTTPS(HTTPS(SVCB::new(priority, name(target), params)));
        Record::from_rdata(name(owner), 120, data)
    }

    fn read(answers: Vec<Record>) -> Found {
        let question = Query::query(name("a.example."), RecordType::HTTPS);
        let mut message = Message::new(1, MessageType::Response, OpCode::Query);
        message.queries.push(question.clone());
        message.answers = answers;
        services_of(&message, &question).unwrap()
    }

    fn services(answers: Vec<Record>) -> Vec<Service> {
        match read(answers) {
            Found::Services { services, .. } => services,
            Found::Alias { target, .. } => panic!("{target}"),
        }
    }

    fn alpn() -> (SvcParamKey, SvcParamValue) {
        (SvcParamKey::Alpn, SvcParamValue::Alpn(Alpn(vec!["h2".to_owned()])))
    }

    fn ech() -> (SvcParamKey, SvcParamValue) {
        (SvcParamKey::EchConfigList, SvcParamValue::EchConfigList(EchConfigList(b"secret".to_vec())))
    }

    #[test]
    fn keys_for_encrypted_names_are_left_out() {
        let hint = (SvcParamKey::Ipv4Hint, SvcParamValue::Ipv4Hint(IpHint(vec![A::new(192, 0, 2, 1)])));
        let found = services(vec![record("a.example.", 1, ".", vec![alpn(), hint, ech()])]);
        let expected = Service {
            priority: 1,
            alpn: vec!["h2".to_owned()],
            ipv4: vec![[192, 0, 2, 1].into()],
            ..Service::default()
        };
        assert_eq!(found, [expected]);
    }

    #[test]
    fn a_record_that_needs_what_is_left_out_is_none() {
        let needs = |key| (SvcParamKey::Mandatory, SvcParamValue::Mandatory(Mandatory(vec![key])));
        let with = |key| services(vec![record("a.example.", 1, ".", vec![needs(key), alpn(), ech()])]);
        assert!(with(SvcParamKey::EchConfigList).is_empty());
        assert_eq!(with(SvcParamKey::Alpn).len(), 1);
        let bare = (SvcParamKey::NoDefaultAlpn, SvcParamValue::NoDefaultAlpn);
        assert!(services(vec![record("a.example.", 1, ".", vec![bare])]).is_empty());
    }

    #[test]
    fn other_targets_and_other_owners_are_left_out() {
        let found = services(vec![
            record("a.example.", 0, "b.example.", vec![]),
            record("a.example.", 1, "b.example.", vec![alpn()]),
            record("b.example.", 1, ".", vec![alpn()]),
            record("a.example.", 2, "a.example.", vec![alpn()]),
        ]);
        assert_eq!(found.iter().map(|service| service.priority).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn aliases_are_followed() {
        let alias =
            |ttl| Record::from_rdata(name("a.example."), ttl, RData::CNAME(CNAME(name("c.example."))));
        assert_eq!(read(vec![alias(7)]), Found::Alias { target: name("c.example."), ttl: 7 });
        let found = read(vec![alias(7), record("c.example.", 1, ".", vec![alpn()])]);
        let Found::Services { services, ttl } = found else { panic!("{found:?}") };
        assert_eq!((services.len(), ttl), (1, 7));
    }
}
