use proptest::prelude::*;

use super::*;

fn record(kind: u8, fragment: &[u8]) -> Vec<u8> {
    let length = u16::try_from(fragment.len()).unwrap().to_be_bytes();
    [&[kind, 3, 3][..], &length, fragment].concat()
}

/// A ServerHello with this random, and so much behind it.
fn server_hello(random: &[u8; 32], rest: usize) -> Vec<u8> {
    let length = u32::try_from(2 + 32 + rest).unwrap().to_be_bytes();
    [&[2][..], &length[1..], &[3, 3], random, &vec![2; rest]].concat()
}

fn retry(rest: usize) -> Vec<u8> {
    server_hello(&RETRY_RANDOM, rest)
}

/// A message in records of at most `size` bytes.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|piece| record(HANDSHAKE, piece)).collect()
}

/// How many retries there were, and whether another may follow.
fn verdict(pieces: &[&[u8]]) -> (usize, bool) {
    let mut reader = AnswerReader::default();
    for piece in pieces {
        reader.read(piece);
    }
    (reader.retries(), !reader.is_over())
}

#[test]
fn the_random_is_the_hash_that_it_should_be() {
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, b"HelloRetryRequest");
    assert_eq!(hash.as_ref(), RETRY_RANDOM);
}

#[test]
fn a_retry_is_known_by_its_first_43_bytes_wherever_they_are_cut() {
    let bytes = records(&retry(50), MAX_FRAGMENT);
    for end in 0..=bytes.len() {
        let expected = (usize::from(end >= 43), true);
        assert_eq!(verdict(&[&bytes[..end]]), expected, "{end} bytes");
        assert_eq!(verdict(&[&bytes[..end / 2], &bytes[end / 2..end]]), expected, "{end} bytes in two");
    }
    assert_eq!(verdict(&bytes.chunks(1).collect::<Vec<_>>()), (1, true));
}

#[test]
fn the_first_byte_that_differs_decides() {
    let bytes = records(&retry(50), MAX_FRAGMENT);
    // The minor version of the record, and both lengths.
    let any = [2, 3, 4, 6, 7, 8];
    for at in (0..43).filter(|at| !any.contains(at)) {
        for flip in [1, 0x80] {
            let mut other = bytes.clone();
            other[at] ^= flip;
            assert_eq!(verdict(&[&other[..at]]), (0, true), "byte {at}");
            assert_eq!(verdict(&[&other[..=at]]), (0, false), "byte {at}, flipped by {flip:x}");
        }
    }
}

#[test]
fn other_answers_are_none() {
    for bytes in [
        &b"\x15\x03\x03\x00\x02\x02\x28"[..],
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 400 Bad Request\r\n",
        b"220 mail.example ESMTP\r\n",
        b"\0",
        b"\x17\x03\x03\x00\x20",
        b"\x16\x02",
        b"\x16\x03\x03\x00\x26\x01",
        // A length without room for a random, and a record longer than any may be.
        b"\x16\x03\x03\x00\x26\x02\x00\x00\x21",
        b"\x16\x03\x03\xff\xff",
    ] {
        assert_eq!(verdict(&[bytes]), (0, false), "{bytes:?}");
        assert_eq!(verdict(&[&bytes[..bytes.len() - 1]]).0, 0);
    }
    assert_eq!(verdict(&[&records(&server_hello(&[7; 32], 40), MAX_FRAGMENT)]), (0, false));
}

#[test]
fn an_end_is_an_answer() {
    let mut reader = AnswerReader::default();
    reader.read(&[22, 3]);
    assert!(!reader.is_over());
    reader.end();
    assert!(reader.is_over());
}

