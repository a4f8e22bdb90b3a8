//! Points in time as people give them: RFC 3339, or how long ago.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use egret_policy::units::parse_duration;

use crate::audit::Timestamp;

/// Reads `2026-11-29T18:15:48Z` (RFC 3339, any offset) or `90m` (that long before `now`), and
/// writes it as records write their times. `None` if it is neither.
#[must_use]
pub fn read_since(text: &str, now: SystemTime) -> Option<String> {
    let time = match parse_duration(text) {
        Some(ago) => now.checked_sub(ago).unwrap_or(UNIX_EPOCH),
        None => parse_rfc3339(text)?,
    };
    Some(Timestamp::from(time).to_string())
}

/// RFC 3339 section 5.6. A leap second counts as the second after it.
fn parse_rfc3339(text: &str) -> Option<SystemTime> {
    let (date, rest) = text.split_at_checked(10)?;
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (time, rest) = rest.split_at_checked(8)?;
    let [year, month, day] = three(date, '-')?;
    let [hour, minute, second] = three(time, ':')?;
    if date.len() != 10 || !(1970..=9999).contains(&year) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (nanos, zone) = fraction(rest)?;
    let seconds = days_since_1970(year, month, day)? * 86_400 + hour * 3600 + minute * 60 + second;
    let seconds = seconds.checked_add_signed(-offset(zone)?)?;
    UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

/// Three numbers of two digits, of which the first may have four.
fn three(text: &str, separator: char) -> Option<[u64; 3]> {
    let mut parts = text.split(separator);
    let mut next = |lengths: &[usize]| {
        let part = parts.next()?;
        let plain = part.bytes().all(|byte| byte.is_ascii_digit());
        (plain && lengths.contains(&part.len())).then(|| part.parse().ok())?
    };
    let found = [next(&[2, 4])?, next(&[2])?, next(&[2])?];
    parts.next().is_none().then_some(found)
}

/// `.25` or nothing, as nanoseconds, and what follows.
fn fraction(text: &str) -> Option<(u32, &str)> {
    let Some(rest) = text.strip_prefix('.') else { return Some((0, text)) };
    let length = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, zone) = rest.split_at_checked(length)?;
    if digits.is_empty() {
        return None;
    }
    let nanos = format!("{digits:0<9}").get(..9)?.parse().ok()?;
    Some((nanos, zone))
}

/// `Z` or `+01:30`, in seconds.
fn offset(zone: &str) -> Option<i64> {
    if matches!(zone, "Z" | "z") {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone.strip_prefix(['+', '-'])?.split_once(':')?;
    let two = |text: &str| {
        let plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        if plain { text.parse::<i64>().ok() } else { None }
    };
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let length = |month| match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !(1..=12).contains(&month) || !(1..=length(month)).contains(&day) {
        return None;
    }
    let years: u64 = (1970..year).map(|year| 365 + u64::from(is_leap(year))).sum();
    let months: u64 = (1..month).map(length).sum();
    Some(years + months + day - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Option<String> {
        read_since(text, UNIX_EPOCH + Duration::from_secs(1_000_000_000))
    }

    #[test]
    fn times_of_rfc_3339() {
        for (text, expected) in [
            ("1985-04-12T23:20:50.52Z", "1985-04-12T23:20:50.520000Z"),
            ("1996-12-19T16:39:57-08:00", "1996-12-20T00:39:57.000000Z"),
            ("1990-12-31T23:59:60Z", "1991-01-01T00:00:00.000000Z"),
            ("2000-02-29t00:00:00.123456789z", "2000-02-29T00:00:00.123456Z"),
            ("2026-11-29 18:15:48+05:30", "2026-11-29T12:45:48.000000Z"),
        ] {
            assert_eq!(read(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn how_long_ago() {
        assert_eq!(read("1h").as_deref(), Some("2001-09-09T00:46:40.000000Z"));
        assert_eq!(read("3000d").as_deref(), Some("1993-06-23T01:46:40.000000Z"));
    }

    #[test]
    fn what_is_no_time() {
        for text in [
            "",
            "yesterday",
            "2026-11-29",
            "2026-11-29T18:15:48",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-00-10T00:00:00Z",
            "2026-11-29T24:00:00Z",
            "2026-11-29T18:60:00Z",
            "2026-11-29T18:15:61Z",
            "2026-11-29T18:15:48.Z",
            "2026-11-29T18:15:48+1:00",
            "2026-11-29T18:15:48+24:00",
            "1969-12-31T23:59:59Z",
            "26-11-2029T18:15:48Z",
            "1h ago",
            "-1h",
            "é026-11-29T18:15:48Z",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn written_times_come_back(seconds in 0_u64..253_402_300_799, micros in 0_u32..1_000_000) {
            let time = UNIX_EPOCH + Duration::new(seconds, micros * 1000);
            let text = Timestamp::from(time).to_string();
            prop_assert_eq!(read(&text), Some(text));
        }

        #[test]
        fn any_text_is_read_without_panic(text in any::<String>()) {
            let _ = read(&text);
        }
    }
}
