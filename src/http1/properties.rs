//! Properties that hold for every input: no panic, no dependence on how octets arrive, and
//! agreement with readers written as plainly as possible.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use bytes::{Buf, Bytes, BytesMut};
use proptest::prelude::*;

use super::*;

/// Cuts `input` at the given points (modulo its length) into segments, none of them empty.
fn segments<'a>(input: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut points: Vec<usize> = cuts.iter().map(|cut| cut % (input.len() + 1)).collect();
    points.extend([0, input.len()]);
    points.sort_unstable();
    points.dedup();
    points.windows(2).map(|pair| &input[pair[0]..pair[1]]).collect()
}

fn one_octet_each(input: &[u8]) -> Vec<&[u8]> {
    input.chunks(1).collect()
}

type Fields = Vec<(String, Vec<u8>)>;

/// Everything that can be seen of a head, and how many octets follow it.
type HeadParts = (String, Vec<u8>, Version, Fields, usize);

fn read_head(segments: &[&[u8]]) -> Result<Option<HeadParts>, HeadError> {
    let mut reader = HeadReader::new();
    let mut buffer = BytesMut::new();
    for (at, segment) in segments.iter().enumerate() {
        buffer.extend_from_slice(segment);
        if let Some(head) = reader.read(&mut buffer)? {
            let rest = buffer.len() + segments[at + 1..].iter().map(|segment| segment.len()).sum::<usize>();
            let fields = head.fields().map(|(name, value)| (name.to_owned(), value.to_vec()));
            let fields = fields.collect();
            return Ok(Some((
                head.method().to_owned(),
                head.target().to_vec(),
                head.version(),
                fields,
                rest,
            )));
        }
    }
    Ok(None)
}

/// A request head read the plain way: find the empty line, split at CRLF, split at the colon.
fn naive_head(input: &[u8]) -> Option<HeadParts> {
    let start = if input.starts_with(b"\r\n") { 2 } else { 0 };
    let end = input[start..].windows(4).position(|four| four == b"\r\n\r\n")? + start;
    let text: String = input[start..end].iter().map(|octet| char::from(*octet)).collect();
    if text.replace("\r\n", "").chars().any(|c| c != '\t' && (c < ' ' || c == '\x7f')) {
        return None;
    }
    let mut lines = text.split("\r\n");
    let line: Vec<_> = lines.next()?.split(' ').collect();
    let [method, target, version] = line[..] else {
        return None;
    };
    let version = match version {
        "HTTP/1.0" => Version::Http10,
        "HTTP/1.1" => Version::Http11,
        _ => return None,
    };
    if !naive_token(method) || target.is_empty() || !target.is_ascii() || target.contains('\t') {
        return None;
    }
    let mut fields = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':')?;
        if !naive_token(name) {
            return None;
        }
        let value = value.trim_matches([' ', '\t']).chars().map(|c| u8::try_from(u32::from(c)).unwrap());
        fields.push((name.to_owned(), value.collect()));
    }
    Some((method.to_owned(), target.as_bytes().to_vec(), version, fields, input.len() - end - 4))
}

/// Data and trailers of a whole body, and how many octets followed it.
type BodyResult = Result<Option<(Vec<u8>, Fields, usize)>, BodyError>;

fn read_body(length: BodyLength, segments: &[&[u8]]) -> BodyResult {
    let mut decoder = BodyDecoder::new(length, &Connection::default());
    let mut buffer = BytesMut::new();
    let (mut data, mut trailers) = (Vec::new(), Vec::new());
    // An empty body ends without any octet.
    for at in 0..=segments.len() {
        loop {
            match decoder.decode(&mut buffer)? {
                Decoded::NeedMore => break,
                Decoded::Data(piece) => {
                    assert!(!piece.is_empty());
                    data.extend_from_slice(&piece);
                }
                Decoded::Trailers(fields) => {
                    trailers.extend(fields.into_iter().map(|(name, value)| (name, value.to_vec())));
                }
                Decoded::End => {
                    assert!(decoder.is_done());
                    assert_eq!(decoder.decode(&mut buffer), Ok(Decoded::End));
                    let rest = segments[at..].iter().map(|segment| segment.len()).sum::<usize>();
                    return Ok(Some((data, trailers, buffer.len() + rest)));
                }
            }
        }
        if let Some(segment) = segments.get(at) {
            buffer.extend_from_slice(segment);
        }
    }
    Ok(None)
}

