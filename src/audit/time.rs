//! Wall-clock times as the audit file writes them. No time zones, no parsing.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};

const SECONDS_PER_DAY: u64 = 86_400;
/// 9999-12-31T23:59:59.999999Z: RFC 3339 has four digits for the year.
const LAST: Duration = Duration::new(253_402_300_799, 999_999_999);

/// An instant written as RFC 3339 in UTC with microseconds: `2026-11-29T17:23:19.004512Z`.
///
/// Times outside the years 1970 to 9999 are written as the nearest one inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp(SystemTime);

impl Timestamp {
    /// The present, by the system's clock.
    #[must_use]
    pub fn now() -> Self {
        Self(SystemTime::now())
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        Self(time)
    }
}

impl Timestamp {
    /// The text, digit by digit: it is in every record, where the formatting machinery would cost
    /// more than all the other fields.
    fn text(self) -> Text {
        let since_epoch = self.0.duration_since(UNIX_EPOCH).unwrap_or_default().min(LAST);
        let seconds = since_epoch.as_secs();
        let (year, month, day) = civil_date(seconds / SECONDS_PER_DAY);
        let of_day = seconds % SECONDS_PER_DAY;
        let mut text = Text::default();
        let mut places = text.0.iter_mut();
        let mut put = |byte| {
            if let Some(place) = places.next() {
                *place = byte;
            }
        };
        for (number, width, end) in [
            (year, 4, b'-'),
            (month, 2, b'-'),
            (day, 2, b'T'),
            (of_day / 3600, 2, b':'),
            (of_day / 60 % 60, 2, b':'),
            (of_day % 60, 2, b'.'),
            (u64::from(since_epoch.subsec_micros()), 6, b'Z'),
        ] {
            for place in (0..width).rev() {
                let digit = u8::try_from(number / 10_u64.pow(place) % 10).unwrap_or(0);
                put(b'0' + digit);
            }
            put(end);
        }
        text
    }
}

/// A written instant, without an allocation.
#[derive(Default)]
struct Text([u8; 27]);

impl Text {
    fn as_str(&self) -> &str {
        // Digits and signs of ASCII alone.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text().as_str())
    }
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
///
/// Counts in years that begin on 1 March, so that the leap day is the last day of a year,
/// and in eras of 400 years, which all have 146,097 days.
fn civil_date(days_since_1970: u64) -> (u64, u64, u64) {
    const DAYS_PER_ERA: u64 = 146_097;
    const FROM_0000_03_01_TO_1970: u64 = 719_468;

    let days = days_since_1970 + FROM_0000_03_01_TO_1970;
    let (era, day) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    // Take out the leap days before `day`: one per 4 years, none per 100, one per 400.
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months from March: 31, 30, 31, 30, 31 days and again, which is 153 days in five months.
    let from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(seconds: u64, nanos: u32) -> String {
        Timestamp(UNIX_EPOCH + Duration::new(seconds, nanos)).to_string()
    }

    #[test]
    fn known_instants() {
        for (seconds, nanos, expected) in [
            (0, 0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399, 999_999_999, "2000-02-28T23:59:59.999999Z"),
            (951_782_400, 0, "2000-02-29T00:00:00.000000Z"),
            (951_868_800, 1_000, "2000-03-01T00:00:00.000001Z"),
            (1_000_000_000, 0, "2001-09-09T01:46:40.000000Z"),
            (1_234_567_890, 123_456_789, "2009-02-13T23:31:30.123456Z"),
            (1_709_164_800, 0, "2024-02-29T00:00:00.000000Z"),
            (1_735_689_599, 0, "2024-12-31T23:59:59.000000Z"),
            (1_735_689_600, 0, "2025-01-01T00:00:00.000000Z"),
            (4_107_542_399, 0, "2100-02-28T23:59:59.000000Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000000Z"),
            (253_402_300_799, 0, "9999-12-31T23:59:59.000000Z"),
        ] {
            assert_eq!(written(seconds, nanos), expected);
        }
    }

    #[test]
    fn times_outside_the_range_are_clamped() {
        let before = Timestamp(UNIX_EPOCH - Duration::from_secs(1));
        assert_eq!(before.to_string(), "1970-01-01T00:00:00.000000Z");
        assert_eq!(written(253_402_300_800, 0), "9999-12-31T23:59:59.999999Z");
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
        let length = |y, m| match m {
            2 if leap(y) => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let mut expected = (1970, 1, 1);
        for day in 0..200_000 {
            assert_eq!(civil_date(day), expected);
            let (y, m, d) = expected;
            expected = match (m, d == length(y, m)) {
                (12, true) => (y + 1, 1, 1),
                (_, true) => (y, m + 1, 1),
                (_, false) => (y, m, d + 1),
            };
        }
    }
}
