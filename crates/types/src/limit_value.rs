//! One limit's value: how it is read from whatever a request, a flag or a file holds, and its range.
//!
//! Every refusal names the limit, what was given and what is allowed, whichever way the value came in.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use thiserror::Error;

use crate::{ByteSize, LimitName, MilliCpus, duration};

/// A limit's value as given, before it is known to make sense.
#[derive(Debug, Clone, PartialEq)]
pub enum LimitValue {
    Integer(i128),
    Float(f64),
    Text(String),
    /// Something that no limit is: a list, an object, a truth value.
    Other(&'static str),
}

/// A limit's value that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("limit `{name}` cannot be {given}: allowed is {allowed}")]
pub struct LimitError {
    pub name: LimitName,
    pub given: String,
    pub allowed: String,
}

impl fmt::Display for LimitValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number:?}"),
            Self::Text(text) if text.chars().count() > 40 => {
                write!(f, "{:?}…", text.chars().take(40).collect::<String>())
            }
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Other(what) => f.write_str(what),
        }
    }
}

/// What a limit counts. Values are kept as whole numbers of its smallest step.
#[derive(Clone, Copy)]
enum Unit {
    Nanoseconds,
    MilliCpus,
    Bytes,
    Pieces,
}

const MILLISECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600_000 * MILLISECOND;

impl LimitName {
    fn unit(self) -> Unit {
        match self {
            Self::Wall | Self::CpuTime => Unit::Nanoseconds,
            Self::Cpus => Unit::MilliCpus,
            Self::Memory | Self::Disk | Self::Output => Unit::Bytes,
            Self::Processes | Self::OpenFiles | Self::Inodes => Unit::Pieces,
        }
    }

    /// Smallest and largest value. Below the smallest no program of any language starts, or the kernel
    /// cannot tell the value from zero; above the largest a number is a mistake rather than a wish.
    fn range(self) -> (u64, u64) {
        match self {
            Self::Wall => (10 * MILLISECOND, 24 * HOUR),
            Self::CpuTime => (10 * MILLISECOND, 7 * 24 * HOUR),
            Self::Cpus => (10, 1_024_000),
            Self::Memory => (ByteSize::mib(4).as_u64(), ByteSize::gib(1 << 10).as_u64()),
            Self::Processes => (1, 65_536),
            Self::OpenFiles => (16, 1_048_576),
            Self::Disk => (ByteSize::mib(1).as_u64(), ByteSize::gib(16 << 10).as_u64()),
            Self::Inodes => (64, 100_000_000),
            Self::Output => (1, ByteSize::gib(1).as_u64()),
        }
    }

    /// The allowed range in words, such as `10ms to 1d`.
    pub fn allowed(self) -> String {
        let (min, max) = self.range();
        format!("{} to {}", self.show(min), self.show(max))
    }

    pub(crate) fn show(self, value: u64) -> String {
        match self.unit() {
            Unit::Nanoseconds => duration::format(Duration::from_nanos(value)),
            Unit::MilliCpus => MilliCpus::new(u32::try_from(value).unwrap_or(u32::MAX)).to_string(),
            Unit::Bytes => ByteSize::bytes(value).to_string(),
            Unit::Pieces => value.to_string(),
        }
    }

    fn refuse(self, given: impl fmt::Display) -> LimitError {
        LimitError { name: self, given: given.to_string(), allowed: self.allowed() }
    }

    /// Checks a value that is already typed.
    pub(crate) fn check(self, value: u64) -> Result<(), LimitError> {
        let (min, max) = self.range();
        if (min..=max).contains(&value) { Ok(()) } else { Err(self.refuse(self.show(value))) }
    }

    /// Reads a value of this limit in its smallest step and checks its range.
    pub(crate) fn read(self, value: &LimitValue) -> Result<u64, LimitError> {
        let steps = match self.unit() {
            Unit::Nanoseconds => read_nanoseconds(value),
            Unit::MilliCpus => read_milli_cpus(value),
            Unit::Bytes => read_bytes(value),
            Unit::Pieces => read_pieces(value),
        };
        let steps = steps.ok_or_else(|| self.refuse(value))?;
        let (min, max) = self.range();
        if (min..=max).contains(&steps) { Ok(steps) } else { Err(self.refuse(value)) }
    }
}

fn read_nanoseconds(value: &LimitValue) -> Option<u64> {
    let span = match value {
        LimitValue::Integer(seconds) => Duration::from_secs(u64::try_from(*seconds).ok()?),
        LimitValue::Float(seconds) => duration::from_seconds(*seconds).ok()?,
        LimitValue::Text(text) => duration::parse(text).ok()?,
        LimitValue::Other(_) => return None,
    };
    u64::try_from(span.as_nanos()).ok()
}