/// A chunked body read the plain way: its data, and how many octets follow it.
fn naive_chunked(mut input: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut data = Vec::new();
    loop {
        let (line, rest) = naive_line(input)?;
        let digits = line.split(';').next()?;
        let size = usize::from_str_radix(digits, 16).ok()?;
        input = rest;
        if digits.starts_with('+') {
            return None;
        }
        if size == 0 {
            break;
        }
        data.extend_from_slice(input.get(..size)?);
        input = input.get(size..)?.strip_prefix(b"\r\n")?;
    }
    loop {
        let (line, rest) = naive_line(input)?;
        input = rest;
        if line.is_empty() {
            return Some((data, input.len()));
        }
        line.split_once(':').filter(|(name, _)| naive_token(name))?;
    }
}

/// The text before the first CRLF, without control characters, and the octets after it.
fn naive_line(input: &[u8]) -> Option<(String, &[u8])> {
    let end = input.windows(2).position(|two| two == b"\r\n")?;
    let line: String = input[..end].iter().map(|octet| char::from(*octet)).collect();
    let clean = !line.chars().any(|c| c != '\t' && (c < ' ' || c == '\x7f'));
    clean.then_some((line, &input[end + 2..]))
}

fn naive_token(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !text.is_empty() && text.chars().all(allowed)
}

/// Octets that are mostly pieces of requests, so that the deep states are reached.
fn head_like() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => prop::sample::select(vec![
            "GET", "CONNECT", " ", "  ", "\t", "http://a.test/", "a:443", "*", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "\r\n",
            "\r\n", "\r\n\r\n", "\n", "\r", "Host: a", "Host", ":", ": ", "Content-Length: 5", "X-A:\tb ", "\0", "PRI * ",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}

/// Octets that are a request, or one with a single octet replaced, inserted or removed.
fn nearly_a_head() -> impl Strategy<Value = Vec<u8>> {
    let field = ("[A-Za-z!_-]{1,8}", "[ \t]{0,2}", "[ -~\u{80}-\u{ff}]{0,12}", "[ \t]{0,2}");
    let fields = prop::collection::vec(field, 0..5);
    let line = ("(\r\n)?", "[A-Z]{1,7}", "[!-~]{1,20}", "HTTP/1\\.[01]");
    let damage = prop::option::weighted(0.5, (any::<prop::sample::Index>(), 0..3, any::<u8>()));
    (line, fields, damage, any::<[u8; 3]>()).prop_map(
        |((lead, method, target, version), fields, damage, rest)| {
            let mut text = format!("{lead}{method} {target} {version}\r\n");
            for (name, before, value, after) in fields {
                text += &format!("{name}:{before}{value}{after}\r\n");
            }
            let mut octets: Vec<u8> = text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
            octets.extend_from_slice(b"\r\n");
            if let Some((at, kind, octet)) = damage {
                let at = at.index(octets.len());
                match kind {
                    0 => octets[at] = octet,
                    1 => octets.insert(at, octet),
                    _ => drop(octets.remove(at)),
                }
            }
            octets.extend_from_slice(&rest);
            octets
        },
    )
}

fn any_head() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![head_like(), nearly_a_head(), prop::collection::vec(any::<u8>(), 0..64)]
}

