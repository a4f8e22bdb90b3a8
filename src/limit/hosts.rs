//! Hosts as they are counted: by 64 bits of a keyed hash, so that many hosts of many sandboxes take
//! little room, and nobody without the key finds two that count as one.

use aws_lc_rs::hmac;

const KEY_LENGTH: usize = 32;

/// A host, or a domain.
pub(super) type HostHash = u64;

/// The key of one state directory.
#[derive(Debug)]
pub(super) struct HostKey {
    bytes: [u8; KEY_LENGTH],
    key: Box<hmac::Key>,
}

impl HostKey {
    /// A new one; `None` if the system has no random bytes.
    pub(super) fn random() -> Option<Self> {
        let mut bytes = [0; KEY_LENGTH];
        aws_lc_rs::rand::fill(&mut bytes).ok()?;
        Some(Self::new(bytes))
    }

    fn new(bytes: [u8; KEY_LENGTH]) -> Self {
        Self { bytes, key: Box::new(hmac::Key::new(hmac::HMAC_SHA256, &bytes)) }
    }

    /// Of a host in its one spelling.
    pub(super) fn hash(&self, host: &str) -> HostHash {
        let tag = hmac::sign(&self.key, host.as_bytes());
        tag.as_ref().iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
    }

    pub(super) fn to_text(&self) -> String {
        self.bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(super) fn from_text(text: &str) -> Option<Self> {
        if text.len() != 2 * KEY_LENGTH || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = [0; KEY_LENGTH];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(Self::new(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_again() {
        let key = HostKey::random().unwrap();
        let again = HostKey::from_text(&key.to_text()).unwrap();
        assert_eq!(key.hash("a.example"), again.hash("a.example"));
        assert_ne!(key.hash("a.example"), key.hash("b.example"));
        assert_ne!(key.hash("a.example"), HostKey::random().unwrap().hash("a.example"));
        for text in ["", "00", &"+1".repeat(32), &"é".repeat(32)] {
            assert!(HostKey::from_text(text).is_none(), "{text}");
        }
    }
}
