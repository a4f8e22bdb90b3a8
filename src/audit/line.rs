//! One record as one line of JSON. Never lets a byte outside printable ASCII into the file.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// A record as a JSON object without its `seq` and without a line end.
///
/// Sequence numbers follow the order of the file, which is settled by the writer alone.
#[derive(Debug)]
pub(super) struct Line(Vec<u8>);

impl Line {
    /// Encodes a struct or map; anything else is no object and an error.
    pub(super) fn encode(record: &impl Serialize) -> Result<Self, serde_json::Error> {
        let mut bytes = Vec::with_capacity(512);
        record.serialize(&mut Serializer::with_formatter(&mut bytes, Ascii))?;
        if bytes.starts_with(b"{\"") {
            Ok(Self(bytes))
        } else {
            Err(serde::ser::Error::custom("an audit record must be an object with fields"))
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Appends the finished line, `seq` first.
    pub(super) fn write_to(&self, out: &mut Vec<u8>, seq: u64) {
        let fields = self.0.get(1..).unwrap_or_default();
        // Writing to a Vec can't fail.
        let _ = write!(out, "{{\"seq\":{seq},");
        out.extend_from_slice(fields);
        out.push(b'\n');
    }
}

/// Compact JSON in printable ASCII: everything else is written as its UTF-16 units (RFC 8259 section 7).
///
/// JSON itself demands this of the characters below U+0020 only. DEL, the C1 controls, line and
/// paragraph separators, bidirectional and invisible characters could still fool a terminal, an
/// editor or a line-based reader; escaping all of them needs no list that could be incomplete.
struct Ascii;

impl Formatter for Ascii {
    fn write_string_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + Write,
    {
        // Fast, for nearly every string.
        if fragment.bytes().all(is_plain) {
            return writer.write_all(fragment.as_bytes());
        }
        for character in fragment.chars() {
            match u8::try_from(character) {
                Ok(byte) if is_plain(byte) => writer.write_all(&[byte])?,
                _ => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        write!(writer, "\\u{unit:04x}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn line_of(key: &str, value: &str) -> String {
        let mut out = Vec::new();
        Line::encode(&BTreeMap::from([(key, value)])).unwrap().write_to(&mut out, 7);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn sequence_comes_first() {
        assert_eq!(line_of("event", "start"), "{\"seq\":7,\"event\":\"start\"}\n");
    }

    #[test]
    fn everything_unprintable_is_escaped() {
        let line = line_of("host", "\u{1b}[31m\r\n\"\\\u{7f}\u{9b}\u{2028}\u{202e}é😀");
        assert_eq!(
            line,
            "{\"seq\":7,\"host\":\"\\u001b[31m\\r\\n\\\"\\\\\\u007f\\u009b\\u2028\\u202e\\u00e9\\ud83d\\ude00\"}\n"
        );
    }

    #[test]
    fn only_objects_are_records() {
        assert!(Line::encode(&"text").is_err());
        assert!(Line::encode(&BTreeMap::<String, u8>::new()).is_err());
    }

    proptest! {
        #[test]
        fn any_text_makes_one_line_and_comes_back(key in any::<String>(), value in any::<String>()) {
            prop_assume!(key != "seq");
            let line = line_of(&key, &value);
            prop_assert!(line.bytes().rev().skip(1).all(is_plain));
            let parsed: BTreeMap<String, Value> = serde_json::from_str(&line).unwrap();
            prop_assert_eq!(parsed.len(), 2);
            prop_assert_eq!(&parsed[&key], &Value::String(value));
        }
    }
}