/// Octets that are mostly pieces of chunked bodies.
fn body_like() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => prop::sample::select(vec![
            "5\r\nhello\r\n", "1\r\na\r\n", "0\r\n", "\r\n", "0\r\n\r\n", "0\r\nX-Sum: a\r\n\r\n", ";a=b", "3", "A", "\n", "\r",
            "5;x\r\nhello\r\n", "Host: x\r\n", "ffffffffffffffffff", "+", " ", "abc",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn any_length() -> impl Strategy<Value = BodyLength> {
    prop_oneof![
        Just(BodyLength::None),
        (0u64..64).prop_map(BodyLength::Length),
        Just(BodyLength::Length(u64::MAX)),
        Just(BodyLength::Chunked),
    ]
}

proptest! {
    #[test]
    fn heads_do_not_depend_on_segmentation(input in any_head(), cuts in prop::collection::vec(any::<usize>(), 0..6)) {
        let whole = read_head(&[&input]);
        prop_assert_eq!(&read_head(&segments(&input, &cuts)), &whole);
        prop_assert_eq!(&read_head(&one_octet_each(&input)), &whole);
    }

    #[test]
    fn heads_agree_with_a_plain_reader(input in any_head()) {
        // Short inputs meet no limit, so both accept the same heads.
        prop_assert_eq!(read_head(&[&input]).ok().flatten(), naive_head(&input));
    }

    #[test]
    fn accepted_heads_can_be_judged_without_panic(input in any_head()) {
        let mut buffer = BytesMut::from(&input[..]);
        if let Ok(Some(head)) = HeadReader::new().read(&mut buffer) {
            let connection = Connection::of(&head);
            let _ = (host_field(&head), body_length(&head), expects_continue(&head), max_forwards(&head));
            let _ = (wants_websocket(&head, &connection), announced_trailers(head.values("Trailer"), &connection));
            for (name, _) in head.fields() {
                let _ = (forward_request_field(name, &connection), forward_trailer_field(name, &connection));
            }
        }
    }

    #[test]
    fn errors_never_repeat_the_input(marker in "[a-z]{12}") {
        for input in [format!("{marker}\r\n"), format!("GET /{marker}\x01"), format!("GET / HTTP/1.1\r\n{marker} : x")] {
            let error = read_head(&[input.as_bytes()]).unwrap_err();
            prop_assert!(!error.to_string().contains(&marker));
        }
    }

    #[test]
    fn bodies_do_not_depend_on_segmentation(
        length in any_length(),
        input in body_like(),
        cuts in prop::collection::vec(any::<usize>(), 0..6),
    ) {
        let whole = read_body(length, &[&input]);
        prop_assert_eq!(&read_body(length, &segments(&input, &cuts)), &whole);
        prop_assert_eq!(&read_body(length, &one_octet_each(&input)), &whole);
    }

    #[test]
    fn bodies_agree_with_a_plain_reader(input in body_like()) {
        let read = read_body(BodyLength::Chunked, &[&input]).ok().flatten();
        prop_assert_eq!(read.map(|(data, _, rest)| (data, rest)), naive_chunked(&input));
    }

    #[test]
    fn what_is_encoded_is_decoded(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
        trailers in prop::collection::vec(("X-[A-Z][a-z]{0,6}", "[!-~]([ -~]{0,8}[!-~])?"), 0..4),
        next in any::<[u8; 3]>(),
        cuts in prop::collection::vec(any::<usize>(), 0..6),
    ) {
        let client = Recipient { version: Version::Http11, method: "GET", persistent: true };
        let mut encoder = BodyEncoder::new(&client, 200, None);
        let mut wire = BytesMut::new();
        for piece in &pieces {
            let mut frame = encoder.encode(Bytes::copy_from_slice(piece)).unwrap();
            wire.extend_from_slice(&frame.copy_to_bytes(frame.remaining()));
        }
        let cut_off = read_body(BodyLength::Chunked, &[&wire]);
        prop_assert_eq!(cut_off, Ok(None), "unfinished, yet it looks complete");
        let fields = trailers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        encoder.finish(&mut wire, fields).unwrap();
        wire.extend_from_slice(&next);

        let expected: Vec<_> = trailers.iter().map(|(name, value)| (name.clone(), value.as_bytes().to_vec())).collect();
        let decoded = read_body(BodyLength::Chunked, &segments(&wire, &cuts));
        prop_assert_eq!(decoded, Ok(Some((pieces.concat(), expected, next.len()))));
    }
}
