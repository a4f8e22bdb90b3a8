use std::sync::Arc;

use proptest::prelude::*;
use rustls::pki_types::{IpAddr, ServerName};

use super::*;

const HELLO: u8 = CLIENT_HELLO;

fn number(n: usize, width: usize) -> Vec<u8> {
    n.to_be_bytes()[8 - width..].to_vec()
}

/// `data` behind its length in `width` bytes.
fn vector(width: usize, data: &[u8]) -> Vec<u8> {
    [&number(data.len(), width), data].concat()
}

fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector(2, data)].concat()
}

fn name_entry(kind: u8, name: &[u8]) -> Vec<u8> {
    [&[kind][..], &vector(2, name)].concat()
}

fn server_name(name: &[u8]) -> Vec<u8> {
    extension(0, &vector(2, &name_entry(0, name)))
}

/// Everything of the body before the extension list.
fn preamble() -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend(vector(1, &[9; 32]));
    body.extend(vector(2, &[0x13, 1, 0x13, 2]));
    body.extend(vector(1, &[0]));
    body
}

/// A handshake message with the given extensions.
fn message(extensions: &[u8]) -> Vec<u8> {
    handshake(HELLO, &[preamble(), vector(2, extensions)].concat())
}

fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &vector(3, body)].concat()
}

fn record(kind: u8, fragment: &[u8]) -> Vec<u8> {
    [&[kind, 3, 1][..], &vector(2, fragment)].concat()
}

/// The message in records of at most `size` bytes.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    let pieces = message.chunks(size);
    pieces.flat_map(|piece| record(22, piece)).collect()
}

fn read(bytes: &[u8]) -> Result<Option<ClientHello>, ClientHelloError> {
    ClientHelloReader::new().read(bytes)
}

/// Reads a hello with the given extensions, sent whole.
fn read_extensions(extensions: &[u8]) -> Result<Option<ClientHello>, ClientHelloError> {
    read(&records(&message(extensions), MAX_FRAGMENT))
}

fn read_name(name: &[u8]) -> ClientHello {
    read_extensions(&server_name(name)).unwrap().unwrap()
}

/// Reads in steps of `step` bytes, as they would arrive.
fn read_in_steps(bytes: &[u8], step: usize) -> Result<Option<ClientHello>, ClientHelloError> {
    let mut reader = ClientHelloReader::new();
    let mut end = 0;
    while end < bytes.len() {
        end = (end + step).min(bytes.len());
        match reader.read(&bytes[..end]) {
            Ok(None) => {}
            verdict => return verdict,
        }
    }
    Ok(None)
}

#[track_caller]
fn assert_malformed(verdict: Result<Option<ClientHello>, ClientHelloError>, about: &str) {
    match verdict {
        Err(Malformed(text)) => assert!(text.contains(about), "{text:?} is not about {about:?}"),
        other => panic!("{other:?} instead of a malformed hello ({about})"),
    }
}

#[test]
fn finds_the_name_among_other_extensions() {
    let extensions = [
        extension(0x0a0a, &[]),
        extension(10, &[0, 2, 0, 29]),
        server_name(b"Example.com"),
        extension(0x1234, &[1; 1200]),
    ]
    .concat();
    let hello = read_extensions(&extensions).unwrap().unwrap();
    assert_eq!(hello.server_name(), Some(&b"Example.com"[..]));
    assert!(!hello.has_ech());
    assert!(hello.names_host("example.com"));
    assert!(!hello.names_host("api.example"));
}

#[test]
fn only_an_equal_name_names_the_host() {
    for other in [
        &b"example.com."[..],
        b"example.com.evil.test",
        b"example.com\0.evil.test",
        b"example.com\0",
        b" example.com",
        b"xexample.com",
        b"example.co",
        b"ex\xe4mple.com",
        b"*.com",
    ] {
        let hello = read_name(other);
        assert_eq!(hello.server_name(), Some(other));
        assert!(!hello.names_host("example.com"), "{other:?}");
    }
    assert!(read_name(b"foo_bar.allowed.example").names_host("foo_bar.allowed.example"));
}

#[test]
fn a_hello_without_a_name_names_nobody() {
    let none = read_extensions(&extension(10, &[0, 2, 0, 29])).unwrap().unwrap();
    assert_eq!(none.server_name(), None);
    assert!(!none.names_host(""));

    let no_list = records(&handshake(HELLO, &preamble()), MAX_FRAGMENT);
    assert_eq!(read(&no_list).unwrap().unwrap().server_name(), None);
}

#[test]
fn ech_is_reported_and_the_outer_name_kept() {
    let extensions = [server_name(b"outer.example"), extension(0xfe0d, &[0; 186])].concat();
    let hello = read_extensions(&extensions).unwrap().unwrap();
    assert!(hello.has_ech());
    assert!(hello.names_host("outer.example"));
}

