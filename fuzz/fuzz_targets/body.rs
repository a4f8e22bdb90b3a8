//! Request bodies: no panic, the same data however the octets are cut, and a body that was decoded
//! and encoded again decodes to the same data.
#![no_main]

use bytes::{Buf, Bytes, BytesMut};
use egret::http1::{
    BodyDecoder, BodyEncoder, BodyError, BodyLength, Connection, Decoded, Recipient, Version,
};
use libfuzzer_sys::fuzz_target;

/// The data, and whether the body ended, when its octets come in segments of `size`.
fn decode(length: BodyLength, input: &[u8], size: usize) -> Result<(Vec<u8>, bool), BodyError> {
    let mut decoder = BodyDecoder::new(length, &Connection::default());
    let mut buffer = BytesMut::new();
    let mut data = Vec::new();
    for segment in input.chunks(size) {
        buffer.extend_from_slice(segment);
        loop {
            match decoder.decode(&mut buffer)? {
                Decoded::NeedMore => break,
                Decoded::Data(piece) => data.extend_from_slice(&piece),
                Decoded::Trailers(_) => {}
                Decoded::End => return Ok((data, true)),
            }
        }
    }
    Ok((data, false))
}

fuzz_target!(|input: &[u8]| {
    let Some((selector, input)) = input.split_first() else {
        return;
    };
    let length = match selector % 4 {
        0 => BodyLength::Length(u64::from(*selector)),
        _ => BodyLength::Chunked,
    };
    let whole = decode(length, input, usize::MAX);
    assert_eq!(whole, decode(length, input, 1));

    if let Ok((data, _)) = whole {
        let client = Recipient { version: Version::Http11, method: "GET", persistent: true };
        let mut encoder = BodyEncoder::new(&client, 200, None);
        let mut wire = BytesMut::new();
        if let Ok(mut frame) = encoder.encode(Bytes::from(data.clone())) {
            wire.extend_from_slice(&frame.copy_to_bytes(frame.remaining()));
        }
        assert_eq!(encoder.finish(&mut wire, []), Ok(()));
        assert_eq!(decode(BodyLength::Chunked, &wire, 7), Ok((data, true)));
    }
});
