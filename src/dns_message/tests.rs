use std::net::Ipv4Addr;

use hickory_resolver::proto::op::Edns;
use hickory_resolver::proto::rr::Name;
use proptest::prelude::*;

use super::*;

/// A question in octets, with its letters as they stand.
fn question(name: &str, kind: u16, payload: Option<u16>) -> Vec<u8> {
    let mut out = vec![0x12, 0x34, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(payload.is_some())];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        out.push(u8::try_from(label.len()).unwrap());
        out.extend(label.bytes());
    }
    out.push(0);
    out.extend(kind.to_be_bytes());
    out.extend([0, 1]);
    if let Some(payload) = payload {
        out.extend([0, 0, 41]);
        out.extend(payload.to_be_bytes());
        out.extend([0; 6]);
    }
    out
}

fn unfit(packet: &[u8]) -> Unfit {
    Received::read(packet).asked.unwrap_err()
}

#[test]
fn a_question_is_read_and_echoed_to_the_letter() {
    let packet = question("wWw.ExAmple.com", 1, Some(4096));
    let received = Received::read(&packet);
    let asked = received.asked.unwrap();
    assert_eq!((asked.name.as_str(), asked.kind), ("www.example.com", Kind::A));
    let answer =
        Answer { addresses: vec![[192, 0, 2, 1].into()], ttl: 60, ..Answer::empty(Code::NoError, None) };
    let octets = received.back.unwrap().answer(&answer, Transport::Udp).unwrap();
    assert_eq!(octets[..2], [0x12, 0x34]);
    assert_eq!(octets[12..33], packet[12..33]);
    let message = Message::from_vec(&octets).unwrap();
    assert!(message.answers[0].name.eq_case(&Name::from_ascii("wWw.ExAmple.com.").unwrap()));
    assert_eq!(message.answers[0].ttl, 60);
    assert!(message.metadata.recursion_desired && message.metadata.recursion_available);
    assert_eq!(message.edns.as_ref().map(Edns::max_payload), Some(1232));
}

#[test]
fn what_is_no_question_says_why() {
    let good = question("a.example", 1, None);
    let with = |at: usize, octet: u8| {
        let mut packet = good.clone();
        packet[at] = octet;
        packet
    };
    assert_eq!(unfit(&good[..11]), Unfit::Short);
    assert_eq!(unfit(&with(2, 0x81)), Unfit::Response);
    assert!(Received::read(&with(2, 0x81)).back.is_none());
    assert_eq!(unfit(&with(2, 0x28)), Unfit::Opcode(5));
    for at in [4, 5, 7, 9] {
        assert_eq!(unfit(&with(at, 2)), Unfit::Counts);
    }
    assert_eq!(unfit(&with(11, 1)), Unfit::Malformed);
    assert_eq!(unfit(&with(12, 0x80)), Unfit::Malformed);
    assert_eq!(unfit(&with(12, 0xc0)), Unfit::Malformed);
    assert_eq!(unfit(&good[..good.len() - 1]), Unfit::Malformed);
    assert_eq!(unfit(&[&good[..], &[0]].concat()), Unfit::Malformed);
    assert_eq!(unfit(&with(good.len() - 1, 3)), Unfit::Class(3));
    assert_eq!(unfit(&question("a.example", 16, None)), Unfit::Type("TXT".to_owned()));
    assert_eq!(unfit(&question("a.example", 255, None)), Unfit::Type("ANY".to_owned()));
    assert_eq!(unfit(&question("a.example", 65000, None)), Unfit::Type("TYPE65000".to_owned()));
    assert_eq!(unfit(&question("", 1, None)), Unfit::Name(HostError::Empty));
    assert_eq!(unfit(&question("a b.example", 1, None)), Unfit::Name(HostError::Character));
    let mut version = question("a.example", 1, Some(512));
    let at = version.len() - 5;
    version[at] = 1;
    assert_eq!(unfit(&version), Unfit::Version(1));
    assert_eq!(Unfit::Version(1).code().number(), 16);
}

#[test]
fn long_answers_are_cut_for_datagrams_alone() {
    let addresses: Vec<_> = (0..100).map(|n| Ipv4Addr::new(192, 0, 2, n).into()).collect();
    let answer = Answer { addresses, ttl: 5, ..Answer::empty(Code::NoError, None) };
    for (payload, fits) in [(None, 512), (Some(100), 512), (Some(700), 700), (Some(65535), 1232)] {
        let back = Received::read(&question("a.example", 1, payload)).back.unwrap();
        let octets = back.answer(&answer, Transport::Udp).unwrap();
        let message = Message::from_vec(&octets).unwrap();
        assert!(octets.len() <= fits && message.metadata.truncation && message.answers.is_empty());
        let message = Message::from_vec(&back.answer(&answer, Transport::Tcp).unwrap()).unwrap();
        assert!(!message.metadata.truncation && message.answers.len() == 100);
    }
}

#[test]
fn a_refusal_explains_itself_to_those_who_speak_edns() {
    let answer = Answer::empty(Code::Refused, Some(Note { code: 15, text: "domain_denied" }));
    let refuse = |payload| {
        let packet = question("a.example", 1, payload);
        Received::read(&packet).back.unwrap().answer(&answer, Transport::Udp).unwrap()
    };
    assert!(refuse(Some(1232)).ends_with(b"\0\x0f\0\x0f\0\x0fdomain_denied"));
    assert_eq!(refuse(None).len(), question("a.example", 1, None).len());
}

proptest! {
    #[test]
    fn any_octets_are_read_and_answered(packet in proptest::collection::vec(any::<u8>(), 0..80)) {
        answered(&packet);
    }

    #[test]
    fn damaged_questions_are_read_and_answered(
        at in 0..40_usize, octet: u8, payload in proptest::option::of(any::<u16>()),
    ) {
        let mut packet = question("wWw.example.com", 65, payload);
        if let Some(place) = packet.get_mut(at) {
            *place = octet;
        }
        answered(&packet);
    }
}

fn answered(packet: &[u8]) {
    let received = Received::read(packet);
    let code = received.asked.as_ref().map_or_else(Unfit::code, |_| Code::NoError);
    let Some(back) = received.back else {
        assert!(received.asked.is_err());
        return;
    };
    let service =
        Service { priority: 1, alpn: vec!["h2".to_owned()], port: Some(8443), ..Service::default() };
    let answer = Answer { services: vec![service], ..Answer::empty(code, None) };
    for transport in [Transport::Udp, Transport::Tcp] {
        let octets = back.answer(&answer, transport).unwrap();
        let message = Message::from_vec(&octets).unwrap();
        assert_eq!(&octets[..2], &packet[..2]);
        assert!(message.queries.len() <= 1);
    }
}
