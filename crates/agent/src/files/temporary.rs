//! Names that are ours for a moment: who watches a directory of the caller's is not told of them.

use rustix::process::getpid;

/// What all our names begin with.
const PREFIX: &str = ".sandstorm-";

/// What a name of ours is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ours {
    /// A whole file on its way to a name that was free.
    New,
    /// A whole file on its way to the name of another one.
    Replacing,
    /// A directory that is being removed.
    Removed(u64),
}

impl Ours {
    /// A name that no other helper has. One that removes has a directory to itself.
    pub(crate) fn name(self) -> String {
        let pid = getpid().as_raw_nonzero();
        match self {
            Self::New => format!("{PREFIX}new-{pid}"),
            Self::Replacing => format!("{PREFIX}{pid}"),
            Self::Removed(number) => format!("{PREFIX}removed-{number}"),
        }
    }

    /// What a name is for, if it is one of ours.
    pub(crate) fn of(name: &[u8]) -> Option<Self> {
        let rest = std::str::from_utf8(name).ok()?.strip_prefix(PREFIX)?;
        let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
            true => text.parse::<u64>().ok(),
            false => None,
        };
        match (rest.strip_prefix("new-"), rest.strip_prefix("removed-")) {
            (Some(rest), _) => number(rest).map(|_| Self::New),
            (_, Some(rest)) => number(rest).map(Self::Removed),
            _ => number(rest).map(|_| Self::Replacing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_names_are_known_and_no_others() {
        for ours in [Ours::New, Ours::Replacing, Ours::Removed(7)] {
            assert_eq!(Ours::of(ours.name().as_bytes()), Some(ours));
        }
        for other in
            [".sandstorm-", ".sandstorm-new-", ".sandstorm-x", ".sandstorm-1x", "sandstorm-1", "", "a"]
        {
            assert_eq!(Ours::of(other.as_bytes()), None, "{other}");
        }
    }
}
