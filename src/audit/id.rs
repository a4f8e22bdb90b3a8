//! Names of attempts: unique, sortable by time, short. They are no secrets.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 13;
const SERIAL_BITS: u32 = 33;
const SERIAL_MASK: u64 = (1 << SERIAL_BITS) - 1;
/// Odd, so that multiplying by it modulo a power of two never maps two serials to one.
const SPREAD: u64 = 0x1_3c6e_f373;

/// The audit ID of one attempt: 13 characters of Crockford's base 32 in lower case.
///
/// 32 bits are the second (Unix time), 33 bits a serial that starts at random in every process.
/// Two attempts of one process never share an ID, unless it makes 2^33 of them in one second.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptId([u8; LENGTH]);

impl AttemptId {
    fn new(second: u64, serial: u64) -> Self {
        let bits = (u128::from(second & 0xffff_ffff) << SERIAL_BITS) | u128::from(serial & SERIAL_MASK);
        let mut text = [b'0'; LENGTH];
        let mut rest = bits;
        for place in text.iter_mut().rev() {
            let digit = usize::try_from(rest % 32).unwrap_or(0);
            *place = ALPHABET.get(digit).copied().unwrap_or(b'0');
            rest /= 32;
        }
        Self(text)
    }

    /// The ID as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Made of ALPHABET alone, hence never the default.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for AttemptId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Hands out the IDs of one process.
#[derive(Debug)]
pub(super) struct IdSource {
    next: AtomicU64,
}

impl IdSource {
    pub(super) fn new() -> Self {
        // The standard library's hash keys come from the operating system's random source.
        Self { next: AtomicU64::new(RandomState::new().hash_one(())) }
    }

    pub(super) fn next(&self) -> AttemptId {
        let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let serial = self.next.fetch_add(1, Ordering::Relaxed);
        AttemptId::new(second, serial.wrapping_mul(SPREAD))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn digits_are_those_of_the_number() {
        assert_eq!(AttemptId::new(0, 0).as_str(), "0000000000000");
        assert_eq!(AttemptId::new(0, 33).as_str(), "0000000000011");
        assert_eq!(AttemptId::new(u64::MAX, u64::MAX).as_str(), "zzzzzzzzzzzzz");
    }

    #[test]
    fn later_seconds_sort_later() {
        assert!(AttemptId::new(1_000, SERIAL_MASK) < AttemptId::new(1_001, 0));
    }

    #[test]
    fn ids_of_a_process_differ() {
        let source = IdSource::new();
        let ids: HashSet<_> = (0..100_000).map(|_| source.next()).collect();
        assert_eq!(ids.len(), 100_000);
    }

    #[test]
    fn processes_start_apart() {
        assert_ne!(IdSource::new().next(), IdSource::new().next());
    }
}
