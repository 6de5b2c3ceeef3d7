//! Time of day in UTC, to the millisecond.

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Why text is not a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a time such as 2026-01-31T12:00:00.000Z")]
pub struct TimestampError {
    /// The text, as given.
    pub text: String,
}

/// A moment between 1970 and 9999, shown as RFC 3339 in UTC with three decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timestamp {
    unix_millis: u64,
}

/// 9999-12-31T23:59:59.999Z.
const LAST_MILLIS: u64 = 253_402_300_799_999;
const DAY_MILLIS: u64 = 86_400_000;

impl Timestamp {
    /// The clock's reading, brought into range.
    pub fn from_system(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_millis = u64::try_from(since.as_millis()).unwrap_or(LAST_MILLIS);
        Self {
            unix_millis: unix_millis.min(LAST_MILLIS),
        }
    }

    /// Milliseconds since 1970.
    pub const fn unix_millis(self) -> u64 {
        self.unix_millis
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date_of_day(self.unix_millis / DAY_MILLIS);
        let millis = self.unix_millis % DAY_MILLIS;
        let (hour, minute) = (millis / 3_600_000, millis / 60_000 % 60);
        let (second, fraction) = (millis / 1000 % 60, millis % 1000);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:03}Z"
        )
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        parse(text).ok_or_else(|| TimestampError {
            text: text.to_owned(),
        })
    }
}

impl TryFrom<String> for Timestamp {
    type Error = TimestampError;

    fn try_from(text: String) -> Result<Self, TimestampError> {
        text.parse()
    }
}

impl From<Timestamp> for String {
    fn from(time: Timestamp) -> String {
        time.to_string()
    }
}

fn parse(text: &str) -> Option<Timestamp> {
    let shape = b"dddd-dd-ddTdd:dd:dd.dddZ";
    let fits = text.len() == shape.len()
        && text.bytes().zip(shape).all(|(byte, want)| match want {
            b'd' => byte.is_ascii_digit(),
            _ => byte == *want,
        });
    if !fits {
        return None;
    }
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let day = day_of_date(number(0, 4)?, number(5, 7)?, number(8, 10)?)?;
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let unix_millis =
        day * DAY_MILLIS + ((hour * 60 + minute) * 60 + second) * 1000 + number(20, 23)?;
    Some(Timestamp { unix_millis })
}

/// The date of a day counted from 1970-01-01. Years begin in March here, so that the leap day
/// is the last one (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn date_of_day(day: u64) -> (u64, u64, u64) {
    let shifted = day + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (year + era * 400 + u64::from(month <= 2), month, date)
}

fn day_of_date(year: u64, month: u64, date: u64) -> Option<u64> {
    let year_from_march = if month <= 2 {
        year.checked_sub(1)?
    } else {
        year
    };
    let month_from_march = if month <= 2 {
        month + 9
    } else {
        month.checked_sub(3)?
    };
    let (era, of_era) = (year_from_march / 400, year_from_march % 400);
    let of_year = (153 * month_from_march + 2) / 5 + date.checked_sub(1)?;
    let day_of_era = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    let day = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    // What does not come back the same was no date: 31 April, month 13.
    (date_of_day(day) == (year, month, date)).then_some(day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn shown(millis: u64) -> String {
        Timestamp::from_system(UNIX_EPOCH + Duration::from_millis(millis)).to_string()
    }

    #[test]
    fn known_moments() {
        assert_eq!(shown(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(shown(951_827_696_789), "2000-02-29T12:34:56.789Z");
        assert_eq!(shown(LAST_MILLIS), "9999-12-31T23:59:59.999Z");
        assert_eq!(shown(LAST_MILLIS + 5), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for bad in [
            "",
            "2026-02-29T00:00:00.000Z",
            "2026-04-31T00:00:00.000Z",
            "2026-13-01T00:00:00.000Z",
            "2026-01-01T24:00:00.000Z",
            "1969-12-31T00:00:00.000Z",
            "2026-01-01 00:00:00.000Z",
        ] {
            assert!(bad.parse::<Timestamp>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn text_round_trips(unix_millis in 0..=LAST_MILLIS) {
            let time = Timestamp { unix_millis };
            prop_assert_eq!(time.to_string().parse::<Timestamp>().unwrap(), time);
        }
    }
}
