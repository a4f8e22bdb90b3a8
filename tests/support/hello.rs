//! A ClientHello as small as one can be (RFC 8446 section 4.1.2).

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
