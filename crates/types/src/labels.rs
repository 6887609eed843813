//! Labels: small facts that callers attach to sandboxes and later search by.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

const MAX_COUNT: usize = 64;
const MAX_KEY: usize = 63;
const MAX_VALUE: usize = 256;

/// Checked labels.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>")]
pub struct Labels(BTreeMap<String, String>);

/// Why labels were refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LabelsError {
    #[error("label key {0:?} must be 1 to 63 of letters, digits, `-`, `_`, `.` and `/`")]
    Key(String),
    #[error("value of label `{0}` must be at most 256 bytes without control characters")]
    Value(String),
    #[error("there are more than 64 labels")]
    TooMany,
}

impl Labels {
    /// `true` on a sandbox lets everybody who knows its id connect to its ports, without a key. `false` says that its owner
    /// does not want that; so does its absence.
    pub const PUBLIC_PORTS: &str = "sandstorm/public-ports";

    /// What [`Self::PUBLIC_PORTS`] says; `None` when the owner said nothing, which opens nothing.
    pub fn public_ports(&self) -> Option<bool> {
        self.get(Self::PUBLIC_PORTS).map(|value| value == "true")
    }

    /// The same labels with this one set.
    pub fn with_public_ports(mut self, public: bool) -> Result<Self, LabelsError> {
        self.0.insert(Self::PUBLIC_PORTS.to_owned(), public.to_string());
        Self::try_from(self.0)
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether every label of `wanted` is here with the same value.
    pub fn contains(&self, wanted: &Self) -> bool {
        wanted.iter().all(|(key, value)| self.get(key) == Some(value))
    }
}

impl TryFrom<BTreeMap<String, String>> for Labels {
    type Error = LabelsError;

    fn try_from(map: BTreeMap<String, String>) -> Result<Self, LabelsError> {
        if map.len() > MAX_COUNT {
            return Err(LabelsError::TooMany);
        }
        let in_key = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        for (key, value) in &map {
            if key.is_empty() || key.len() > MAX_KEY || !key.bytes().all(in_key) {
                return Err(LabelsError::Key(key.chars().take(80).collect()));
            }
            if value.len() > MAX_VALUE || value.chars().any(char::is_control) {
                return Err(LabelsError::Value(key.clone()));
            }
        }
        Ok(Self(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Result<Labels, LabelsError> {
        let map: BTreeMap<_, _> =
            pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        map.try_into()
    }

    #[test]
    fn keys_and_values_are_bounded() {
        assert!(labels(&[("app.example/name", "Ümlaut is fine")]).is_ok());
        for (key, value) in [("", "x"), ("a b", "x"), ("é", "x"), (&"k".repeat(64), "x")] {
            assert!(matches!(labels(&[(key, value)]), Err(LabelsError::Key(_))), "{key}");
        }
        for value in ["a\nb", "a\0", &"v".repeat(257)] {
            assert_eq!(labels(&[("k", value)]), Err(LabelsError::Value("k".into())));
        }
        let many: BTreeMap<_, _> = (0..65).map(|n| (n.to_string(), String::new())).collect();
        assert_eq!(Labels::try_from(many), Err(LabelsError::TooMany));
    }

    #[test]
    fn containing_means_all_of_them() {
        let all = labels(&[("a", "1"), ("b", "2")]).unwrap();
        assert!(all.contains(&labels(&[("b", "2")]).unwrap()) && all.contains(&Labels::default()));
        assert!(!all.contains(&labels(&[("b", "3")]).unwrap()));
        assert!(!all.contains(&labels(&[("a", "1"), ("c", "2")]).unwrap()));
    }
}
