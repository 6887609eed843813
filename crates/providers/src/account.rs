//! Who we are to those who hold sandboxes for us.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Longest mark: label keys with a prefix have to hold it.
const MAX_OWNER: usize = 32;

/// A key of our account there. It has no `Display` and no `Serialize`, and its `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    /// The key itself. The name is long so that each use stands out.
    pub(crate) fn expose_secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// The mark of one installation on what it has elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner(String);

/// Why a text is no mark.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("an owner's mark is 1 to 32 of the characters a-z, 0-9 and `-`")]
pub struct OwnerError;

impl Owner {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The label that every sandbox of this owner has, and its value. The mark is part of the key, because a server in
    /// between has marks of its own on what it passes on.
    pub(crate) fn label(&self) -> (String, String) {
        (format!("sandstorm.owner/{}", self.0), "yes".to_owned())
    }

    /// The key of the label that says what a sandbox is called by this owner.
    pub(crate) fn id_key(&self) -> String {
        format!("sandstorm.sandbox/{}", self.0)
    }
}

impl FromStr for Owner {
    type Err = OwnerError;

    fn from_str(text: &str) -> Result<Self, OwnerError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let fine = (1..=MAX_OWNER).contains(&text.len()) && text.bytes().all(plain);
        fine.then(|| Self(text.to_owned())).ok_or(OwnerError)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_types::Labels;

    use super::*;

    #[test]
    fn keys_are_never_shown() {
        assert!(!format!("{:?}", ApiKey::new("ss_abc_hunter2")).contains("hunter2"));
    }

    #[test]
    fn marks_fit_into_labels() {
        let longest: Owner = "m".repeat(32).parse().unwrap();
        let labels = [longest.label(), (longest.id_key(), String::new())];
        assert!(Labels::try_from(std::collections::BTreeMap::from(labels)).is_ok());
        for bad in ["", "A", "a b", "ü", "a/b", &"m".repeat(33)] {
            assert_eq!(bad.parse::<Owner>(), Err(OwnerError), "{bad:?}");
        }
    }
}
