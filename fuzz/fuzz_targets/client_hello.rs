//! The ClientHello reader gives the same verdict whether the bytes arrive at
//! once or one by one, and never claims bytes that it was not given.
#![no_main]

use egret::client_hello::ClientHelloReader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let whole = ClientHelloReader::new().read(data);

    let mut reader = ClientHelloReader::new();
    let mut piecewise = Ok(None);
    for end in 1..=data.len() {
        piecewise = reader.read(&data[..end]);
        if !matches!(piecewise, Ok(None)) {
            break;
        }
    }
    assert_eq!(whole, piecewise);

    if let Ok(Some(hello)) = whole {
        assert!(hello.wire_len() <= data.len());
        let again = ClientHelloReader::new().read(&data[..hello.wire_len()]);
        assert_eq!(again, Ok(Some(hello)));
    }
});
