//! Ids by their first characters, as people type them.

use std::fmt;

use thiserror::Error;

/// Characters of an id, after its prefix, that must be given at least.
pub const SHORTEST_PREFIX: usize = 6;

/// Why a text names no id of a list.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PrefixError {
    #[error("`{given}` is no id: expected {prefix}… with at least {SHORTEST_PREFIX} characters of it")]
    Form { given: String, prefix: &'static str },
    #[error("there is nothing with an id that begins with `{0}`")]
    Unknown(String),
    #[error("`{0}` is the beginning of more than one id: give more of it")]
    Ambiguous(String),
}

/// The one id that begins with `given`, which may leave the kind (`sbx_`) out.
pub fn unique<I: fmt::Display + Copy>(
    given: &str,
    prefix: &'static str,
    ids: impl IntoIterator<Item = I>,
) -> Result<I, PrefixError> {
    let bare = given.strip_prefix(prefix).unwrap_or(given);
    let valid = bare.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'2'..=b'7'));
    if bare.len() < SHORTEST_PREFIX || !valid {
        return Err(PrefixError::Form { given: given.to_owned(), prefix });
    }
    let whole = format!("{prefix}{bare}");
    let mut fitting = ids.into_iter().filter(|id| id.to_string().starts_with(&whole));
    match (fitting.next(), fitting.next()) {
        (Some(id), None) => Ok(id),
        (None, _) => Err(PrefixError::Unknown(given.to_owned())),
        (Some(_), Some(_)) => Err(PrefixError::Ambiguous(given.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_types::SandboxId;

    use super::*;

    fn ids() -> [SandboxId; 3] {
        ["aaaaaaaaaaaaaaaaaaaaaaaaaa", "aaaaaaabaaaaaaaaaaaaaaaaaa", "bbbbbbbbaaaaaaaaaaaaaaaaaa"]
            .map(|bare| SandboxId::from_bare(bare).unwrap())
    }

    fn find(given: &str) -> Result<SandboxId, PrefixError> {
        unique(given, SandboxId::PREFIX, ids())
    }

    #[test]
    fn a_unique_beginning_is_enough() {
        for given in ["sbx_bbbbbb", "bbbbbb", "bbbbbbbb", "sbx_bbbbbbbbaaaaaaaaaaaaaaaaaa"] {
            assert_eq!(find(given), Ok(ids()[2]), "{given}");
        }
        assert_eq!(find("sbx_aaaaaaab"), Ok(ids()[1]));
    }

    #[test]
    fn others_are_refused() {
        assert_eq!(find("sbx_aaaaaaa"), Err(PrefixError::Ambiguous("sbx_aaaaaaa".to_owned())));
        assert_eq!(find("sbx_cccccc"), Err(PrefixError::Unknown("sbx_cccccc".to_owned())));
        for bad in ["", "sbx_", "sbx_bbbbb", "bbbbb", "BBBBBB", "exec_bbbbbb", "bbbbb/", "bbbbb1"] {
            assert!(matches!(find(bad), Err(PrefixError::Form { .. })), "{bad}");
        }
    }
}
