//! Any octets as a certificate: reading them never panics, and what is read as a sandbox is an ID.

#![no_main]

use egret::identity::{parse, sandbox_of, times};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|der: &[u8]| {
    let Ok(certificate) = parse(der) else { return };
    let (begins, expires) = times(&certificate);
    assert!(begins.max(expires) < u64::MAX / 2);
    assert!(sandbox_of(&certificate).is_none_or(|id| egret_policy::is_sandbox_id(&id)));
});
