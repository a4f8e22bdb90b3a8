#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::net::{Ipv4Addr, Ipv6Addr};

use hickory_resolver::proto::op::OpCode;
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME, SOA};
use proptest::prelude::*;

use super::*;

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn question() -> Query {
    Query::query(name("a.test."), RecordType::A)
}

fn a(owner: &str, last: u8, ttl: u32) -> Record {
    Record::from_rdata(name(owner), ttl, RData::A(A(Ipv4Addr::new(192, 0, 2, last))))
}

fn alias(owner: &str, target: &str, ttl: u32) -> Record {
    Record::from_rdata(name(owner), ttl, RData::CNAME(CNAME(name(target))))
}

fn soa(ttl: u32, minimum: u32) -> Record {
    let data = SOA::new(name("ns.test."), name("root.test."), 1, 2, 3, 4, minimum);
    Record::from_rdata(name("test."), ttl, RData::SOA(data))
}

fn message(answers: Vec<Record>) -> Message {
    let mut message = Message::response(1, OpCode::Query);
    message.queries.push(question());
    message.answers = answers;
    message
}

fn read(answers: Vec<Record>) -> Result<Extract, BadAnswer> {
    extract(&message(answers), &question())
}

fn found(last: &[u8], ttl: u32) -> Result<Extract, BadAnswer> {
    let addresses = last.iter().map(|last| Ipv4Addr::new(192, 0, 2, *last).into()).collect();
    Ok(Extract::Addresses { addresses, ttl })
}

#[test]
fn addresses_of_the_owner_alone_in_order_without_repeats() {
    let answers = vec![
        a("a.test.", 2, 60),
        a("b.test.", 9, 60),
        a("A.TEST.", 1, 30),
        a("a.test.", 2, 90),
        Record::from_rdata(name("a.test."), 1, RData::AAAA(AAAA(Ipv6Addr::LOCALHOST))),
    ];
    assert_eq!(read(answers), found(&[2, 1], 30));
}

#[test]
fn ttl_is_the_smallest_and_31_bits() {
    assert_eq!(read(vec![alias("a.test.", "b.test.", 5), a("b.test.", 1, 60)]), found(&[1], 5));
    assert_eq!(read(vec![a("a.test.", 1, 0x7FFF_FFFF)]), found(&[1], 0x7FFF_FFFF));
    assert_eq!(read(vec![a("a.test.", 1, 0x8000_0000)]), found(&[1], 0));
    assert_eq!(read(vec![a("a.test.", 1, u32::MAX)]), found(&[1], 0));
}

#[test]
fn a_chain_may_have_so_many_steps_and_no_more() {
    let owner = |n: usize| {
        if n == 0 { "a.test.".to_owned() } else { format!("c{n}.test.") }
    };
    let chain = |steps: usize| {
        let mut answers: Vec<Record> = (0..steps).map(|n| alias(&owner(n), &owner(n + 1), 60)).collect();
        answers.push(a(&owner(steps), 1, 60));
        answers.reverse();
        read(answers)
    };
    assert_eq!(chain(MAX_CHAIN), found(&[1], 60));
    assert_eq!(chain(MAX_CHAIN + 1), Err(BadAnswer::TooLong));
}

#[test]
fn loops_and_forks() {
    assert_eq!(read(vec![alias("a.test.", "A.test.", 60)]), Err(BadAnswer::Loop));
    let two = vec![alias("a.test.", "b.test.", 60), alias("b.test.", "a.test.", 60)];
    assert_eq!(read(two), Err(BadAnswer::Loop));
    let fork = vec![alias("a.test.", "b.test.", 60), alias("a.test.", "c.test.", 60)];
    assert_eq!(read(fork), Err(BadAnswer::Loop));
    let twice = vec![alias("a.test.", "b.test.", 60), alias("a.test.", "b.test.", 60), a("b.test.", 1, 60)];
    assert_eq!(read(twice), found(&[1], 60));
}

