//! What the head reader accepts and refuses, and after how many octets.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;

/// The error and after how many octets it was known.
fn refusal(input: &[u8]) -> Option<(HeadError, usize)> {
    let mut reader = HeadReader::new();
    (1..=input.len()).find_map(|end| reader.scan(&input[..end]).err().map(|error| (error, end)))
}

#[test]
fn other_protocols_are_named_at_the_first_octet_that_tells() {
    for (input, foreign, octets) in [
        (&b"\x16\x03\x01\x00\xa5\x01"[..], Foreign::Tls, 1),
        (b"\x05\x01\x00", Foreign::Socks, 1),
        (b"\x04\x01\x00\x50", Foreign::Socks, 1),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Foreign::Http2, 12),
        (b"SSH-2.0-OpenSSH_9.6\r\n", Foreign::Ssh, 20),
        (b"EHLO x\r\n", Foreign::Smtp, 7),
        (b"PROXY TCP4 10.0.0.9 10.0.0.1 1234 443\r\n", Foreign::ProxyProtocol, 12),
        (b"PROXY UNKNOWN\r\n", Foreign::ProxyProtocol, 14),
        (b"\x00\x00\x00\x08", Foreign::Binary, 1),
        (b"\x80\x2e\x01\x03", Foreign::Binary, 1),
    ] {
        let expected = Some((HeadError::Foreign(foreign), octets));
        assert_eq!(refusal(input), expected, "{input:?}");
    }
    let preface = b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c";
    assert_eq!(refusal(preface), Some((HeadError::EmptyLines, 3)));
}

#[test]
fn request_lines_are_strict() {
    use HeadError::{EmptyLines, LineEnding, Method, RequestLine, Target, Version};
    for (input, error) in [
        (&b" GET / HTTP/1.1\r\n"[..], Method),
        (b"\tGET / HTTP/1.1\r\n", Method),
        (b"GET\thttp://a/ HTTP/1.1\r\n", Method),
        (b"G=(e) / HTTP/1.1\r\n", Method),
        (b"{\"a\":1}", Method),
        (b"G\x00T / HTTP/1.1\r\n", Method),
        (b"G\xc3\x89T / HTTP/1.1\r\n", Method),
        (b"GET  http://a/ HTTP/1.1\r\n", Target),
        (b"GET \thttp://a/ HTTP/1.1\r\n", Target),
        (b"GET http://a\tb/ HTTP/1.1\r\n", Target),
        (b"GET http://a\x00b/ HTTP/1.1\r\n", Target),
        (b"GET http://\xc3\xa4/ HTTP/1.1\r\n", Target),
        (b"GET http://a\x7f/ HTTP/1.1\r\n", Target),
        (b"CONNECT \x1b[31m:443 HTTP/1.1\r\n", Target),
        (b"GET\r\n", RequestLine),
        (b"GET \r\n", RequestLine),
        (b"GET http://a/\r\n", RequestLine),
        (b"GET http://a/ \r\n", RequestLine),
        (b"GET http://a/  HTTP/1.1\r\n", RequestLine),
        (b"GET http://a/\x20\tHTTP/1.1\r\n", RequestLine),
        (b"GET http://a/ HTTP/1.1 \r\n", RequestLine),
        (b"GET http://a/ HTTP/1.1 x\r\n", RequestLine),
        (b"GET http://a/ http://b/ HTTP/1.1\r\n", RequestLine),
        (b"GET http://a/ b HTTP/1.1\r\n", RequestLine),
        (b"GET http://a/ FOO\r\n", RequestLine),
        (b"GET http://a/ http/1.1\r\n", RequestLine),
        (b"GET http://a/ HTTP/\r\r1.1\r\n", RequestLine),
        (b"GET http://a/ HTTP/1.1\x00\r\n", RequestLine),
        (b"GET http://a/ HTTP/1.10\r\n", RequestLine),
        (b"GET http://a/ HTTP/11\r\n", Version),
        (b"GET http://a/ HTTP/1,1\r\n", RequestLine),
        (b"GET http://a/ HTTPS/1.1\r\n", RequestLine),
        (b"GET http://a/ HTTP/0.9\r\n", Version),
        (b"GET http://a/ HTTP/1.2\r\n", Version),
        (b"GET http://a/ HTTP/2.0\r\n", Version),
        (b"GET http://a/ HTTP/9.9\r\n", Version),
        (b"GET http://a/ HTTP/01.1\r\n", Version),
        (b"GET http://a/ HTTP/1.1\n", LineEnding),
        (b"GET http://a/ HTTP/1.1\rHost: a", LineEnding),
        (b"GET http://a/ HTTP/1.1\r\r\n", LineEnding),
        (b"GET http://a/\n", LineEnding),
        (b"CONNECT a\nb:443 HTTP/1.1\r\n", LineEnding),
        (b"CONNECT a\rb:443 HTTP/1.1\r\n", RequestLine),
        (b"\nGET / HTTP/1.1\r\n", LineEnding),
        (b"\rGET / HTTP/1.1\r\n", LineEnding),
        (b"\r\n\r\nGET / HTTP/1.1\r\n", EmptyLines),
        (b"\r\n\nGET / HTTP/1.1\r\n", LineEnding),
    ] {
        let (refused, _) = refusal(input).unwrap();
        assert_eq!((refused, refused.status()), (error, 400), "{input:?}");
    }
}

