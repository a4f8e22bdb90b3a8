//! Request heads: no panic, and the same result whether the octets come at once or one by one.
#![no_main]

use bytes::BytesMut;
use egret::http1::{
    Connection, HeadReader, announced_trailers, body_length, expects_continue, forward_request_field,
    host_field, max_forwards, wants_websocket,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut buffer = BytesMut::from(input);
    let whole = HeadReader::new().read(&mut buffer);

    let mut reader = HeadReader::new();
    let mut segmented = BytesMut::new();
    let mut result = Ok(None);
    for octet in input {
        segmented.extend_from_slice(&[*octet]);
        result = reader.read(&mut segmented);
        if !matches!(result, Ok(None)) {
            break;
        }
    }

    match (whole, result) {
        (Ok(Some(head)), Ok(Some(other))) => {
            assert_eq!(head.method(), other.method());
            assert_eq!(head.target(), other.target());
            assert!(head.fields().eq(other.fields()));

            let connection = Connection::of(&head);
            let _ = host_field(&head);
            let _ = body_length(&head);
            let _ = expects_continue(&head);
            let _ = max_forwards(&head);
            let _ = wants_websocket(&head, &connection);
            let _ = announced_trailers(head.values("Trailer"), &connection);
            for (name, value) in head.fields() {
                assert!(!name.is_empty() && !value.contains(&b'\n') && !value.contains(&b'\r'));
                let _ = forward_request_field(name, &connection);
            }
        }
        (Ok(None), Ok(None)) => {}
        (Err(error), Err(other)) => assert_eq!(error, other),
        (whole, segmented) => panic!("{whole:?} at once, {segmented:?} octet by octet"),
    }
});
