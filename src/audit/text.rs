//! Text from outside, cut to a size that a record can bear. Escaping is the encoder's work.

use std::fmt::Write;
use std::sync::Arc;

use serde::Serialize;

/// Bytes of one value that are kept; of longer ones the length of the rest is told.
pub const TEXT_LIMIT: usize = 256;

/// A string that an outsider may have chosen: at most [`TEXT_LIMIT`] of its bytes.
///
/// What was cut off is counted at the end: `aaaa…(+1024 bytes)`. Bytes that are not UTF-8 become
/// `\xNN`. Control characters stay in the value; the encoder writes them as JSON escapes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Text(Arc<str>);

impl Text {
    /// Takes any bytes; see the type for what happens to them.
    #[must_use]
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        // Nearly every text there is.
        if let Some(text) = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= TEXT_LIMIT) {
            return Self(text.into());
        }
        let (kept, cut) = bytes.split_at_checked(boundary(bytes)).unwrap_or((bytes, &[]));
        let mut text = String::with_capacity(kept.len());
        for chunk in kept.utf8_chunks() {
            text.push_str(chunk.valid());
            for byte in chunk.invalid() {
                // Writing to a String can't fail.
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
        if !cut.is_empty() {
            let _ = write!(text, "…(+{} bytes)", cut.len());
        }
        Self(text.into())
    }

    /// The bounded value.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&Arc<str>> for Text {
    /// Shares the text where it fits.
    fn from(text: &Arc<str>) -> Self {
        if text.len() <= TEXT_LIMIT { Self(Arc::clone(text)) } else { Self::new(&**text) }
    }
}

/// Where to cut: at the limit, or before the character that straddles it.
fn boundary(bytes: &[u8]) -> usize {
    if bytes.len() <= TEXT_LIMIT {
        return bytes.len();
    }
    // A UTF-8 character has at most three continuation bytes (RFC 3629 section 3).
    (TEXT_LIMIT - 3..=TEXT_LIMIT)
        .rev()
        .find(|&at| bytes.get(at).is_some_and(|byte| byte & 0xc0 != 0x80))
        .unwrap_or(TEXT_LIMIT)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_text_is_kept() {
        assert_eq!(Text::new("").as_str(), "");
        assert_eq!(Text::from("example.com").as_str(), "example.com");
        let full = "x".repeat(TEXT_LIMIT);
        assert_eq!(Text::from(full.clone()).as_str(), full);
    }

    #[test]
    fn long_text_tells_how_much_is_missing() {
        let expected = format!("{}…(+44 bytes)", "x".repeat(TEXT_LIMIT));
        assert_eq!(Text::from("x".repeat(300)).as_str(), expected);
    }

    #[test]
    fn a_character_is_never_cut_in_two() {
        let text = format!("{}€€", "x".repeat(TEXT_LIMIT - 1));
        assert_eq!(Text::from(text).as_str(), format!("{}…(+6 bytes)", "x".repeat(TEXT_LIMIT - 1)));
    }

    #[test]
    fn invalid_utf8_is_spelled_out() {
        assert_eq!(Text::new(b"a\xff\xfe.test").as_str(), "a\\xff\\xfe.test");
        let cut = Text::new([0xff; 300]);
        assert_eq!(cut.as_str(), format!("{}…(+44 bytes)", "\\xff".repeat(TEXT_LIMIT)));
        assert!(Text::new([0x80; 300]).as_str().ends_with("…(+44 bytes)"));
    }

    proptest! {
        #[test]
        fn size_is_bounded(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let text = Text::new(&bytes);
            prop_assert!(text.as_str().len() <= 4 * TEXT_LIMIT + 32);
            if bytes.len() <= TEXT_LIMIT && let Ok(valid) = std::str::from_utf8(&bytes) {
                prop_assert_eq!(text.as_str(), valid);
            }
        }
    }
}
