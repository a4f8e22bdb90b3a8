//! The messages of SOCKS5 are read alike whether their octets arrive at once or one by one, nobody
//! waits for more than 513 of them, and none claims octets that it was not given.
#![no_main]

use std::fmt::Debug;

use egret::identity::Credentials;
use egret::socks5::{Address, Fault, login, methods, request};
use egret_policy::Host;
use libfuzzer_sys::fuzz_target;

type Parsed<T> = Result<Option<(T, usize)>, Fault>;

fn check<'a, T: Debug + PartialEq>(data: &'a [u8], read: impl Fn(&'a [u8]) -> Parsed<T>) {
    let whole = read(data);
    let pieces = (0..data.len()).map(|end| read(&data[..end]));
    let piecewise = pieces.into_iter().find(|read| !matches!(read, Ok(None))).unwrap_or_else(|| read(data));
    assert_eq!(whole, piecewise);
    assert!(data.len() < 513 || !matches!(whole, Ok(None)));
    if let Ok(Some((_, taken))) = whole {
        assert!((1..=data.len().min(513)).contains(&taken));
    }
}

fuzz_target!(|data: &[u8]| {
    check(data, methods);
    check(data, login);
    check(data, request);
    if let Ok(Some((login, _))) = login(data)
        && let Ok(credentials) = Credentials::read_login(login.user, login.password)
    {
        assert!(credentials.user.as_deref().is_some_and(egret_policy::is_sandbox_id));
        assert!(!credentials.token.contains('~') && credentials.token.is_ascii());
    }
    if let Ok(Some((request, _))) = request(data)
        && let Address::Name(name) = request.address
        && let Ok(host) = Host::parse(name)
    {
        assert_eq!(Host::parse(host.to_string().as_bytes()), Ok(host));
    }
});