#[test]
fn an_alias_is_open_unless_the_message_says_what_its_end_is() {
    let open = vec![alias("a.test.", "b.test.", 7)];
    assert_eq!(read(open.clone()), Ok(Extract::Alias { target: name("b.test."), ttl: 7 }));
    let mut none = message(open.clone());
    none.authorities.push(soa(60, 30));
    assert_eq!(extract(&none, &question()), Ok(Extract::Empty { nxdomain: false, ttl: Some(30) }));
    let mut missing = message(open);
    missing.metadata.response_code = ResponseCode::NXDomain;
    assert_eq!(extract(&missing, &question()), Ok(Extract::Empty { nxdomain: true, ttl: None }));
}

#[test]
fn messages_that_are_no_answer() {
    let good = message(vec![a("a.test.", 1, 60)]);
    let other = Query::query(name("a.test."), RecordType::AAAA);
    assert_eq!(extract(&good, &other), Err(BadAnswer::Question));
    let mut none = good.clone();
    none.queries.clear();
    assert_eq!(extract(&none, &question()), Err(BadAnswer::Question));
    let mut twice = good.clone();
    twice.queries.push(question());
    assert_eq!(extract(&twice, &question()), Err(BadAnswer::Question));
    let mut cut = good.clone();
    cut.metadata.truncation = true;
    assert_eq!(extract(&cut, &question()), Err(BadAnswer::Truncated));
    let mut foreign = good.clone();
    foreign.answers[0].dns_class = DNSClass::CH;
    assert_eq!(extract(&foreign, &question()), Err(BadAnswer::Class));
    let mut code = good;
    code.metadata.response_code = ResponseCode::ServFail;
    assert_eq!(extract(&code, &question()), Err(BadAnswer::Code));
}

#[test]
fn addresses_in_an_nxdomain_answer_do_not_count() {
    let mut odd = message(vec![a("a.test.", 1, 60)]);
    odd.metadata.response_code = ResponseCode::NXDomain;
    assert_eq!(extract(&odd, &question()), Ok(Extract::Empty { nxdomain: true, ttl: None }));
}

/// The same rule in the plainest way: walk name by name, looking everything up again.
fn naive(answers: &[Record]) -> Option<Vec<IpAddr>> {
    let mut owner = name("a.test.");
    for _ in 0..=MAX_CHAIN {
        let targets: Vec<&Name> = answers
            .iter()
            .filter(|r| r.name == owner)
            .filter_map(|r| match &r.data {
                RData::CNAME(target) => Some(&target.0),
                _ => None,
            })
            .collect();
        let Some(first) = targets.first() else {
            let mut addresses = Vec::new();
            for record in answers.iter().filter(|r| r.name == owner) {
                if let RData::A(a) = &record.data
                    && !addresses.contains(&a.0.into())
                {
                    addresses.push(a.0.into());
                }
            }
            return Some(addresses).filter(|addresses: &Vec<IpAddr>| !addresses.is_empty());
        };
        if targets.iter().any(|target| target != first) {
            return None;
        }
        owner = (*first).clone();
    }
    None
}

proptest! {
    #[test]
    fn agrees_with_a_naive_reader(
        records in prop::collection::vec((0u8..4, 0u8..4, any::<bool>()), 0..8),
    ) {
        let owner = |n: u8| format!("{}.test.", char::from(b'a' + n));
        let answers: Vec<Record> = records.iter().map(|(from, to, is_alias)| {
            if *is_alias { alias(&owner(*from), &owner(*to), 60) } else { a(&owner(*from), *to, 60) }
        }).collect();
        let read = match read(answers.clone()) {
            Ok(Extract::Addresses { addresses, .. }) => Some(addresses),
            _ => None,
        };
        prop_assert_eq!(read, naive(&answers));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(message) = Message::from_vec(&bytes) {
            let _ = extract(&message, &question());
        }
    }
}
