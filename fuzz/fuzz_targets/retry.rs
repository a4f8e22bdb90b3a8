//! Whether a server asks for another ClientHello, and what may come before that, does not depend on how
//! the bytes are cut; and what passes before a hello holds no handshake record.
#![no_main]

use egret::client_hello::{AnswerReader, LeadingRecords};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut whole = AnswerReader::default();
    whole.read(data);
    let mut piecewise = AnswerReader::default();
    for byte in data {
        let before = (piecewise.retries(), piecewise.is_over());
        piecewise.read(&[*byte]);
        assert!(piecewise.retries() >= before.0 && (!before.1 || piecewise.is_over()));
    }
    assert_eq!((whole.retries(), whole.is_over()), (piecewise.retries(), piecewise.is_over()));

    let (one, most) = (leading(data, 1), leading(data, data.len()));
    assert_eq!(one, most);
    // Record for record, as a server reads them.
    let mut at = 0;
    while at < one.0 {
        assert_ne!(data[at], 22);
        let length = |n: usize| usize::from(data.get(at + n).copied().unwrap_or(0));
        at += 5 + (length(3) << 8 | length(4));
    }
    if one.0 < data.len() && one.1.is_none() {
        assert!(at == one.0 && data[at] == 22);
    }
});

/// How many bytes come before a hello, and what is wrong behind them, if they are read by so many.
fn leading(data: &[u8], most: usize) -> (usize, Option<String>) {
    let (mut reader, mut count) = (LeadingRecords::default(), 0);
    loop {
        let rest = &data[count..];
        match reader.read(&rest[..most.min(rest.len())]) {
            Ok(0) => return (count, None),
            Ok(more) => count += more,
            Err(error) => return (count, Some(error.to_string())),
        }
    }
}
