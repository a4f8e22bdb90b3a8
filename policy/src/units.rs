//! Durations, sizes and rates as configuration files write them.

use std::num::NonZeroU32;
use std::time::Duration;

/// Parses `500ms`, `5s`, `15m`, `12h` or `2d`; whole numbers only, at most ten years.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.get(digits.len()..)?;
    let count: u64 = parse_digits(digits)?;
    let duration = match unit {
        "ms" => Duration::from_millis(count),
        "s" => Duration::from_secs(count),
        "m" => Duration::from_secs(count.checked_mul(60)?),
        "h" => Duration::from_secs(count.checked_mul(3600)?),
        "d" => Duration::from_secs(count.checked_mul(86_400)?),
        _ => return None,
    };
    (duration <= Duration::from_secs(3650 * 86_400)).then_some(duration)
}

/// Parses a number of bytes: `1024`, `10kB`, `5MB`, `2GiB` and the like.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..)? {
        "" | "B" => 1,
        "kB" | "KB" => 1_000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "GiB" => 1 << 30,
        "TB" => 1_000_000_000_000,
        "TiB" => 1 << 40,
        _ => return None,
    };
    parse_digits(digits)?.checked_mul(unit)
}

/// So much per period, counted in windows that start at first use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// How much.
    pub amount: u64,
    /// In how long.
    pub period: Duration,
}

/// Parses `200/hour` or, with `size`, `2GiB/day`.
#[must_use]
pub fn parse_quota(text: &str, size: bool) -> Option<Quota> {
    let (amount, period) = text.split_once('/')?;
    let amount = if size { parse_size(amount)? } else { parse_digits(amount)? };
    Some(Quota { amount, period: parse_period(period)? })
}

/// A rate with a burst, for a generic cell rate algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many per period.
    pub amount: NonZeroU32,
    /// The period.
    pub period: Duration,
    /// How many may come at once.
    pub burst: NonZeroU32,
}

/// Parses `50/s` or `50/s burst 200`; without a burst it is the amount.
#[must_use]
pub fn parse_rate(text: &str) -> Option<Rate> {
    let mut words = text.split_ascii_whitespace();
    let quota = parse_quota(words.next()?, false)?;
    let amount = NonZeroU32::new(u32::try_from(quota.amount).ok()?)?;
    let burst = match (words.next(), words.next(), words.next()) {
        (None, ..) => amount,
        (Some("burst"), Some(count), None) => NonZeroU32::new(u32::try_from(parse_digits(count)?).ok()?)?,
        _ => return None,
    };
    Some(Rate { amount, period: quota.period, burst })
}

fn parse_period(text: &str) -> Option<Duration> {
    let seconds = match text {
        "s" | "second" => 1,
        "m" | "minute" => 60,
        "h" | "hour" => 3600,
        "d" | "day" => 86_400,
        _ => return parse_duration(text).filter(|d| !d.is_zero()),
    };
    Some(Duration::from_secs(seconds))
}

fn parse_digits(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(parse_duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_duration("12h"), Some(Duration::from_secs(43_200)));
        for text in ["", "5", "s", "-1s", "1.5s", "5 s", "5sec", "99999999999999999999s", "4000d"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("2GiB"), Some(2 << 30));
        assert_eq!(parse_size("5MB"), Some(5_000_000));
        assert_eq!(parse_size("7"), Some(7));
        assert_eq!(parse_size("18446744073709551615"), Some(u64::MAX));
        for text in ["", "GiB", "1gb", "-1", "18446744073709551616", "99999999999TiB"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn rates_and_quotas() {
        let rate = parse_rate("50/s burst 200").unwrap();
        assert_eq!((rate.amount.get(), rate.burst.get(), rate.period), (50, 200, Duration::from_secs(1)));
        assert_eq!(parse_rate("6/10s").unwrap().period, Duration::from_secs(10));
        for text in ["50", "50/", "0/s", "50/s burst", "50/s burst 0", "50/s 200", "50/s burst 2 3", "5/0s"] {
            assert_eq!(parse_rate(text), None, "{text}");
        }
        assert_eq!(parse_quota("2GiB/day", true).unwrap().amount, 2 << 30);
        assert_eq!(parse_quota("200/hour", false).unwrap().period, Duration::from_secs(3600));
        assert_eq!(parse_quota("2GiB/day", false), None);
    }
}
