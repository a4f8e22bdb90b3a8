//! Tells labels that look random, as those of a name that carries data out by DNS do.

/// Characters from which on a label is judged.
const LENGTH: usize = 20;
/// Shannon entropy of a label's characters from which on it looks random, in bits each.
const BITS: f64 = 3.5;
/// Hexadecimal labels shorter than this are words and numbers.
const HEX_LABEL: usize = 6;

/// What looks random about a name, if anything does: a label of 20 characters or more at 3.5 bits
/// each, or as many hexadecimal digits over several labels.
#[must_use]
pub fn looks_random(name: &str) -> Option<String> {
    if let Some(label) = name.split('.').find(|label| label.len() >= LENGTH && entropy(label) >= BITS) {
        return Some(format!("{} characters at {:.1} bits each", label.len(), entropy(label)));
    }
    let hex: usize = name.split('.').filter(|label| is_hex(label)).map(str::len).sum();
    (hex >= LENGTH).then(|| format!("{hex} hexadecimal digits in labels"))
}

fn is_hex(label: &str) -> bool {
    label.len() >= HEX_LABEL
        && label.bytes().all(|byte| byte.is_ascii_hexdigit())
        && label.bytes().any(|byte| byte.is_ascii_digit())
}

/// Bits of information in each character, by how often each occurs in the label itself.
fn entropy(label: &str) -> f64 {
    let total = f64::from(u32::try_from(label.len()).unwrap_or(u32::MAX));
    let mut counts = [0_u32; 256];
    for byte in label.bytes() {
        if let Some(count) = counts.get_mut(usize::from(byte)) {
            *count += 1;
        }
    }
    let used = counts.into_iter().filter(|count| *count > 0).map(|count| f64::from(count) / total);
    used.map(|share| -share * share.log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_and_not() {
        for random in [
            "q7w8e9r1t2y3u4i5o6p7.example.com",
            "4f9a1c77e02bd6385a11c0de.example.com",
            "a.mfrggzdfmztwq2lknnwg23tpobyxe43u.example.com",
            // 8 + 8 + 8 digits
            "deadbeef1.00c0ffee.badf00d5.example.com",
        ] {
            assert!(looks_random(random).is_some(), "{random}");
        }
        for plain in [
            "release-assets.githubusercontent.com",
            "www.example.com",
            "aaaaaaaaaaaaaaaaaaaaaaaa.example.com",
            "feedbeefcafe.decade.facade.example.com",
            "d36cz9buwru1tt.cloudfront.net",
            "20261129.example.com",
        ] {
            assert_eq!(looks_random(plain), None, "{plain}");
        }
    }

    #[test]
    fn entropy_of_what_is_known() {
        assert!(entropy("aaaa").abs() < 1e-9);
        assert!((entropy("abcd") - 2.0).abs() < 1e-9);
        assert!((entropy("0123456789abcdef") - 4.0).abs() < 1e-9);
    }
}