fn read_milli_cpus(value: &LimitValue) -> Option<u64> {
    let cpus = match value {
        LimitValue::Integer(cpus) => cpus.to_string().parse::<MilliCpus>().ok()?,
        LimitValue::Float(cpus) => MilliCpus::from_cpus(*cpus).ok()?,
        LimitValue::Text(text) => text.parse().ok()?,
        LimitValue::Other(_) => return None,
    };
    Some(cpus.milli().into())
}

fn read_bytes(value: &LimitValue) -> Option<u64> {
    match value {
        LimitValue::Text(text) => text.parse::<ByteSize>().ok().map(ByteSize::as_u64),
        other => read_pieces(other),
    }
}

fn read_pieces(value: &LimitValue) -> Option<u64> {
    match value {
        LimitValue::Integer(number) => u64::try_from(*number).ok(),
        // YAML and JavaScript write whole numbers as floats at times; beyond 2^53 they are no longer exact.
        LimitValue::Float(number) => {
            let exact = number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(number);
            exact.then_some(*number as u64)
        }
        LimitValue::Text(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        LimitValue::Text(_) | LimitValue::Other(_) => None,
    }
}

impl<'de> Deserialize<'de> for LimitValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LimitValueVisitor)
    }
}

struct LimitValueVisitor;

impl<'de> de::Visitor<'de> for LimitValueVisitor {
    type Value = LimitValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a text")
    }

    fn visit_bool<E>(self, _: bool) -> Result<LimitValue, E> {
        Ok(LimitValue::Other("a truth value"))
    }

    fn visit_u64<E>(self, number: u64) -> Result<LimitValue, E> {
        Ok(LimitValue::Integer(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<LimitValue, E> {
        Ok(LimitValue::Integer(number.into()))
    }

    fn visit_i128<E>(self, number: i128) -> Result<LimitValue, E> {
        Ok(LimitValue::Integer(number))
    }

    fn visit_u128<E>(self, number: u128) -> Result<LimitValue, E> {
        Ok(i128::try_from(number).map_or(LimitValue::Float(number as f64), LimitValue::Integer))
    }

    fn visit_f64<E>(self, number: f64) -> Result<LimitValue, E> {
        Ok(LimitValue::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<LimitValue, E> {
        Ok(LimitValue::Text(text.to_owned()))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<LimitValue, A::Error> {
        while list.next_element::<de::IgnoredAny>()?.is_some() {}
        Ok(LimitValue::Other("a list"))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<LimitValue, A::Error> {
        while map.next_entry::<de::IgnoredAny, de::IgnoredAny>()?.is_some() {}
        Ok(LimitValue::Other("an object"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_limit_value_and_range() {
        let error = LimitName::Wall.read(&LimitValue::Text("0.0001".into())).unwrap_err();
        assert_eq!(error.to_string(), "limit `wall` cannot be \"0.0001\": allowed is 10ms to 1d");
        let error = LimitName::Memory.read(&LimitValue::Integer(-1)).unwrap_err();
        assert_eq!(error.to_string(), "limit `memory` cannot be -1: allowed is 4MiB to 1TiB");
    }

    #[test]
    fn long_texts_are_cut() {
        let error = LimitName::Disk.read(&LimitValue::Text("9".repeat(1_000_000))).unwrap_err();
        assert!(error.to_string().len() < 120);
    }

    #[test]
    fn each_way_of_writing_gives_the_same() {
        for (name, values) in [
            (
                LimitName::Wall,
                [LimitValue::Integer(2), LimitValue::Float(2.0), LimitValue::Text("2s".into())],
            ),
            (
                LimitName::Cpus,
                [LimitValue::Integer(2), LimitValue::Float(2.0), LimitValue::Text("2000m".into())],
            ),
            (
                LimitName::Memory,
                [
                    LimitValue::Integer(1 << 30),
                    LimitValue::Float(1073741824.0),
                    LimitValue::Text("1G".into()),
                ],
            ),
            (
                LimitName::Processes,
                [LimitValue::Integer(7), LimitValue::Float(7.0), LimitValue::Text("7".into())],
            ),
        ] {
            let read: Vec<_> = values.iter().map(|value| name.read(value).unwrap()).collect();
            assert!(read.windows(2).all(|pair| pair[0] == pair[1]), "{name}: {read:?}");
        }
    }
}
