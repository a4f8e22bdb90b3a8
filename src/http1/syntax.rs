//! The few octet classes and list rules of RFC 9110 section 5.6 that the rest of `http1` is built on.
//!
//! Works on octets, never on `char`: no Unicode property can widen a class.

/// Whether `byte` may occur in a token: method, field name, connection option (RFC 9110 5.6.2).
pub(super) const fn is_token_byte(byte: u8) -> bool {
    matches!(
        byte,
        b'!' | b'#'
            | b'$'
            | b'%'
            | b'&'
            | b'\''
            | b'*'
            | b'+'
            | b'-'
            | b'.'
            | b'^'
            | b'_'
            | b'`'
            | b'|'
            | b'~'
            | b'0'..=b'9'
            | b'A'..=b'Z'
            | b'a'..=b'z'
    )
}

/// Whether `bytes` is a token: at least one octet, all of them token octets.
pub(super) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().copied().all(is_token_byte)
}

/// Whether `byte` may occur in a field value, a reason phrase or a chunk extension: visible ASCII,
/// space, tab, and the opaque octets 0x80-0xFF (RFC 9110 5.5).
pub(super) const fn is_value_byte(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..=0xFF)
}

/// Whether `byte` may occur in a request target: visible ASCII, no space.
///
/// Which of these a URI may really contain is for the target's own parser to say.
pub(super) const fn is_target_byte(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~')
}

/// `value` without the spaces and tabs around it (OWS, RFC 9110 5.6.3). Nothing else is white space.
pub(super) fn trim_ows(value: &[u8]) -> &[u8] {
    let mut rest = value;
    while let [b' ' | b'\t', tail @ ..] = rest {
        rest = tail;
    }
    while let [head @ .., b' ' | b'\t'] = rest {
        rest = head;
    }
    rest
}

/// The members of a comma-separated list, trimmed; empty ones are left out (RFC 9110 5.6.1.2).
///
/// For lists of tokens only: a comma inside a quoted string would split it.
pub(super) fn list_members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(trim_ows).filter(|member| !member.is_empty())
}

/// The number that `value` spells with decimal digits alone; `None` for anything else, including
/// an empty value, a sign, and a number beyond 64 bits.
pub(super) fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |number, byte| {
        let digit = match byte {
            b'0'..=b'9' => u64::from(byte - b'0'),
            _ => return None,
        };
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use super::*;

    #[test]
    fn token_octets_are_exactly_those_of_the_grammar() {
        let allowed = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        for byte in 0..=u8::MAX {
            assert_eq!(is_token_byte(byte), allowed.contains(&byte), "octet {byte:#04x}");
        }
        assert!(!is_token(b""));
    }

    #[test]
    fn value_octets_exclude_every_control_but_tab() {
        for byte in 0..=u8::MAX {
            let control = (byte < 0x20 && byte != b'\t') || byte == 0x7F;
            assert_eq!(is_value_byte(byte), !control, "octet {byte:#04x}");
        }
    }

    #[test]
    fn only_space_and_tab_are_trimmed() {
        assert_eq!(trim_ows(b" \t a b\t "), b"a b");
        assert_eq!(trim_ows(b" \t "), b"");
        assert_eq!(trim_ows(b"\x0bx\xa0"), b"\x0bx\xa0");
    }

    #[test]
    fn lists_drop_empty_members() {
        let members: Vec<_> = list_members(b", a ,,b\t, ").collect();
        assert_eq!(members, [b"a", b"b"]);
    }

    #[test]
    fn decimal_takes_digits_alone() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"005"), Some(5));
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for refused in [
            &b""[..],
            b"18446744073709551616",
            b"+5",
            b"-1",
            b"0x5",
            b"5 ",
            b" 5",
            b"5,5",
            b"1_0",
            b"1e3",
            b"5.0",
            b"\xd9\xa5",
        ] {
            assert_eq!(decimal(refused), None, "{refused:?}");
        }
    }
}
