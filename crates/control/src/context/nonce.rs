//! What tells our lines from everybody else's.

use std::fmt;

use data_encoding::HEXLOWER;

/// The secret of one interpreter that is spoken to in lines. Code that runs there can find it out; what it prints cannot
/// have it by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Nonce(String);

impl Nonce {
    pub fn new(bytes: [u8; 16]) -> Self {
        Self(HEXLOWER.encode(&bytes))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    #[cfg(test)]
    pub(crate) fn for_tests(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce")
    }
}
