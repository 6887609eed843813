//! Money as a whole number, so that a sum of a million small charges is exact.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

/// An amount in US dollars, counted in picodollars: a second of a gibibyte of disk costs 0.00000003, and some list prices
/// have more digits than a nanodollar. Its outside form is a decimal text, such as `"0.000014"`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Usd(i128);

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not an amount of dollars: write a decimal number of at most 12 places, such as 0.000014")]
pub struct UsdError(pub String);

const PLACES: usize = 12;
const PICOS: i128 = 1_000_000_000_000;

impl Usd {
    pub const ZERO: Self = Self(0);

    pub const fn dollars(dollars: i64) -> Self {
        Self(dollars as i128 * PICOS)
    }

    pub const fn micros(micros: i64) -> Self {
        Self(micros as i128 * 1_000_000)
    }

    pub const fn nanos(nanos: i64) -> Self {
        Self(nanos as i128 * 1000)
    }

    pub const fn picos(picos: i128) -> Self {
        Self(picos)
    }

    pub const fn as_picos(self) -> i128 {
        self.0
    }

    /// Whole nanodollars, rounded up: what a ledger with 64-bit numbers keeps. Stops at the largest.
    pub fn as_nanos_up(self) -> i64 {
        let up = self.0.div_euclid(1000) + i128::from(self.0.rem_euclid(1000) != 0);
        i64::try_from(up).unwrap_or(if up < 0 { i64::MIN } else { i64::MAX })
    }

    /// For scores and charts; never for sums.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / PICOS as f64
    }

    /// This much for every `per` of `amount`, rounded up to the next picodollar.
    pub fn for_each(self, amount: u128, per: u128) -> Self {
        let (Ok(amount), Ok(per)) = (i128::try_from(amount), i128::try_from(per)) else {
            return Self(i128::MAX);
        };
        match self.0.checked_mul(amount) {
            Some(product) if per > 0 => {
                Self(product.div_euclid(per) + i128::from(product.rem_euclid(per) != 0))
            }
            _ => Self(i128::MAX),
        }
    }

    /// A share in thousandths, rounded up.
    pub fn permille(self, share: u32) -> Self {
        self.for_each(share.into(), 1000)
    }

    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0).max(0))
    }

    pub const fn is_positive(self) -> bool {
        self.0 > 0
    }
}

impl Add for Usd {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Usd {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Usd {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl SubAssign for Usd {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for Usd {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

impl FromStr for Usd {
    type Err = UsdError;

    fn from_str(text: &str) -> Result<Self, UsdError> {
        let wrong = || UsdError(text.to_owned());
        let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !all_digits(whole) || !all_digits(fraction) || fraction.len() > PLACES {
            return Err(wrong());
        }
        let whole: i128 = whole.parse().map_err(|_| wrong())?;
        let fraction: i128 = format!("{fraction:0<PLACES$}").parse().map_err(|_| wrong())?;
        let picos =
            whole.checked_mul(PICOS).and_then(|picos| picos.checked_add(fraction)).ok_or_else(wrong)?;
        Ok(Self(sign * picos))
    }
}

impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, picos) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        let (whole, fraction) = (picos / PICOS.unsigned_abs(), picos % PICOS.unsigned_abs());
        let fraction = format!("{fraction:0PLACES$}");
        match fraction.trim_end_matches('0') {
            "" => write!(f, "{sign}{whole}"),
            digits => write!(f, "{sign}{whole}.{digits}"),
        }
    }
}

impl fmt::Debug for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} USD")
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(UsdVisitor)
        } else {
            String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
        }
    }
}

struct UsdVisitor;

impl de::Visitor<'_> for UsdVisitor {
    type Value = Usd;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an amount of dollars such as \"0.000014\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Usd, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, dollars: u64) -> Result<Usd, E> {
        Ok(Usd(i128::from(dollars) * PICOS))
    }

    fn visit_i64<E: de::Error>(self, dollars: i64) -> Result<Usd, E> {
        Ok(Usd::dollars(dollars))
    }

    /// A float's shortest decimal form is what its writer typed.
    fn visit_f64<E: de::Error>(self, dollars: f64) -> Result<Usd, E> {
        dollars.to_string().parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn usd(text: &str) -> Usd {
        text.parse().unwrap()
    }

    #[test]
    fn reads_and_writes_decimals() {
        for text in ["0", "1", "-2.5", "0.000014", "0.00000003", "123456789.000000000001"] {
            assert_eq!(usd(text).to_string(), text);
        }
        assert_eq!(usd("0.0000276944").as_picos(), 27_694_400);
        for text in ["", "-", ".5", "1.", "1e3", "+1", "0.0000000000001", " 1", "1,5", "NaN"] {
            assert!(text.parse::<Usd>().is_err(), "{text}");
        }
    }

    #[test]
    fn json_is_a_text_and_numbers_are_read_as_typed() {
        assert_eq!(serde_json::to_string(&usd("0.000014")).unwrap(), "\"0.000014\"");
        let read = |json: &str| serde_json::from_str::<Usd>(json);
        assert_eq!(read("1.4e-5").unwrap(), usd("0.000014"));
        assert_eq!(read("0.1").unwrap() + read("0.2").unwrap(), read("0.3").unwrap());
        assert_eq!(read("3").unwrap(), Usd::dollars(3));
        assert!(read("true").is_err());
    }

    #[test]
    fn a_part_is_rounded_up_and_too_much_stops_at_the_largest() {
        assert_eq!(Usd::picos(10).for_each(1, 3), Usd::picos(4));
        assert_eq!(Usd::picos(10).for_each(3, 10), Usd::picos(3));
        assert_eq!(Usd::dollars(1).permille(50), usd("0.05"));
        assert_eq!(Usd::dollars(i64::MAX).for_each(u128::MAX, 1).as_picos(), i128::MAX);
        assert_eq!(Usd::dollars(1).for_each(1, 0).as_picos(), i128::MAX);
        assert_eq!((Usd::picos(1).as_nanos_up(), Usd::picos(-1).as_nanos_up()), (1, 0));
    }

    proptest! {
        #[test]
        fn text_reads_back(picos in any::<i64>()) {
            let amount = Usd::picos(picos.into());
            prop_assert_eq!(usd(&amount.to_string()), amount);
        }

        #[test]
        fn sums_do_not_depend_on_the_order(mut amounts in prop::collection::vec(0_i64..1_000_000_000, 0..50)) {
            let forwards: Usd = amounts.iter().map(|&picos| Usd::picos(picos.into())).sum();
            amounts.reverse();
            let backwards: Usd = amounts.iter().map(|&picos| Usd::picos(picos.into())).sum();
            prop_assert_eq!(forwards, backwards);
        }
    }
}