#[test]
fn bytes_after_the_hello_are_left_alone() {
    let hello = records(&message(&server_name(b"example.com")), 50);
    let early_data = [hello.clone(), record(23, &[0; 16])].concat();
    let read = read(&early_data).unwrap().unwrap();
    assert_eq!(read.wire_len(), hello.len());
}

#[test]
fn other_protocols_are_not_tls() {
    for bytes in [
        &b"SSH-2.0-OpenSSH_9.6\r\n"[..],
        b"GET / HTTP/1.1\r\n",
        b"\x15\x03\x01\x00\x02\x01\x00",
        b"\x17\x03\x03\x00\x01\x00",
        b"\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10",
        b"\x16\x02\x01\x00\x05",
        b"\x16\xfe\xff\x00\x05",
        b"\0",
    ] {
        assert_eq!(read(bytes), Err(NotTls), "{bytes:?}");
        assert_eq!(read_in_steps(bytes, 1), Err(NotTls), "{bytes:?}");
    }
}

#[test]
fn records_follow_the_rules() {
    let hello = message(&server_name(b"example.com"));
    let (head, tail) = hello.split_at(20);

    assert_malformed(read(&[record(22, &[]), record(22, &hello)].concat()), "empty");
    let empty_later = [record(22, head), record(22, &[]), record(22, tail)].concat();
    assert_malformed(read(&empty_later), "empty");

    let alert_between = [record(22, head), record(21, &[1, 0]), record(22, tail)].concat();
    assert_malformed(read(&alert_between), "another record");

    let mut other_version = [record(22, head), record(22, tail)].concat();
    other_version[head.len() + RECORD_HEADER + 1] = 2;
    assert_malformed(read(&other_version), "version");

    assert_malformed(read(b"\x16\x03\x01\x40\x01"), "2^14");
    assert_malformed(read(&record(22, b"hello")), "not a ClientHello");
    assert_malformed(read(&record(22, &[hello.clone(), hello].concat())), "data after");
}

#[test]
fn size_is_refused_by_the_header_alone() {
    let announced = [&[HELLO][..], &number(MAX_HANDSHAKE + 1, 3)].concat();
    assert_eq!(read(&record(22, &announced)), Err(TooLarge));
    assert_eq!(read(b"\x16\x03\x01\x40\x00\x01\x0f\xff\xff"), Err(TooLarge));
    let permitted = [&[HELLO][..], &number(MAX_HANDSHAKE, 3)].concat();
    assert_eq!(read(&record(22, &permitted)), Ok(None));
}

#[test]
fn large_hellos_are_read() {
    for padding in [300, 1500, 4000, 16_000, 60_000] {
        let extensions = [extension(21, &vec![0; padding]), server_name(b"last.example")].concat();
        let message = message(&extensions);
        for size in [100, MAX_FRAGMENT] {
            let bytes = records(&message, size);
            let hello = read_in_steps(&bytes, 1460).unwrap().unwrap();
            assert!(hello.names_host("last.example"));
            assert_eq!(hello.wire_len(), bytes.len());
        }
    }
}

#[test]
fn bodies_follow_the_rules() {
    let read_body = |body: &[u8]| read(&record(22, &handshake(HELLO, body)));
    let rest = &preamble()[34..];
    assert_malformed(read_body(&[]), "version");
    assert_malformed(read_body(&[2, 0]), "version");
    assert_malformed(read_body(&[3, 3, 0]), "random");
    let start = [3; 34];
    assert_malformed(read_body(&start), "session");
    assert_malformed(read_body(&[&start[..], &vector(1, &[0; 33])].concat()), "session");
    assert_malformed(read_body(&[&start[..], &[0, 0, 0]].concat()), "cipher");
    assert_malformed(read_body(&[&start[..], &[0, 0, 3, 1, 2, 3]].concat()), "cipher");
    assert_malformed(read_body(&[&start[..], &[0, 0, 2, 1, 2, 0]].concat()), "compression");
    let odd_ends: [&[u8]; 4] = [&[0], &[0, 1], &[0, 0, 0], &[0, 5, 0, 0, 0, 0]];
    for end in odd_ends {
        assert_malformed(read_body(&[&start[..], rest, end].concat()), "extension list");
    }
}

#[test]
fn extensions_follow_the_rules() {
    let name = server_name(b"example.com");
    let junk: [&[u8]; 3] = [&[0], &[0, 9, 0], &[0, 9, 0, 2, 1]];
    for junk in junk {
        assert_malformed(read_extensions(&[&name[..], junk].concat()), "truncated");
    }
    assert_malformed(read_extensions(&[&name[..], &name].concat()), "two server_name");
}

