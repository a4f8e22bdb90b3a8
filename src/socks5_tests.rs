#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[test]
fn offers() {
    let of = |octets: &[u8]| methods(octets).map(|read| read.map(|(m, taken)| (m.none, m.login, taken)));
    assert_eq!(of(&[5, 1, 0]), Ok(Some((true, false, 3))));
    assert_eq!(of(&[5, 3, 2, 1, 0, 9, 9]), Ok(Some((true, true, 5))));
    assert_eq!(of(&[5, 2, 1, 0x80]), Ok(Some((false, false, 4))));
    assert_eq!(of(&[5, 0]), Ok(Some((false, false, 2))));
    for short in [&[][..], &[5], &[5, 1], &[5, 2, 0]] {
        assert_eq!(of(short), Ok(None), "{short:?}");
    }
    for version in [0, 1, 4, 6, b'G', 0x16, 255] {
        assert_eq!(of(&[version]), Err(Fault::Version(version)));
    }
}

#[test]
fn logins() {
    let octets = b"\x01\x03box\x02abrest";
    let (read, taken) = login(octets).unwrap().unwrap();
    assert_eq!((read, &octets[taken..]), (Login { user: b"box", password: b"ab" }, &b"rest"[..]));
    assert_eq!(format!("{read:?}"), "Login");
    assert_eq!(login(b"\x01\0\0"), Ok(Some((Login { user: b"", password: b"" }, 3))));
    assert_eq!(login(b"\x01\x03bo"), Ok(None));
    assert_eq!(login(b"\x05\x03box"), Err(Fault::LoginVersion(5)));
}

#[test]
fn requests() {
    let name = |command, address, port| Ok(Some(Request { command, address, port }));
    let of = |octets: &[u8]| request(octets).map(|read| read.map(|(request, _)| format!("{request:?}")));
    let shown = |request: Result<Option<Request<'_>>, Fault>| request.map(|r| r.map(|r| format!("{r:?}")));
    for (octets, expected) in [
        (&b"\x05\x01\0\x03\x06a.test\x01\xbb"[..], name(Command::Connect, Address::Name(b"a.test"), 443)),
        (b"\x05\x02\0\x01\x7f\0\0\x01\0\0", name(Command::Bind, Address::Ip([127, 0, 0, 1].into()), 0)),
        (
            b"\x05\x03\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\x50",
            name(Command::UdpAssociate, Address::Ip(Ipv6Addr::LOCALHOST.into()), 80),
        ),
        (b"\x05\x63\0\x03\0\0\x01", name(Command::Other(0x63), Address::Name(b""), 1)),
        (b"\x05\x01\0\x03\x06a.tes", Ok(None)),
        (b"\x05\x01\0\x03\x06a.test\x01", Ok(None)),
        (b"\x04\x01\0", Err(Fault::Version(4))),
        (b"\x05\x01\x01", Err(Fault::Reserved)),
        (b"\x05\x01\0\x02", Err(Fault::AddressType(2))),
        (b"\x05\x01\0\0", Err(Fault::AddressType(0))),
    ] {
        assert_eq!(of(octets), shown(expected), "{octets:?}");
    }
}

#[test]
fn what_is_said() {
    assert_eq!(Method::None.message(), [5, 0]);
    assert_eq!(Method::Login.message(), [5, 2]);
    assert_eq!(Method::NotAcceptable.message(), [5, 255]);
    assert_eq!((login_message(true), login_message(false)), ([1, 0], [1, 1]));
    assert_eq!(Reply::NotAllowed.message(), [5, 2, 0, 1, 0, 0, 0, 0, 0, 0]);
}

/// The outcome of a reader, with what it read as text.
fn outcome<T: std::fmt::Debug>(parsed: Parsed<T>) -> Result<Option<(String, usize)>, Fault> {
    parsed.map(|read| read.map(|(message, taken)| (format!("{message:?}"), taken)))
}

/// The first outcome other than "not whole yet" when octets come one by one.
fn piecewise<'a, T: std::fmt::Debug>(
    octets: &'a [u8],
    read: impl Fn(&'a [u8]) -> Parsed<T>,
) -> Result<Option<(String, usize)>, Fault> {
    let outcomes = (0..=octets.len()).map(|end| outcome(read(&octets[..end])));
    outcomes.into_iter().find(|outcome| !matches!(outcome, Ok(None))).unwrap_or(Ok(None))
}

proptest! {
    #[test]
    fn how_octets_arrive_changes_nothing(octets in vec(prop_oneof![0u8..6, any::<u8>()], 0..300)) {
        prop_assert_eq!(outcome(methods(&octets)), piecewise(&octets, methods));
        prop_assert_eq!(outcome(login(&octets)), piecewise(&octets, login));
        prop_assert_eq!(outcome(request(&octets)), piecewise(&octets, request));
    }

    #[test]
    fn what_is_sent_is_what_is_read(
        user in vec(any::<u8>(), 0..=255),
        password in vec(any::<u8>(), 0..=255),
        name in vec(any::<u8>(), 0..=255),
        port in any::<u16>(),
        rest in vec(any::<u8>(), 0..20),
    ) {
        let length = |text: &[u8]| [u8::try_from(text.len()).unwrap()];
        let sent = [&[1][..], &length(&user), &user, &length(&password), &password, &rest].concat();
        let read = login(&sent).unwrap().unwrap();
        prop_assert_eq!(read, (Login { user: &user, password: &password }, sent.len() - rest.len()));

        let head = [&[5, 1, 0, 3][..], &length(&name), &name].concat();
        let sent = [&head[..], &port.to_be_bytes(), &rest].concat();
        let (read, taken) = request(&sent).unwrap().unwrap();
        prop_assert_eq!(read, Request { command: Command::Connect, address: Address::Name(&name), port });
        prop_assert_eq!(taken, sent.len() - rest.len());
    }

    #[test]
    fn every_whole_message_is_bounded(octets in vec(any::<u8>(), 600)) {
        // Whatever stands there, nobody waits for more than this.
        prop_assert!(!matches!(methods(&octets), Ok(None)));
        prop_assert!(!matches!(login(&octets), Ok(None)));
        prop_assert!(!matches!(request(&octets), Ok(None)));
    }
}
