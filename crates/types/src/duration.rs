//! Spans of time as people write them: `2s`, `500ms`, `1m30s`; a bare number means seconds.
//!
//! Free functions over [`std::time::Duration`], so that command line, configuration and specs read the
//! same words without a type of our own. [`seconds`] is the serde form.

use std::fmt::Write as _;
use std::time::Duration;

use thiserror::Error;

/// Longest span that is read at all; each user of a span sets tighter bounds.
pub const MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
];

/// Why a text is not a span of time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DurationError {
    #[error(
        "`{0}` is not a span of time: write seconds, or d, h, m, s, ms from large to small, such as 1m30s"
    )]
    Grammar(String),
    #[error("`{0}` is longer than ten years")]
    TooLong(String),
}

/// Reads a span. Fractions are exact to the nanosecond and refused beyond it.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let grammar = || DurationError::Grammar(text.to_owned());
    let too_long = || DurationError::TooLong(text.to_owned());
    let mut rest = text;
    let mut units = UNITS.as_slice();
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let bare_seconds = unit.is_empty() && number.len() == text.len();
        let unit = if bare_seconds { "s" } else { unit };
        // Only units smaller than the last one remain, so `1s1m` and `1s1s` find nothing.
        let at = units.iter().position(|(name, _)| *name == unit).ok_or_else(grammar)?;
        let nanos = scaled(number, units[at].1).ok_or_else(grammar)?.ok_or_else(too_long)?;
        total = total.checked_add(nanos).ok_or_else(too_long)?;
        units = &units[at + 1..];
        rest = tail;
    }
    if text.is_empty() {
        return Err(grammar());
    }
    let span = Duration::from_nanos(total);
    if span > MAX { Err(too_long()) } else { Ok(span) }
}

/// `number` times `unit` nanoseconds: `None` when it is no number, `Some(None)` when it is too large.
fn scaled(number: &str, unit: u64) -> Option<Option<u64>> {
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
        Some(_) => return None,
        None => (number, ""),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let mut nanos = match whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(unit)) {
        Some(nanos) => nanos,
        None => return Some(None),
    };
    if !fraction.is_empty() {
        let parts = u128::from(fraction.parse::<u64>().ok()?) * u128::from(unit);
        let scale = 10_u128.pow(fraction.len() as u32);
        if parts % scale != 0 {
            return None;
        }
        nanos = match u64::try_from(parts / scale).ok().and_then(|parts| nanos.checked_add(parts)) {
            Some(nanos) => nanos,
            None => return Some(None),
        };
    }
    Some(Some(nanos))
}

/// Reads a number of seconds, such as JSON and YAML carry.
pub fn from_seconds(seconds: f64) -> Result<Duration, DurationError> {
    if seconds > MAX.as_secs_f64() {
        return Err(DurationError::TooLong(seconds.to_string()));
    }
    // Rounded to the microsecond: 0.1 has no exact binary form and must not become 100.000000001 ms.
    let exact =
        Duration::try_from_secs_f64(seconds).map_err(|_| DurationError::Grammar(seconds.to_string()))?;
    let micros = (exact.as_nanos() + 500) / 1000;
    Ok(Duration::from_micros(u64::try_from(micros).expect("ten years of microseconds fit")))
}

/// Writes a span so that [`parse`] reads the same one back, down to the nanosecond.
pub fn format(span: Duration) -> String {
    let mut nanos = span.as_nanos();
    let mut text = String::new();
    for (name, unit) in UNITS {
        let unit = u128::from(unit);
        let last = name == "ms";
        let count = nanos / unit;
        nanos %= unit;
        if last && nanos > 0 {
            let fraction = format!("{nanos:06}");
            let _ = write!(text, "{count}.{}{name}", fraction.trim_end_matches('0'));
        } else if count > 0 {
            let _ = write!(text, "{count}{name}");
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Serde form for `#[serde(with = "sandstorm_types::duration::seconds")]`: written as a number of
/// seconds, read from a number or a text. Binary formats carry the span as it is.
pub mod seconds {
    use std::fmt;
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    pub fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            span.serialize(serializer)
        } else if span.subsec_nanos() == 0 {
            serializer.serialize_u64(span.as_secs())
        } else {
            serializer.serialize_f64(span.as_secs_f64())
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(SecondsVisitor)
        } else {
            Duration::deserialize(deserializer)
        }
    }

    struct SecondsVisitor;

    impl de::Visitor<'_> for SecondsVisitor {
        type Value = Duration;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number of seconds or a text such as \"1m30s\"")
        }

        fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Duration, E> {
            let span = Duration::from_secs(seconds);
            if span > super::MAX {
                Err(E::custom(super::DurationError::TooLong(seconds.to_string())))
            } else {
                Ok(span)
            }
        }

        fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Duration, E> {
            match u64::try_from(seconds) {
                Ok(seconds) => self.visit_u64(seconds),
                Err(_) => Err(E::invalid_value(de::Unexpected::Signed(seconds), &self)),
            }
        }

        fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Duration, E> {
            super::from_seconds(seconds).map_err(E::custom)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
            super::parse(text).map_err(E::custom)
        }
    }
}

/// [`seconds`] for a span that may be absent.
pub mod optional_seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    struct Seconds(#[serde(with = "super::seconds")] Duration);

    pub fn serialize<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        span.map(Seconds).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Seconds>::deserialize(deserializer)?.map(|Seconds(span)| span))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_the_usual_spellings() {
        for (text, millis) in [
            ("2", 2000),
            ("0", 0),
            ("0.5", 500),
            ("2s", 2000),
            ("500ms", 500),
            ("1m30s", 90_000),
            ("1.5s", 1500),
            ("2h", 7_200_000),
            ("1d1h1m1s1ms", 90_061_001),
            ("90m", 5_400_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn refuses_everything_else() {
        for text in [
            "",
            "s",
            "-1",
            "+1",
            " 1",
            "1 s",
            "1S",
            "1s1m",
            "1s1s",
            "1m2",
            "1.",
            ".5",
            "1..2",
            "1e3",
            "NaN",
            "inf",
            "1y",
            "1us",
            "0.0000000001",
            "1.5.5s",
        ] {
            assert_eq!(parse(text), Err(DurationError::Grammar(text.into())), "{text}");
        }
        for text in ["9223372036854775808", "99999999999999999999999d", "3651d", "400000000000s"] {
            assert_eq!(parse(text), Err(DurationError::TooLong(text.into())), "{text}");
        }
    }

    #[test]
    fn seconds_of_every_kind() {
        assert_eq!(from_seconds(0.1), Ok(Duration::from_millis(100)));
        assert!(from_seconds(f64::NAN).is_err());
        assert!(from_seconds(-0.1).is_err());
        assert!(from_seconds(1e308).is_err());
    }

    #[test]
    fn formats_shortly() {
        assert_eq!(format(Duration::ZERO), "0s");
        assert_eq!(format(Duration::from_secs(90)), "1m30s");
        assert_eq!(format(Duration::from_micros(1500)), "1.5ms");
    }

    proptest! {
        #[test]
        fn format_parses_back(nanos in 0..315_360_000_000_000_000_u64) {
            let span = Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&format(span)), Ok(span));
        }

        #[test]
        fn no_text_panics(text in "[0-9.dhms -]*") {
            let _ = parse(&text);
        }
    }
}
