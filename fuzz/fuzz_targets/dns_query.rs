//! Any octets as a question for a name: read, decided and answered without a panic, and the answer
//! repeats the question and fits into its datagram.
#![no_main]

use std::net::IpAddr;

use egret::dns_message::{Answer, Code, Kind, Note, Received, Service, Transport};
use egret_fuzz::check_name;
use hickory_resolver::proto::op::Message;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|packet: &[u8]| {
    let received = Received::read(packet);
    let answer = match &received.asked {
        Err(unfit) => Answer::empty(unfit.code(), Some(Note { code: 21, text: "bad_request" })),
        Ok(asked) => match check_name(&asked.name, &addresses(packet)) {
            Err(refusal) => {
                Answer::empty(Code::Refused, Some(Note { code: 15, text: refusal.reason.code() }))
            }
            Ok(told) => answer(asked.kind, told),
        },
    };
    let Some(back) = received.back else {
        assert!(received.asked.is_err());
        return;
    };
    for transport in [Transport::Udp, Transport::Tcp] {
        let Some(octets) = back.answer(&answer, transport) else {
            unreachable!("every answer can be written");
        };
        assert_eq!(octets.get(..2), packet.get(..2));
        assert!(transport == Transport::Tcp || octets.len() <= 1232);
        let Ok(message) = Message::from_vec(&octets) else {
            unreachable!("every answer can be read");
        };
        if let (Ok(asked), [query]) = (&received.asked, message.queries.as_slice()) {
            // Not as text, in which hickory escapes a hyphen that begins a label.
            let labels: Vec<&[u8]> = query.name.iter().collect();
            assert!(labels.join(&b'.').eq_ignore_ascii_case(asked.name.as_str().as_bytes()));
        }
    }
});

/// Addresses that the octets stand for, a hundred times as many where they end in 1.
fn addresses(packet: &[u8]) -> Vec<IpAddr> {
    let last = packet.last().copied().unwrap_or_default();
    let host = |n: u8| IpAddr::from([if last == 2 { 10 } else { 93 }, 184, last, n]);
    (0..if last == 1 { 100 } else { 1 }).map(host).collect()
}

fn answer(kind: Kind, told: Vec<IpAddr>) -> Answer {
    let empty = Answer { ttl: 60, ..Answer::empty(Code::NoError, None) };
    match kind {
        Kind::A => Answer { addresses: told, ..empty },
        Kind::Aaaa => empty,
        Kind::Https => {
            let service = Service { priority: 1, alpn: vec!["h2".to_owned()], ..Service::default() };
            Answer { services: vec![service], ..empty }
        }
    }
}
