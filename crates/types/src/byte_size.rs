//! A number of bytes, written as people write it.
//!
//! Units are powers of 1024 however they are spelled (`K`, `Ki`, `KB`, `KiB`), because that is what
//! memory and file-system limits are counted in; fractions are refused rather than rounded.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

const UNITS: [(char, u64); 4] = [('k', 1 << 10), ('m', 1 << 20), ('g', 1 << 30), ('t', 1 << 40)];

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ByteSize(u64);

/// Why a text is not a number of bytes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ByteSizeError {
    #[error("`{0}` is not a number of bytes: write a whole number with K, M, G or T, such as 256M")]
    Grammar(String),
    #[error("`{0}` is more bytes than can be counted")]
    Overflow(String),
}

impl ByteSize {
    pub const fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    pub const fn kib(kib: u64) -> Self {
        Self(kib << 10)
    }

    pub const fn mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    pub const fn gib(gib: u64) -> Self {
        Self(gib << 30)
    }

    pub const fn as_u64(self) -> u64 {
        self.0
    }

    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    pub fn checked_mul(self, factor: u64) -> Option<Self> {
        self.0.checked_mul(factor).map(Self)
    }
}

impl FromStr for ByteSize {
    type Err = ByteSizeError;

    fn from_str(text: &str) -> Result<Self, ByteSizeError> {
        let grammar = || ByteSizeError::Grammar(text.to_owned());
        let overflow = || ByteSizeError::Overflow(text.to_owned());
        let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(unit_at);
        if digits.is_empty() {
            return Err(grammar());
        }
        let factor = factor_of(&unit.to_ascii_lowercase()).ok_or_else(grammar)?;
        let number: u64 = digits.parse().map_err(|_| overflow())?;
        number.checked_mul(factor).map(Self).ok_or_else(overflow)
    }
}

fn factor_of(unit: &str) -> Option<u64> {
    if matches!(unit, "" | "b") {
        return Some(1);
    }
    let mut letters = unit.chars();
    let letter = letters.next()?;
    let (_, factor) = UNITS.into_iter().find(|(name, _)| *name == letter)?;
    matches!(letters.as_str(), "" | "b" | "i" | "ib").then_some(factor)
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS.into_iter().rev().find(|(_, factor)| self.0 != 0 && self.0.is_multiple_of(*factor));
        match exact {
            Some((letter, factor)) => write!(f, "{}{}iB", self.0 / factor, letter.to_ascii_uppercase()),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(ByteSizeVisitor)
        } else {
            u64::deserialize(deserializer).map(Self)
        }
    }
}

struct ByteSizeVisitor;

impl de::Visitor<'_> for ByteSizeVisitor {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number of bytes or a text such as \"256M\"")
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
        Ok(ByteSize(bytes))
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
        u64::try_from(bytes).map(ByteSize).map_err(|_| E::invalid_value(de::Unexpected::Signed(bytes), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_the_usual_spellings() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("17B", 17),
            ("256M", 256 << 20),
            ("256m", 256 << 20),
            ("512MiB", 512 << 20),
            ("512Mi", 512 << 20),
            ("512MB", 512 << 20),
            ("1G", 1 << 30),
            ("3T", 3 << 40),
            ("8k", 8192),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn refuses_everything_else() {
        for text in
            ["", "M", " 1M", "1 M", "1M ", "-1", "+1", "1.5G", "1e3", "0x10", "1MM", "1iB", "NaN", "1P", "١"]
        {
            assert_eq!(text.parse::<ByteSize>(), Err(ByteSizeError::Grammar(text.into())), "{text}");
        }
        for text in ["18446744073709551616", "16777216T", "99999999999999999999999G"] {
            assert_eq!(text.parse::<ByteSize>(), Err(ByteSizeError::Overflow(text.into())), "{text}");
        }
    }

    #[test]
    fn arithmetic_is_checked() {
        assert_eq!(ByteSize::bytes(u64::MAX).checked_add(ByteSize::bytes(1)), None);
        assert_eq!(ByteSize::bytes(1).checked_sub(ByteSize::bytes(2)), None);
        assert_eq!(ByteSize::gib(1).checked_mul(1 << 40), None);
        assert_eq!(ByteSize::mib(1).checked_mul(2), Some(ByteSize::mib(2)));
    }

    #[test]
    fn json_takes_numbers_and_texts() {
        let read = |json: &str| serde_json::from_str::<ByteSize>(json).ok();
        assert_eq!(read("1024"), Some(ByteSize::kib(1)));
        assert_eq!(read("\"1K\""), Some(ByteSize::kib(1)));
        for bad in ["-1", "1.5", "1e308", "null", "true", "\"x\"", "[1]"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(serde_json::to_string(&ByteSize::kib(1)).unwrap(), "1024");
    }

    proptest! {
        #[test]
        fn display_parses_back(bytes: u64) {
            prop_assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = text.parse::<ByteSize>();
        }
    }
}
