//! Any bytes as a request target: what parses is canonical, so it parses again to the same.

#![no_main]

use egret_policy::{Destination, Host};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|target: &[u8]| {
    if let Ok(destination) = Destination::parse_authority(target) {
        check(&destination);
        let again = Destination::parse_authority(destination.to_string().as_bytes());
        assert_eq!(again.as_ref(), Ok(&destination));
    }
    if let Ok(form) = Destination::parse_absolute(target) {
        check(&form.destination);
        let rest = [form.path, form.query].concat();
        assert!(target.ends_with(&rest), "path and query are the target's own bytes");
        let url = [format!("http://{}", form.destination).as_bytes(), &rest].concat();
        assert_eq!(Destination::parse_absolute(&url).as_ref(), Ok(&form));
    }
});

fn check(destination: &Destination) {
    assert_ne!(destination.port(), 0);
    if let Host::Name(name) = destination.host() {
        let text = name.as_str();
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
        assert!((1..=253).contains(&text.len()) && text.bytes().all(plain), "{text:?}");
        assert!(text.split('.').all(|label| (1..=63).contains(&label.len())), "{text:?}");
        assert!(text.parse::<std::net::IpAddr>().is_err(), "{text:?}");
    }
}
