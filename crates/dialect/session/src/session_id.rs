//! The name that a user gave to a session.

use std::fmt;

use crate::fields::FieldError;

const MAX_LEN: usize = 200;

/// Free text of 1 to 200 bytes. It is a key of a table and never part of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionId(String);

impl SessionId {
    pub(crate) fn new(text: String) -> Result<Self, FieldError> {
        let wrong = |msg: String, kind| FieldError::new(["path", "session_id"], msg, kind);
        if text.is_empty() {
            return Err(wrong("String should have at least 1 character".to_owned(), "string_too_short"));
        }
        if text.len() > MAX_LEN {
            return Err(wrong(format!("String should have at most {MAX_LEN} bytes"), "string_too_long"));
        }
        if text.chars().any(char::is_control) {
            return Err(wrong("String should have no control characters".to_owned(), "value_error"));
        }
        Ok(Self(text))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_text_within_bounds() {
        for good in ["a", "my session", "../../etc", "会话", "a/b", &"x".repeat(200)] {
            assert!(SessionId::new(good.to_owned()).is_ok(), "{good}");
        }
        for bad in ["", "a\nb", "a\0", &"x".repeat(201), &"会".repeat(67)] {
            assert!(SessionId::new(bad.to_owned()).is_err(), "{bad:?}");
        }
    }
}
