//! Octets that make a server answer, and whether octets are such an answer. Does no I/O.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// A QUIC client's first packet is never shorter (RFC 9000 section 14.1).
const QUIC_LENGTH: usize = 1200;
/// What an echo request carries.
const ECHO: &[u8] = b"egret probe";

/// A recursive query for the IPv4 address of a name (RFC 1035 section 4.1); `None` for what is no name.
pub(super) fn dns_query(id: u16, name: &str) -> Option<Vec<u8>> {
    let mut out = id.to_be_bytes().to_vec();
    out.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]); // recursion desired, one question
    for label in name.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length))?;
        out.push(length);
        out.extend(label.as_bytes());
    }
    out.extend([0, 0, 1, 0, 1]); // the root, A, IN
    (out.len() <= 12 + 255 + 4).then_some(out)
}

/// The response code of an answer to the query with this ID, and how many records it holds.
pub(super) fn dns_answer(id: u16, packet: &[u8]) -> Option<(u8, u16)> {
    let [i0, i1, f0, f1, _, _, a0, a1, _, _, _, _, ..] = *packet else {
        return None;
    };
    let answers = u16::from_be_bytes([i0, i1]) == id && f0 & 0x80 != 0;
    answers.then_some((f1 & 0x0f, u16::from_be_bytes([a0, a1])))
}

/// A long-header packet of a version that is reserved so that servers answer with those they speak
/// (RFC 9000 sections 6.1 and 15).
pub(super) fn quic_greeting(id: u16) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    let mut out = vec![0xc0, 0x1a, 0x2a, 0x3a, 0x4a];
    out.extend([8, b'e', b'g', b'r', b'e', b't', b'p', high, low]); // destination connection ID
    out.extend([8, b'p', b'e', b'g', b'r', b'e', b't', high, low]); // source connection ID
    out.resize(QUIC_LENGTH, 0);
    out
}

/// An echo request (RFC 792, RFC 4443 section 4.1). The kernel writes the identifier of a ping
/// socket, and the checksum of ICMPv6.
pub(super) fn echo_request(v6: bool, sequence: u16) -> Vec<u8> {
    let [high, low] = sequence.to_be_bytes();
    let mut out = vec![if v6 { 128 } else { 8 }, 0, 0, 0, high, low, high, low];
    out.extend(ECHO);
    let sum = checksum(&out).to_be_bytes();
    if let Some(place) = out.get_mut(2..4) {
        place.copy_from_slice(&sum);
    }
    out
}

/// Is this the reply to such a request? A raw IPv4 socket shows the IP header too.
pub(super) fn is_echo_reply(v6: bool, sequence: u16, packet: &[u8]) -> bool {
    let message = match packet.first() {
        Some(first) if !v6 && first >> 4 == 4 => packet.get(usize::from(first & 0x0f) * 4..),
        _ => Some(packet),
    };
    let Some([kind, 0, _, _, _, _, high, low, data @ ..]) = message else {
        return false;
    };
    *kind == if v6 { 129 } else { 0 } && u16::from_be_bytes([*high, *low]) == sequence && data == ECHO
}

/// The internet checksum (RFC 1071).
fn checksum(octets: &[u8]) -> u16 {
    let word = |pair: &[u8]| match *pair {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [high] => u32::from(u16::from_be_bytes([high, 0])),
        _ => 0,
    };
    let mut sum: u32 = octets.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or_default()
}

/// The ClientHello of a client that wants this server name; an address sends none (RFC 6066
/// section 3).
///
/// # Errors
/// In words: the name is none.
pub(super) fn client_hello(server_name: &str) -> Result<Vec<u8>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("no ClientHello for {server_name}: {error}");
    let name = ServerName::try_from(server_name.to_owned()).map_err(|error| wrong(&error))?;
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(config), name).map_err(|error| wrong(&error))?;
    let mut out = Vec::new();
    client.write_tls(&mut out).map_err(|error| wrong(&error))?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_written_and_answers_known() {
        let query = dns_query(0x1234, "a.example.").unwrap();
        assert_eq!(query, b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\x07example\0\0\x01\0\x01");
        assert_eq!(dns_query(1, ""), None);
        assert_eq!(dns_query(1, "a..example"), None);
        assert_eq!(dns_query(1, &"a".repeat(64)), None);
        assert_eq!(dns_query(1, &["a"; 200].join(".")), None);
        let mut answer = query;
        assert_eq!(dns_answer(0x1234, &answer), None, "a query is no answer");
        answer[2] |= 0x80;
        (answer[3], answer[7]) = (5, 2);
        assert_eq!(dns_answer(0x1234, &answer), Some((5, 2)));
        assert_eq!(dns_answer(0x4321, &answer), None);
        assert_eq!(dns_answer(0x1234, &answer[..11]), None);
    }

    #[test]
    fn echo_replies_are_told_from_other_messages() {
        for v6 in [false, true] {
            let mut packet = echo_request(v6, 7);
            assert_eq!(checksum(&packet), 0);
            assert!(!is_echo_reply(v6, 7, &packet), "a request is no reply");
            packet[0] = if v6 { 129 } else { 0 };
            assert!(is_echo_reply(v6, 7, &packet) && !is_echo_reply(v6, 8, &packet));
            assert!(!is_echo_reply(v6, 7, &packet[..8]) && !is_echo_reply(v6, 7, &[]));
        }
        let mut raw = vec![0x45; 20];
        raw.extend(echo_request(false, 9));
        raw[20] = 0;
        assert!(is_echo_reply(false, 9, &raw));
        assert!(!is_echo_reply(false, 9, &[0x4f]));
    }

    #[test]
    fn a_greeting_is_long_enough_to_be_answered() {
        let packet = quic_greeting(1);
        assert_eq!((packet.len(), packet[0] & 0xc0), (1200, 0xc0));
        assert!(packet[1..5].iter().all(|octet| octet & 0x0f == 0x0a), "a reserved version");
    }

    #[test]
    fn a_client_hello_names_the_server() {
        let hello = client_hello("other.example").unwrap();
        assert_eq!(hello[..2], [0x16, 3]);
        assert!(hello.windows(13).any(|window| window == b"other.example"));
        assert!(client_hello("192.0.2.1").is_ok());
        assert!(client_hello("a b").is_err());
    }
}
