//! Any octets as the values of `Proxy-Authorization`: what is read as credentials can be written
//! again, and none of it is a token that our key signed.

#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use egret::identity::{Credentials, MAX_TOKEN, PublicKey, SigningKey, TokenKeys, unverified};
use libfuzzer_sys::fuzz_target;

static KEYS: LazyLock<Option<TokenKeys>> = LazyLock::new(|| {
    let public: PublicKey = SigningKey::generate().ok()?.public().ok()?;
    Some(TokenKeys::new(vec![public], "egret"))
});

fuzz_target!(|values: Vec<&[u8]>| {
    let Ok(read) = Credentials::read(values.iter().copied()) else { return };
    assert_eq!(read.is_none(), values.is_empty());
    let Some(credentials) = read else { return };
    assert_eq!(values.len(), 1);
    let token = credentials.token.as_str();
    assert!((1..=MAX_TOKEN).contains(&token.len()) && token.is_ascii(), "{token:?}");
    assert!(credentials.user.as_deref().is_none_or(egret_policy::is_sandbox_id));
    let again = format!("Bearer {token}");
    let again = Credentials::read([again.as_bytes()].into_iter());
    assert!(again.is_ok_and(|again| again.is_some_and(|again| again.token == token)));
    let _ = unverified(token);
    if let Some(keys) = KEYS.as_ref() {
        assert!(keys.identify(&credentials, IpAddr::V4(Ipv4Addr::LOCALHOST), 1_800_000_000).is_err());
    }
});
