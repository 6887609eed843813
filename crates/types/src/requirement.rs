//! A package that code needs, as its package manager spells it: `numpy`, `lodash@4`, `serde = "1"`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::text_form::serde_as_text;

const MAX_LEN: usize = 512;

/// One wanted package. Only the shape is checked here; the package manager judges the rest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Requirement(String);

/// A text that cannot be a requirement.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RequirementError {
    #[error("requirement must have 1 to 512 bytes")]
    Length,
    #[error("requirement {0:?} holds a control character")]
    Control(String),
    #[error("requirement {0:?} starts with `-` and would be taken for an option")]
    Option(String),
}

impl Requirement {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Requirement {
    type Err = RequirementError;

    fn from_str(text: &str) -> Result<Self, RequirementError> {
        let text = text.trim_matches(' ');
        if text.is_empty() || text.len() > MAX_LEN {
            return Err(RequirementError::Length);
        }
        if text.chars().any(char::is_control) {
            return Err(RequirementError::Control(text.to_owned()));
        }
        if text.starts_with('-') {
            return Err(RequirementError::Option(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

serde_as_text!(Requirement);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        for good in ["numpy", "numpy==2.1", "@scope/pkg@^1", "serde = \"1\""] {
            assert_eq!(good.parse::<Requirement>().unwrap().as_str(), good);
        }
        for bad in ["", "   ", "-r /etc/passwd", " --index-url=x", "a\nb", "a\0", &"x".repeat(513)] {
            assert!(bad.parse::<Requirement>().is_err(), "{bad:?}");
        }
    }
}
