//! The name of a language as a request spells it. Whether it exists is the catalogue's question.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::text_form::serde_as_text;

/// Name or alias of a language, in lower case: `python`, `c++`, `c#`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LanguageName(String);

/// A text that cannot be a language's name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("language name {0:?} must be 1 to 32 letters, digits and `+#._-`")]
pub struct LanguageNameError(pub String);

impl LanguageName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LanguageName {
    type Err = LanguageNameError;

    fn from_str(text: &str) -> Result<Self, LanguageNameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+#._-".contains(&byte);
        if text.is_empty() || text.len() > 32 || !text.bytes().all(allowed) {
            return Err(LanguageNameError(text.chars().take(40).collect()));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for LanguageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

serde_as_text!(LanguageName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!("C++".parse::<LanguageName>().unwrap().as_str(), "c++");
        assert_eq!("c#".parse::<LanguageName>().unwrap().as_str(), "c#");
        for bad in ["", "a b", "../x", "a/b", "é", &"x".repeat(33)] {
            assert!(bad.parse::<LanguageName>().is_err(), "{bad}");
        }
    }
}
