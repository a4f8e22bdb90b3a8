//! A DNS server's bytes -> message -> addresses of both families -> the policy's verdict.
//!
//! The question is the first one in the message, so that what follows is reached. Every address
//! that comes out is of the family asked for, and stands in a record of the message.
#![no_main]

use std::net::IpAddr;

use egret::resolve::{Extract, extract};
use egret_fuzz::check_answer;
use hickory_resolver::proto::op::{Message, Query};
use hickory_resolver::proto::rr::{RData, RecordType};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let Ok(mut message) = Message::from_vec(bytes) else { return };
    let Some(name) = message.queries.first().map(|query| query.name.clone()) else { return };
    for kind in [RecordType::A, RecordType::AAAA] {
        let question = Query::query(name.clone(), kind);
        message.queries = vec![question.clone()];
        let Ok(Extract::Addresses { addresses, .. }) = extract(&message, &question) else { continue };
        assert!(!addresses.is_empty());
        for address in &addresses {
            assert_eq!(address.is_ipv6(), kind == RecordType::AAAA);
            assert!(message.answers.iter().any(|record| holds(&record.data, *address)), "{address}");
        }
        check_answer(*which, &addresses);
    }
});

fn holds(data: &RData, address: IpAddr) -> bool {
    match (data, address) {
        (RData::A(a), IpAddr::V4(v4)) => a.0 == v4,
        (RData::AAAA(a), IpAddr::V6(v6)) => a.0 == v6,
        _ => false,
    }
}
