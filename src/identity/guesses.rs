//! Slows down whoever tries credentials: an address that sent too many bad ones is refused before
//! the next is verified.
//!
//! A token can't be guessed; this bounds the work and the noise. Credentials that were good from an
//! address a short while ago are let through, so that one client can't lock out its neighbours
//! behind the same address. Memory is bounded whatever clients send.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};

/// Bad credentials that an address may send within a window.
const MOST: u32 = 20;
/// Starts at the first bad credentials.
const WINDOW: Duration = Duration::from_secs(60);
/// How long good credentials are known as such.
const KNOWN_FOR: Duration = Duration::from_secs(600);
/// Most addresses that are counted at once. Beyond, newcomers are verified without being counted.
const ADDRESSES: usize = 8192;
/// Most good credentials that are known at once.
const KNOWN: usize = 16_384;

/// Counts bad credentials by address.
#[derive(Debug, Default)]
pub struct Guesses {
    bad: Mutex<HashMap<IpAddr, (Instant, u32)>>,
    good: Mutex<HashMap<Mark, Instant>>,
}

/// An address and a digest of its credentials.
type Mark = (IpAddr, [u8; 32]);

impl Guesses {
    /// May credentials from this address be verified?
    ///
    /// # Errors
    /// Not before this time is over.
    pub fn admit(&self, source: IpAddr, credentials: Option<&str>, now: Instant) -> Result<(), Duration> {
        let Some((since, count)) = lock(&self.bad).get(&group(source)).copied() else {
            return Ok(());
        };
        let left = WINDOW.saturating_sub(now.saturating_duration_since(since));
        if count < MOST || left.is_zero() {
            return Ok(());
        }
        let known = credentials.and_then(|text| lock(&self.good).get(&mark(source, text)).copied());
        match known {
            Some(when) if now.saturating_duration_since(when) < KNOWN_FOR => Ok(()),
            _ => Err(left),
        }
    }

    /// These credentials were bad.
    pub fn count(&self, source: IpAddr, now: Instant) {
        let mut bad = lock(&self.bad);
        if make_room(&mut bad, &group(source), ADDRESSES, |(since, _)| is_within(*since, WINDOW, now)) {
            let entry = bad.entry(group(source)).or_insert((now, 0));
            if !is_within(entry.0, WINDOW, now) {
                *entry = (now, 0);
            }
            entry.1 = entry.1.saturating_add(1);
        }
    }

    /// These credentials were good.
    pub fn know(&self, source: IpAddr, credentials: &str, now: Instant) {
        let mark = mark(source, credentials);
        let mut good = lock(&self.good);
        if make_room(&mut good, &mark, KNOWN, |when| is_within(*when, KNOWN_FOR, now)) {
            good.insert(mark, now);
        }
    }
}

/// Is there room for this key, if need be without what is over?
fn make_room<K: Hash + Eq, V>(
    map: &mut HashMap<K, V>,
    key: &K,
    most: usize,
    stays: impl Fn(&V) -> bool,
) -> bool {
    if map.len() >= most && !map.contains_key(key) {
        map.retain(|_, value| stays(value));
    }
    map.len() < most || map.contains_key(key)
}

fn is_within(since: Instant, period: Duration, now: Instant) -> bool {
    now.saturating_duration_since(since) < period
}

fn mark(source: IpAddr, credentials: &str) -> Mark {
    let mut out = [0; 32];
    for (to, from) in out.iter_mut().zip(digest(&SHA256, credentials.as_bytes()).as_ref()) {
        *to = *from;
    }
    (group(source), out)
}

/// One host has a whole IPv6 /64 to send from.
fn group(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V4(_) => source,
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(n).into()
    }

    #[test]
    fn too_many_bad_ones_and_the_next_waits() {
        let (guesses, start) = (Guesses::default(), Instant::now());
        let (one, other) = (address(1), address(2));
        for _ in 0..MOST {
            assert_eq!(guesses.admit(one, Some("x"), start), Ok(()));
            guesses.count(one, start);
        }
        let later = start + WINDOW / 4;
        assert_eq!(guesses.admit(one, Some("x"), later), Err(WINDOW * 3 / 4));
        assert_eq!(guesses.admit(one, None, later), Err(WINDOW * 3 / 4));
        assert_eq!(guesses.admit(other, Some("x"), later), Ok(()));
        assert_eq!(guesses.admit(one, Some("x"), start + WINDOW), Ok(()));
        guesses.count(one, start + WINDOW);
        assert_eq!(guesses.admit(one, Some("x"), start + WINDOW), Ok(()), "the count began anew");
    }

    #[test]
    fn good_credentials_of_a_neighbour_still_pass() {
        let (guesses, start) = (Guesses::default(), Instant::now());
        guesses.know(address(1), "good", start);
        for _ in 0..MOST {
            guesses.count(address(1), start + KNOWN_FOR / 2);
        }
        let soon = start + KNOWN_FOR / 2;
        assert_eq!(guesses.admit(address(1), Some("good"), soon), Ok(()));
        assert!(guesses.admit(address(1), Some("goof"), soon).is_err());
        for _ in 0..MOST {
            guesses.count(address(1), start + KNOWN_FOR);
        }
        assert!(guesses.admit(address(1), Some("good"), start + KNOWN_FOR).is_err());
    }

    #[test]
    fn an_ipv6_network_counts_as_one() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        for n in 0..u128::from(MOST) {
            guesses.count(Ipv6Addr::from_bits((0x2001_0db8 << 96) | n).into(), now);
        }
        let [same, next] = [(0x2001_0db8 << 96) | 99, (0x2001_0db8 << 96) | (1 << 64)];
        assert!(guesses.admit(Ipv6Addr::from_bits(same).into(), None, now).is_err());
        assert!(guesses.admit(Ipv6Addr::from_bits(next).into(), None, now).is_ok());
    }

    #[test]
    fn memory_is_bounded() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        for n in 0..20_000 {
            guesses.count(address(n), now);
            guesses.know(address(n), "good", now);
        }
        assert_eq!((lock(&guesses.bad).len(), lock(&guesses.good).len()), (ADDRESSES, KNOWN));
        guesses.count(address(50_000), now + WINDOW);
        assert_eq!(lock(&guesses.bad).len(), 1, "what is over makes room");
    }
}
