//! What the tests of several modules need.
#![allow(clippy::unwrap_used, clippy::panic)]

use bytes::BytesMut;

use super::{HeadReader, RequestHead};

/// The head with this request line and these fields, which are separated by CRLF and need no last one.
/// Characters up to U+00FF stand for one octet each.
pub(super) fn head(line: &str, fields: &str) -> RequestHead {
    let text = match fields {
        "" => format!("{line}\r\n\r\n"),
        _ => format!("{line}\r\n{fields}\r\n\r\n"),
    };
    let octets: Vec<u8> = text.chars().map(|octet| u8::try_from(u32::from(octet)).unwrap()).collect();
    let mut buffer = BytesMut::from(&octets[..]);
    let head = HeadReader::new().read(&mut buffer).unwrap().unwrap();
    assert!(buffer.is_empty());
    head
}
