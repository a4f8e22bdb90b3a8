//! A ClientHello as small as one can be (RFC 8446 section 4.1.2), and the answer that asks for another one.

/// With these extensions, as they stand on the wire.
pub fn with(extensions: &[u8]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0]);
    body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
    body.extend(extensions);
    let length = u16::try_from(body.len()).unwrap();
    let mut record = vec![22, 3, 1];
    record.extend((length + 4).to_be_bytes());
    record.extend([1, 0]);
    record.extend(length.to_be_bytes());
    record.extend(body);
    record
}

/// For a server of this name (RFC 6066 section 3).
pub fn naming(host: &str) -> Vec<u8> {
    let length = |more: usize| u16::try_from(host.len() + more).unwrap().to_be_bytes();
    with(&[&[0, 0][..], &length(5), &length(3), &[0], &length(0), host.as_bytes()].concat())
}

/// What TLS 1.3 sends so that it looks like TLS 1.2 (RFC 8446 appendix D.4).
pub const CHANGE_CIPHER_SPEC: [u8; 6] = [20, 3, 3, 0, 1, 1];

/// A HelloRetryRequest that asks for a key share of secp521r1 (RFC 8446 section 4.1.4).
pub fn retry() -> Vec<u8> {
    let mut record = vec![22, 3, 3, 0, 56, 2, 0, 0, 52, 3, 3];
    record.extend([
        0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    ]);
    record.extend([
        0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
    ]);
    record.extend([0, 0x13, 1, 0, 0, 12, 0, 43, 0, 2, 3, 4, 0, 51, 0, 2, 0, 25]);
    record
}