#[test]
fn name_lists_hold_one_host_name() {
    let read_list = |list: &[u8]| read_extensions(&extension(0, &vector(2, list)));
    let good = name_entry(0, b"example.com");
    let other = name_entry(0, b"evil.test");
    let unknown = name_entry(1, b"evil.test");
    assert_malformed(read_list(&[&good[..], &other].concat()), "more than one");
    assert_malformed(read_list(&[&good[..], &unknown].concat()), "more than one");
    assert_malformed(read_list(&[&good[..], &[0]].concat()), "more than one");
    assert_malformed(read_list(&unknown), "unknown type");
    assert_malformed(read_list(&[&unknown[..], &good].concat()), "unknown type");
    assert_malformed(read_list(&name_entry(0, b"")), "empty server name");
    assert_malformed(read_list(&[]), "name list");
    assert_malformed(read_list(&good[..good.len() - 1]), "name list");
    assert_malformed(read_extensions(&extension(0, &[])), "server_name extension");
    let trailing = [vector(2, &good), vec![0]].concat();
    assert_malformed(read_extensions(&extension(0, &trailing)), "server_name extension");
}

/// The first flight of a real client.
fn rustls_hello(name: ServerName<'static>, protocols: usize, sni: bool) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    config.enable_sni = sni;
    let protocol = |n| format!("a-protocol-with-a-long-name/{n:05}").into_bytes();
    config.alpn_protocols = (0..protocols).map(protocol).collect();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

#[test]
fn agrees_with_rustls() {
    let domain = ServerName::try_from("some-name.example").unwrap();
    let address = ServerName::IpAddress(IpAddr::V4([192, 0, 2, 1].into()));
    for (name, sni, protocols) in [
        (domain.clone(), true, 0),
        (domain.clone(), true, 2),
        (domain.clone(), true, 1000),
        (domain, false, 1),
        (address, true, 0),
    ] {
        let bytes = rustls_hello(name, protocols, sni);
        // A post-quantum key share makes a hello larger than a kilobyte.
        assert!(bytes.len() > 1200, "{} bytes", bytes.len());
        let ours = read_in_steps(&bytes, 1).unwrap().unwrap();
        assert_eq!(ours.wire_len(), bytes.len());

        let mut acceptor = rustls::server::Acceptor::default();
        let mut rest = &bytes[..];
        let accepted = loop {
            acceptor.read_tls(&mut rest).unwrap();
            match acceptor.accept() {
                Ok(Some(accepted)) => break accepted,
                Ok(None) => {}
                Err((error, _)) => panic!("{error}"),
            }
        };
        let theirs = accepted.client_hello();
        assert_eq!(ours.server_name(), theirs.server_name().map(str::as_bytes));
    }
}

fn arbitrary_hello() -> impl Strategy<Value = Vec<u8>> {
    let other = (1u16.., proptest::collection::vec(any::<u8>(), 0..400))
        .prop_map(|(kind, data)| extension(kind, &data));
    let name = proptest::collection::vec(any::<u8>(), 1..80);
    let others = proptest::collection::vec(other, 0..6);
    (others, proptest::option::of(name)).prop_map(|(mut list, name)| {
        list.extend(name.map(|name| server_name(&name)));
        message(&list.concat())
    })
}

/// A verdict without the length, which depends on the record headers.
fn essence(hello: &ClientHello) -> (Option<&[u8]>, bool) {
    (hello.server_name(), hello.has_ech())
}

proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&bytes);
        let _ = read(&record(22, &handshake(HELLO, &bytes)));
        let _ = read_extensions(&bytes);
        let _ = read_extensions(&extension(0, &bytes));
    }

    #[test]
    fn pieces_do_not_matter(
        message in arbitrary_hello(),
        size in 1usize..600,
        step in 1usize..600,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    ) {
        let whole = read(&records(&message, MAX_FRAGMENT)).unwrap().unwrap();
        let mut pieces = records(&message, size);
        let hello = read_in_steps(&pieces, step).unwrap().unwrap();
        prop_assert_eq!(hello.wire_len(), pieces.len());
        prop_assert_eq!(essence(&hello), essence(&whole));

        for (at, value) in flips {
            *at.get_mut(&mut pieces) = value;
        }
        prop_assert_eq!(read_in_steps(&pieces, step), read(&pieces));
    }

    #[test]
    fn a_truncated_hello_is_never_complete(
        message in arbitrary_hello(),
        size in 1usize..600,
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = records(&message, size);
        prop_assert_eq!(read(&bytes[..cut.index(bytes.len())]), Ok(None));
    }
}