#[test]
fn each_retry_counts_and_compatibility_mode_does_not_end_them() {
    let spec = record(CHANGE_CIPHER_SPEC, &[1]);
    let (first, second) = (records(&retry(50), 100), records(&retry(0), 7));
    let hello = records(&server_hello(&[7; 32], 40), 100);
    assert_eq!(verdict(&[&first, &spec]), (1, true));
    assert_eq!(verdict(&[&first, &spec, &hello]), (1, false));
    assert_eq!(verdict(&[&first, &hello]), (1, false));
    assert_eq!(verdict(&[&spec, &first, &second, &spec, &hello, &first]), (2, false));
    // Two messages in one record.
    assert_eq!(verdict(&[&record(HANDSHAKE, &[retry(9), retry(0)].concat())]), (2, true));
    let encrypted = record(APPLICATION_DATA, &[0; 40]);
    assert_eq!(verdict(&[&first, &spec, &encrypted]), (1, false));
}

/// How many bytes come before the hello, and what is wrong behind them; in one piece and byte by byte.
fn before(bytes: &[u8]) -> (usize, Option<ClientHelloError>) {
    let in_pieces = |most: usize| {
        let (mut reader, mut count) = (LeadingRecords::default(), 0);
        loop {
            let rest = &bytes[count..];
            match reader.read(&rest[..most.min(rest.len())]) {
                Ok(0) => return (count, None),
                Ok(more) => count += more,
                Err(error) => {
                    assert_eq!(reader.read(rest), Err(error), "final");
                    return (count, Some(error));
                }
            }
        }
    };
    assert_eq!(in_pieces(bytes.len()), in_pieces(1));
    in_pieces(1)
}

#[test]
fn what_comes_before_a_second_hello_is_passed_over() {
    let hello = record(HANDSHAKE, &[1, 0, 0, 4]);
    let spec = record(CHANGE_CIPHER_SPEC, &[1]);
    let early = record(APPLICATION_DATA, &[HANDSHAKE; MAX_FRAGMENT]);
    let alert = record(ALERT, &[2, 40]);
    for leading in [
        vec![],
        spec.clone(),
        alert.clone(),
        early.clone(),
        record(APPLICATION_DATA, &[]),
        [early.clone(), spec.clone(), early, alert].concat(),
    ] {
        let length = leading.len();
        assert_eq!(before(&leading), (length, None));
        assert_eq!(before(&[leading.clone(), hello.clone()].concat()), (length, None));
        assert_eq!(before(&[&leading[..], b"GET / HTTP/1.1\r\n"].concat()), (length, Some(NotTls)));
    }
    for end in 1..spec.len() {
        assert_eq!(before(&spec[..end]), (end, None));
    }
    assert!(matches!(before(&[CHANGE_CIPHER_SPEC, 2]), (1, Some(Malformed(_)))));
    assert!(matches!(before(&[CHANGE_CIPHER_SPEC, HANDSHAKE]), (1, Some(Malformed(_)))));
    assert!(matches!(before(&[APPLICATION_DATA, 3, 3, 0x41, 1]), (4, Some(Malformed(_)))));
    assert!(matches!(before(&[APPLICATION_DATA, 3, 3, 0xff]), (4, None)));
    assert_eq!(before(&[24]), (0, Some(NotTls)));
    assert_eq!(before(&[0x80, 0x2e, 1, 3, 1]), (0, Some(NotTls)));
}

proptest! {
    #[test]
    fn a_retry_is_found_in_any_records(
        size in 1usize..200,
        rest in 0usize..300,
        after in proptest::collection::vec(any::<u8>(), 0..40),
        step in 1usize..100,
    ) {
        let bytes = [records(&retry(rest), size), after].concat();
        let pieces: Vec<_> = bytes.chunks(step).collect();
        let (retries, open) = verdict(&pieces);
        prop_assert!(retries == 1);
        prop_assert_eq!((retries, open), verdict(&[&bytes]));
    }

    #[test]
    fn pieces_do_not_matter(
        bytes in proptest::collection::vec(prop_oneof![Just(22), Just(3), Just(0), Just(2), any::<u8>()], 0..300),
        start in 0usize..48,
        step in 1usize..50,
    ) {
        let bytes = [&records(&retry(40), MAX_FRAGMENT)[..start], &bytes].concat();
        let pieces: Vec<_> = bytes.chunks(step).collect();
        prop_assert_eq!(verdict(&pieces), verdict(&[&bytes]));
        let _ = before(&bytes);
    }
}
