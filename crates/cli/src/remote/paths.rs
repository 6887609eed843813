//! Paths in a sandbox, and the ways to write them.

use std::path::PathBuf;

use sandstorm_types::GuestPath;

use crate::complaint::misuse;

/// A path in a sandbox; a relative one starts in `/workspace`.
pub(super) fn guest(text: &str) -> anyhow::Result<GuestPath> {
    text.parse().map_err(|error| misuse(format!("{text}: {error}")))
}

/// One side of a copy.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Side {
    Local(PathBuf),
    /// `-`: standard input or output.
    Standard,
    Remote {
        sandbox: String,
        path: String,
    },
}

impl Side {
    /// `ID:PATH` is in a sandbox, unless something that looks like a path stands before the colon.
    pub(super) fn parse(text: &str) -> Self {
        if text == "-" {
            return Self::Standard;
        }
        match text.split_once(':') {
            Some((sandbox, path)) if !sandbox.is_empty() && !sandbox.contains(['/', '.']) => {
                Self::Remote { sandbox: sandbox.to_owned(), path: path.to_owned() }
            }
            _ => Self::Local(PathBuf::from(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_told_apart() {
        let remote = |sandbox: &str, path: &str| Side::Remote { sandbox: sandbox.into(), path: path.into() };
        assert_eq!(Side::parse("sbx_abcdef:/tmp/x"), remote("sbx_abcdef", "/tmp/x"));
        assert_eq!(Side::parse("abcdef:notes:2.txt"), remote("abcdef", "notes:2.txt"));
        assert_eq!(Side::parse("-"), Side::Standard);
        for local in ["notes.txt", "./a:b", "/tmp/a:b", "../x:y", ":x", "v1.2:x"] {
            assert_eq!(Side::parse(local), Side::Local(local.into()), "{local}");
        }
    }
}
