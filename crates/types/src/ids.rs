//! Ids: 128 random bits behind a prefix that names what they identify.
//!
//! Printed as prefix plus 26 lower-case base32 characters (RFC 4648 alphabet, no padding). Parsing is
//! strict, so one id has one spelling and can be compared, stored and logged as text.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::text_form::serde_as_text;

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const BARE_LEN: usize = 26;
/// 26 characters carry 130 bits; the two that are left over must be zero.
const SPARE_BITS: u32 = 2;

/// Why a text is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IdError {
    #[error("id must start with `{wanted}`")]
    Prefix { wanted: &'static str },
    #[error("id must have 26 characters after its prefix, not {found}")]
    Length { found: usize },
    #[error("id may hold only the characters a-z and 2-7")]
    Character,
    #[error("id ends in a character that no 128-bit value gives")]
    SpareBits,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u128);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            /// A fresh id from the kernel's random source.
            pub fn random() -> Self {
                Self(random_bits())
            }

            pub const fn from_bits(bits: u128) -> Self {
                Self(bits)
            }

            pub const fn bits(self) -> u128 {
                self.0
            }

            /// The 26 characters without the prefix, as host names carry them.
            pub fn bare(self) -> String {
                text(&encode(self.0)).to_owned()
            }

            pub fn from_bare(bare: &str) -> Result<Self, IdError> {
                decode(bare).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(Self::PREFIX)?;
                f.write_str(text(&encode(self.0)))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                let bare = text.strip_prefix(Self::PREFIX).ok_or(IdError::Prefix { wanted: Self::PREFIX })?;
                Self::from_bare(bare)
            }
        }

        serde_as_text!($name);
    };
}

id!(
    /// One sandbox.
    SandboxId, "sbx_"
);
id!(
    /// One one-shot run.
    RunId, "run_"
);
id!(
    /// One command or piece of code inside a sandbox.
    ExecId, "exec_"
);
id!(
    /// One living interpreter inside a sandbox.
    ContextId, "ctx_"
);
id!(
    /// One saved state of a sandbox.
    SnapshotId, "snap_"
);
id!(
    /// Who owns sandboxes.
    TenantId, "ten_"
);

impl TenantId {
    /// The one tenant of a command line that serves nobody else.
    pub const LOCAL: Self = Self::from_bits(0);
}

fn random_bits() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("getrandom(2) cannot fail once the kernel's pool is seeded");
    u128::from_be_bytes(bytes)
}

/// Every request prints several, so this takes no memory of its own.
fn encode(bits: u128) -> [u8; BARE_LEN] {
    let mut digits = [0; BARE_LEN];
    for (place, digit) in digits.iter_mut().enumerate() {
        let shifted = if place + 1 < BARE_LEN { bits >> (123 - 5 * place) } else { bits << SPARE_BITS };
        *digit = ALPHABET[shifted as usize & 31];
    }
    digits
}

fn text(digits: &[u8; BARE_LEN]) -> &str {
    str::from_utf8(digits).expect("the alphabet is ASCII")
}

fn decode(bare: &str) -> Result<u128, IdError> {
    let found = bare.chars().count();
    if found != BARE_LEN {
        return Err(IdError::Length { found });
    }
    let mut bits: u128 = 0;
    for (place, byte) in bare.bytes().enumerate() {
        let digit = match byte {
            b'a'..=b'z' => byte - b'a',
            b'2'..=b'7' => byte - b'2' + 26,
            _ => return Err(IdError::Character),
        };
        if place + 1 < BARE_LEN {
            bits = bits << 5 | u128::from(digit);
        } else if digit & 0b11 == 0 {
            bits = bits << 3 | u128::from(digit >> SPARE_BITS);
        } else {
            return Err(IdError::SpareBits);
        }
    }
    Ok(bits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn agrees_with_rfc_4648() {
        let bits = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210;
        let rfc = data_encoding::BASE32_NOPAD.encode(&u128::to_be_bytes(bits)).to_lowercase();
        assert_eq!(SandboxId::from_bits(bits).bare(), rfc);
        assert_eq!(SandboxId::from_bits(bits).to_string(), format!("sbx_{rfc}"));
    }

    #[test]
    fn refuses_other_spellings() {
        let good = RunId::from_bits(u128::MAX).to_string();
        assert_eq!(good, format!("run_{}4", "7".repeat(25)));
        for (bad, wanted) in [
            ("", IdError::Prefix { wanted: "run_" }),
            (&good.replace("run_", "sbx_"), IdError::Prefix { wanted: "run_" }),
            (&good.to_uppercase(), IdError::Prefix { wanted: "run_" }),
            (&good.replace("77777", "7777A"), IdError::Character),
            (&good[..good.len() - 1], IdError::Length { found: 25 }),
            (&format!("{good}a"), IdError::Length { found: 27 }),
            (&format!("run_{}", "7".repeat(26)), IdError::SpareBits),
            (&format!("run_{}é", "7".repeat(25)), IdError::Character),
        ] {
            assert_eq!(bad.parse::<RunId>(), Err(wanted), "{bad}");
        }
    }

    #[test]
    fn random_ids_differ() {
        assert_ne!(ExecId::random(), ExecId::random());
    }

    proptest! {
        #[test]
        fn round_trip(bits: u128) {
            let id = SnapshotId::from_bits(bits);
            prop_assert_eq!(id.bare().len(), BARE_LEN);
            prop_assert_eq!(id.to_string().parse::<SnapshotId>(), Ok(id));
        }

        #[test]
        fn what_parses_prints_the_same(text in "ctx_[a-z2-7]{26}") {
            if let Ok(id) = text.parse::<ContextId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
