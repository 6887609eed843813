//! A day, for saying how old a figure is.

use std::fmt;
use std::str::FromStr;

use sandstorm_types::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

const MILLIS_OF_A_DAY: i64 = 86_400_000;

/// A day by UTC, written `2026-11-15`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date {
    days: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a day: write it like 2026-11-15")]
pub struct DateError(pub String);

impl Date {
    pub fn of(moment: Timestamp) -> Self {
        Self { days: moment.millis().div_euclid(MILLIS_OF_A_DAY) }
    }

    /// The moment at which it begins.
    pub fn start(self) -> Timestamp {
        Timestamp::from_millis(self.days.saturating_mul(MILLIS_OF_A_DAY))
    }

    /// Whole days from `earlier` to here; none when it is not earlier.
    pub fn days_since(self, earlier: Self) -> u64 {
        u64::try_from(self.days.saturating_sub(earlier.days)).unwrap_or(0)
    }
}

impl FromStr for Date {
    type Err = DateError;

    fn from_str(text: &str) -> Result<Self, DateError> {
        let moment: Timestamp =
            format!("{text}T00:00:00Z").parse().map_err(|_| DateError(text.to_owned()))?;
        Ok(Self::of(moment))
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = self.start().to_string();
        f.write_str(moment.split('T').next().unwrap_or(&moment))
    }
}

impl Serialize for Date {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Date {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_read_written_and_counted() {
        let day = |text: &str| text.parse::<Date>().unwrap();
        assert_eq!(day("2026-11-15").to_string(), "2026-11-15");
        assert_eq!(day("2026-03-01").days_since(day("2026-02-27")), 2);
        assert_eq!(day("2026-02-27").days_since(day("2026-03-01")), 0);
        for text in ["2026-2-1", "2026-02-30", "2026", "", "2026-02-01T00"] {
            assert!(text.parse::<Date>().is_err(), "{text}");
        }
    }
}
