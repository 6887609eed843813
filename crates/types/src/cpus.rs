//! A share of processors in thousandths, so that half a CPU needs no floating point.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

/// Thousandths of a CPU. Written as `2`, `0.5` or `500m`; JSON carries the number of CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MilliCpus(u32);

/// Why a text or number is not a share of processors.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a number of CPUs: write 1, 0.5 or 500m, in steps of a thousandth")]
pub struct MilliCpusError(pub String);

impl MilliCpus {
    pub const ONE: Self = Self(1000);

    pub const fn new(milli: u32) -> Self {
        Self(milli)
    }

    pub const fn milli(self) -> u32 {
        self.0
    }

    pub fn from_cpus(cpus: f64) -> Result<Self, MilliCpusError> {
        let milli = (cpus * 1000.0).round();
        let exact = (cpus * 1000.0 - milli).abs() < 1e-6;
        if exact && (0.0..=f64::from(u32::MAX)).contains(&milli) {
            Ok(Self(milli as u32))
        } else {
            Err(MilliCpusError(cpus.to_string()))
        }
    }

    pub fn as_cpus(self) -> f64 {
        f64::from(self.0) / 1000.0
    }
}

impl FromStr for MilliCpus {
    type Err = MilliCpusError;

    fn from_str(text: &str) -> Result<Self, MilliCpusError> {
        let wrong = || MilliCpusError(text.to_owned());
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(milli) = text.strip_suffix('m') {
            return if digits(milli) { milli.parse().map(Self).map_err(|_| wrong()) } else { Err(wrong()) };
        }
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        if !digits(whole) || !digits(fraction) || fraction.len() > 3 {
            return Err(wrong());
        }
        let whole: u32 = whole.parse().map_err(|_| wrong())?;
        let fraction: u32 = format!("{fraction:0<3}").parse().map_err(|_| wrong())?;
        whole.checked_mul(1000).and_then(|milli| milli.checked_add(fraction)).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for MilliCpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_cpus())
    }
}

impl Serialize for MilliCpus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            serializer.serialize_u32(self.0)
        } else if self.0.is_multiple_of(1000) {
            serializer.serialize_u32(self.0 / 1000)
        } else {
            serializer.serialize_f64(self.as_cpus())
        }
    }
}

impl<'de> Deserialize<'de> for MilliCpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(CpusVisitor)
        } else {
            u32::deserialize(deserializer).map(Self)
        }
    }
}

struct CpusVisitor;

impl de::Visitor<'_> for CpusVisitor {
    type Value = MilliCpus;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of CPUs such as 0.5, or a text such as \"500m\"")
    }

    fn visit_u64<E: de::Error>(self, cpus: u64) -> Result<MilliCpus, E> {
        cpus.to_string().parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, cpus: i64) -> Result<MilliCpus, E> {
        cpus.to_string().parse().map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, cpus: f64) -> Result<MilliCpus, E> {
        MilliCpus::from_cpus(cpus).map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<MilliCpus, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_the_usual_spellings() {
        for (text, milli) in
            [("1", 1000), ("0.5", 500), ("500m", 500), ("1.25", 1250), ("0.001", 1), ("64", 64_000)]
        {
            assert_eq!(text.parse(), Ok(MilliCpus(milli)), "{text}");
        }
    }

    #[test]
    fn refuses_everything_else() {
        for text in ["", "m", "-1", "+1", "1.", ".5", "0.0001", "1e3", "NaN", "4294968", "99999999999m", "1 "]
        {
            assert_eq!(text.parse::<MilliCpus>(), Err(MilliCpusError(text.into())), "{text}");
        }
        for number in [f64::NAN, f64::INFINITY, -1.0, 1e308, 0.0001] {
            assert!(MilliCpus::from_cpus(number).is_err(), "{number}");
        }
    }

    proptest! {
        #[test]
        fn every_form_reads_back(milli: u32) {
            let cpus = MilliCpus(milli);
            prop_assert_eq!(cpus.to_string().parse(), Ok(cpus));
            let json = serde_json::to_string(&cpus).unwrap();
            prop_assert_eq!(serde_json::from_str::<MilliCpus>(&json).unwrap(), cpus);
        }
    }
}
