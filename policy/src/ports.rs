//! Sets of TCP ports, as rules write them: `443`, `"8000-8010"`, `*`.

use std::fmt;

/// Ports from 1 to 65535, as ranges.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortSet(Vec<(u16, u16)>);

impl PortSet {
    /// What an allow rule without ports means: 80 and 443.
    #[must_use]
    pub fn web() -> Self {
        Self(vec![(80, 80), (443, 443)])
    }

    /// Every port.
    #[must_use]
    pub fn all() -> Self {
        Self(vec![(1, u16::MAX)])
    }

    /// One port.
    #[must_use]
    pub fn one(port: u16) -> Self {
        Self(vec![(port, port)])
    }

    /// The union of ranges, in any order.
    #[must_use]
    pub fn of(mut ranges: Vec<(u16, u16)>) -> Self {
        ranges.sort_unstable();
        Self(ranges)
    }

    /// Is the port in it?
    #[must_use]
    pub fn contains(&self, port: u16) -> bool {
        self.0.iter().any(|&(low, high)| (low..=high).contains(&port))
    }

    /// Does one of its ranges hold each range of `other`?
    #[must_use]
    pub fn holds_all_of(&self, other: &Self) -> bool {
        other.0.iter().all(|(low, high)| self.0.iter().any(|(l, h)| l <= low && high <= h))
    }

    /// Its ranges, each with its first and last port.
    pub fn ranges(&self) -> impl Iterator<Item = (u16, u16)> {
        self.0.iter().copied()
    }

    /// Is it all ports?
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.0.contains(&(1, u16::MAX))
    }
}

/// As a rule would write it.
impl fmt::Display for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_all() {
            return f.write_str("*");
        }
        for (i, (low, high)) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            if low == high {
                write!(f, "{comma}{low}")?;
            } else {
                write!(f, "{comma}{low}-{high}")?;
            }
        }
        Ok(())
    }
}

/// Parses one port: decimal, 1 to 65535, no sign, no leading zero.
#[must_use]
pub fn parse_port(text: &str) -> Option<u16> {
    let plain = !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

/// Parses `8443` or `8000-8010`.
#[must_use]
pub fn parse_range(text: &str) -> Option<(u16, u16)> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high) = (parse_port(low)?, parse_port(high)?);
    (low <= high).then_some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_plain_decimals() {
        assert_eq!(parse_port("443"), Some(443));
        for text in ["", "0", "0443", "+443", "-1", "65536", "https", " 443", "4.43"] {
            assert_eq!(parse_port(text), None, "{text}");
        }
        assert_eq!(parse_range("8000-8010"), Some((8000, 8010)));
        assert_eq!(parse_range("8010-8000"), None);
        assert_eq!(parse_range("1-"), None);
    }

    #[test]
    fn membership_is_inclusive() {
        let set = PortSet::of(vec![(8000, 8010), (443, 443)]);
        assert!(set.contains(8010) && set.contains(443) && !set.contains(8011));
        assert!(PortSet::all().holds_all_of(&set) && set.holds_all_of(&PortSet::one(8005)));
        assert!(!set.holds_all_of(&PortSet::web()) && !PortSet::one(80).holds_all_of(&PortSet::web()));
        assert_eq!(set.to_string(), "443, 8000-8010");
        assert_eq!(PortSet::all().to_string(), "*");
    }
}