#[test]
fn faults_in_fields_are_found_at_once() {
    let line = &b"GET http://a/ HTTP/1.1\r\n"[..];
    for (fields, error, status) in [
        (&b" Host: a\r\n"[..], FieldError::Folded, 400),
        (b"\n", FieldError::LineEnding, 400),
        (b"X: a\r\n b\r\n", FieldError::Folded, 400),
        (b"Content-Length : 5\r\n", FieldError::Name, 400),
        (b"X: a\nTransfer-Encoding: chunked\r\n", FieldError::LineEnding, 400),
        (b"User-Agent: \x1b[2J\r\n", FieldError::Value, 400),
    ] {
        let (refused, _) = refusal(&[line, fields].concat()).unwrap();
        assert_eq!((refused, refused.status()), (HeadError::Field(error), status), "{fields:?}");
    }
}

#[test]
fn limits_are_inclusive() {
    let line = |method: usize, target: usize| {
        format!("{} {} HTTP/1.1\r\n\r\n", "A".repeat(method), "a".repeat(target)).into_bytes()
    };
    let longest_target = MAX_REQUEST_LINE - "GET  HTTP/1.1".len();
    assert_eq!(refusal(&line(3, longest_target)), None);
    let (error, octets) = refusal(&line(3, longest_target + 1)).unwrap();
    assert_eq!((error, error.status()), (HeadError::RequestLineTooLong, 414));
    assert_eq!(octets, MAX_REQUEST_LINE + 1);

    assert_eq!(refusal(&line(MAX_METHOD, 1)), None);
    let (error, octets) = refusal(&line(MAX_METHOD + 1, 1)).unwrap();
    assert_eq!((error, error.status(), octets), (HeadError::MethodTooLong, 501, MAX_METHOD + 1));

    let fields = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(count)).into_bytes();
    assert_eq!(refusal(&fields(MAX_FIELDS)), None);
    assert_eq!(refusal(&fields(MAX_FIELDS + 1)).unwrap().0.status(), 431);

    let block = |size: usize| format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(size - 5)).into_bytes();
    assert_eq!(refusal(&block(MAX_FIELDS_BYTES)), None);
    assert_eq!(refusal(&block(MAX_FIELDS_BYTES + 1)).unwrap().0.status(), 431);
}

#[test]
fn the_largest_head_is_split() {
    let target = "a".repeat(MAX_REQUEST_LINE - "GET  HTTP/1.1".len());
    let value = "y".repeat(MAX_FIELDS_BYTES / MAX_FIELDS - "X: \r\n".len());
    let fields = format!("X: {value}\r\n").repeat(MAX_FIELDS);
    let mut buffer = BytesMut::from(format!("\r\nGET {target} HTTP/1.1\r\n{fields}\r\nnext").as_bytes());
    let head = HeadReader::new().read(&mut buffer).unwrap().unwrap();
    assert_eq!(head.fields().count(), MAX_FIELDS);
    assert_eq!(head.target(), target.as_bytes());
    assert_eq!(buffer, &b"next"[..]);
}

#[test]
fn heads_follow_each_other() {
    let mut buffer = BytesMut::from(&b"GET /1 HTTP/1.1\r\nA:b\r\n\r\n\r\nGET /2 HTTP/1.0\r\n\r\nGET /3"[..]);
    let mut reader = HeadReader::new();
    let first = reader.read(&mut buffer).unwrap().unwrap();
    assert_eq!(first.fields().collect::<Vec<_>>(), [("A", &b"b"[..])]);
    assert_eq!(reader.read(&mut buffer).unwrap().unwrap().target(), b"/2");
    assert!(reader.read(&mut buffer).unwrap().is_none());
    assert_eq!(buffer, &b"GET /3"[..]);
}

#[test]
fn a_fault_is_final() {
    let mut reader = HeadReader::new();
    let mut buffer = BytesMut::from(&b"GET\n"[..]);
    assert_eq!(reader.read(&mut buffer).unwrap_err(), HeadError::LineEnding);
    buffer.extend_from_slice(b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(reader.read(&mut buffer).unwrap_err(), HeadError::LineEnding);
    assert_eq!(reader.read(&mut BytesMut::new()).unwrap_err(), HeadError::LineEnding);
}
