//! Environment variables that a caller may set inside a sandbox.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::text_form::serde_as_text;

/// Variables that our own programs in the sandbox read; a caller who could set one would steer them.
const RESERVED_PREFIX: &str = "SANDSTORM_";
const MAX_NAME: usize = 255;
/// The kernel refuses one string of more than 128 KiB, which holds name, `=`, value and a NUL.
const MAX_ENTRY: usize = 128 * 1024 - 2;
const MAX_TOTAL: usize = 512 * 1024;
const MAX_COUNT: usize = 1024;

/// Name of a variable: letters, digits and underscores, not starting with a digit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EnvName(String);

/// Variables with checked names and sizes.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<EnvName, String>")]
pub struct EnvMap(BTreeMap<EnvName, String>);

/// Why variables were refused. Values are never repeated: they may be secrets.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EnvError {
    #[error("environment variable name {0:?} must be letters, digits and underscores, at most 255")]
    Name(String),
    #[error("environment variable name `{0}` is reserved: names that start with SANDSTORM_ are ours")]
    Reserved(String),
    #[error("value of environment variable `{0}` holds a NUL character")]
    Nul(String),
    #[error("value of environment variable `{0}` is longer than 128 KiB")]
    TooLong(String),
    #[error("environment holds more than 1024 variables or 512 KiB")]
    TooLarge,
}

impl EnvName {
    /// A name of our own, `SANDSTORM_` and `suffix`, which no parsing gives. For what our programs inside
    /// a sandbox are told, such as the descriptor that an interpreter kernel speaks on.
    pub fn ours(suffix: &'static str) -> Self {
        Self(format!("{RESERVED_PREFIX}{suffix}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for EnvName {
    type Err = EnvError;

    fn from_str(text: &str) -> Result<Self, EnvError> {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let starts = text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        if !starts || text.len() > MAX_NAME || !text.bytes().all(word) {
            return Err(EnvError::Name(text.chars().take(80).collect()));
        }
        if text.to_ascii_uppercase().starts_with(RESERVED_PREFIX) {
            return Err(EnvError::Reserved(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl Borrow<str> for EnvName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EnvName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

serde_as_text!(EnvName);

impl EnvMap {
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets one variable; the map is unchanged when it is refused.
    pub fn insert(&mut self, name: EnvName, value: String) -> Result<(), EnvError> {
        check_value(&name, &value)?;
        let replaced = self.0.get(&name).map_or(0, |old| entry_len(&name, old));
        let total = self.size() - replaced + entry_len(&name, &value);
        if total > MAX_TOTAL || (replaced == 0 && self.0.len() == MAX_COUNT) {
            return Err(EnvError::TooLarge);
        }
        self.0.insert(name, value);
        Ok(())
    }

    /// Sets every variable of `other`, over those that are here.
    pub fn extend(&mut self, other: &Self) -> Result<(), EnvError> {
        let mut merged = self.0.clone();
        merged.extend(other.0.iter().map(|(name, value)| (name.clone(), value.clone())));
        *self = Self::try_from(merged)?;
        Ok(())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn size(&self) -> usize {
        self.0.iter().map(|(name, value)| entry_len(name, value)).sum()
    }
}

fn entry_len(name: &EnvName, value: &str) -> usize {
    name.0.len() + value.len()
}

fn check_value(name: &EnvName, value: &str) -> Result<(), EnvError> {
    if value.contains('\0') {
        return Err(EnvError::Nul(name.0.clone()));
    }
    if entry_len(name, value) > MAX_ENTRY {
        return Err(EnvError::TooLong(name.0.clone()));
    }
    Ok(())
}

impl TryFrom<BTreeMap<EnvName, String>> for EnvMap {
    type Error = EnvError;

    fn try_from(map: BTreeMap<EnvName, String>) -> Result<Self, EnvError> {
        map.iter().try_for_each(|(name, value)| check_value(name, value))?;
        let map = Self(map);
        if map.len() > MAX_COUNT || map.size() > MAX_TOTAL { Err(EnvError::TooLarge) } else { Ok(map) }
    }
}

/// Names only: values may be secrets.
impl fmt::Debug for EnvMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys().map(EnvName::as_str)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> EnvName {
        text.parse().unwrap()
    }

    #[test]
    fn names() {
        for good in ["PATH", "_", "a1", "LD_PRELOAD"] {
            assert_eq!(name(good).as_str(), good);
        }
        for bad in ["", "1A", "A-B", "A=B", "A B", "A\0", "é", "A.B", &"A".repeat(256)] {
            assert!(matches!(bad.parse::<EnvName>(), Err(EnvError::Name(_))), "{bad:?}");
        }
        for ours in ["SANDSTORM_KERNEL_FD", "sandstorm_x", "SANDSTORM_"] {
            assert_eq!(ours.parse::<EnvName>(), Err(EnvError::Reserved(ours.into())));
        }
        assert_eq!(EnvName::ours("KERNEL_FD").as_str(), "SANDSTORM_KERNEL_FD");
    }

    #[test]
    fn values_are_bounded() {
        let mut map = EnvMap::new();
        assert_eq!(map.insert(name("A"), "x\0".into()), Err(EnvError::Nul("A".into())));
        assert_eq!(map.insert(name("A"), "x".repeat(128 * 1024)), Err(EnvError::TooLong("A".into())));
        for place in 0..4 {
            map.insert(name(&format!("A{place}")), "x".repeat(128 * 1024 - 4)).unwrap();
        }
        assert_eq!(map.insert(name("B"), "x".repeat(1000)), Err(EnvError::TooLarge));
        map.insert(name("A0"), "small".into()).unwrap();
        map.insert(name("B"), "x".repeat(1000)).unwrap();
    }

    #[test]
    fn count_is_bounded_but_replacing_is_not() {
        let mut map = EnvMap::new();
        for place in 0..MAX_COUNT {
            map.insert(name(&format!("A{place}")), String::new()).unwrap();
        }
        assert_eq!(map.insert(name("B"), String::new()), Err(EnvError::TooLarge));
        map.insert(name("A7"), "again".into()).unwrap();
    }

    #[test]
    fn json_is_checked_and_debug_hides_values() {
        let map: EnvMap = serde_json::from_str(r#"{"TOKEN": "s3cret"}"#).unwrap();
        assert_eq!(map.get("TOKEN"), Some("s3cret"));
        assert!(!format!("{map:?}").contains("s3cret"));
        for bad in [r#"{"A-B": "x"}"#, r#"{"SANDSTORM_X": "x"}"#, r#"{"A": "\u0000"}"#, r#"{"A": 1}"#] {
            assert!(serde_json::from_str::<EnvMap>(bad).is_err(), "{bad}");
        }
        let binary = postcard::to_stdvec(&map).unwrap();
        assert_eq!(postcard::from_bytes::<EnvMap>(&binary).unwrap(), map);
    }

    #[test]
    fn later_variables_win() {
        let mut map: EnvMap = serde_json::from_str(r#"{"A": "1", "B": "1"}"#).unwrap();
        map.extend(&serde_json::from_str(r#"{"B": "2"}"#).unwrap()).unwrap();
        assert_eq!(map.iter().collect::<Vec<_>>(), [("A", "1"), ("B", "2")]);
    }
}
