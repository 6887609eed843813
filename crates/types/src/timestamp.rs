//! A moment by the wall clock, to the millisecond: what is stored, and what clients see as RFC 3339 text.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use thiserror::Error;

use crate::text_form::serde_as_text;

/// Milliseconds since 1970, UTC. Printed as `2026-11-15T12:03:43.123Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a time is written like 2026-11-15T12:03:43.123Z")]
pub struct TimestampError;

impl Timestamp {
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Later by `span`; stops at the end of time instead of wrapping.
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Earlier by `span`.
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Time from `earlier` to here; none when it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let millis = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Self(match time.duration_since(UNIX_EPOCH) {
            Ok(span) => millis(span),
            Err(before) => -millis(before.duration()),
        })
    }
}

/// Days since 1970 to year, month and day, by the proleptic Gregorian calendar.
fn civil(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * shifted_month + 2) / 5 + 1) as u32;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 } as u32;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The inverse of [`civil`].
fn days(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted_month = i64::from(if month > 2 { month - 3 } else { month + 9 });
    let day_of_year = (153 * shifted_month + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (day, millis) = (self.0.div_euclid(86_400_000), self.0.rem_euclid(86_400_000));
        let (year, month, date) = civil(day);
        let (seconds, fraction) = (millis / 1000, millis % 1000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{fraction:03}Z")
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        let text = text.strip_suffix('Z').ok_or(TimestampError)?;
        let (date, time) = text.split_once('T').ok_or(TimestampError)?;
        let number = |part: Option<&str>, length: usize| {
            let digits = |part: &&str| part.len() == length && part.bytes().all(|b| b.is_ascii_digit());
            part.filter(digits).and_then(|part| part.parse::<u32>().ok()).ok_or(TimestampError)
        };
        let mut date = date.splitn(3, '-');
        let (year, month, day) = (number(date.next(), 4)?, number(date.next(), 2)?, number(date.next(), 2)?);
        let (clock, fraction) = time.split_once('.').unwrap_or((time, "000"));
        let mut clock = clock.splitn(3, ':');
        let (hour, minute, second) =
            (number(clock.next(), 2)?, number(clock.next(), 2)?, number(clock.next(), 2)?);
        let millis = number(Some(fraction), 3)?;
        let whole = days(i64::from(year), month, day);
        let in_range = (1..=12).contains(&month) && hour < 24 && minute < 60 && second < 60;
        if !in_range || civil(whole) != (i64::from(year), month, day) {
            return Err(TimestampError);
        }
        let seconds = i64::from(hour * 3600 + minute * 60 + second);
        Ok(Self((whole * 86_400 + seconds) * 1000 + i64::from(millis)))
    }
}

serde_as_text!(Timestamp);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_moments() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp(1_709_164_800_000).to_string(), "2024-02-29T00:00:00.000Z");
        assert_eq!("2024-02-29T00:00:00Z".parse(), Ok(Timestamp(1_709_164_800_000)));
        for bad in ["2023-02-29T00:00:00Z", "2024-13-01T00:00:00Z", "2024-02-29", "2024-02-29T24:00:00Z", ""]
        {
            assert_eq!(bad.parse::<Timestamp>(), Err(TimestampError), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(millis in -62_135_596_800_000_i64..253_402_300_800_000) {
            let time = Timestamp(millis);
            prop_assert_eq!(time.to_string().parse(), Ok(time));
        }
    }
}
