//! One thing that was looked at.

use serde::Serialize;

/// What was found, what that means, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    pub(crate) group: &'static str,
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
    /// What was found and what follows from it.
    pub(crate) meaning: String,
    /// How to get it, where there is a way.
    pub(crate) fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Ok,
    /// Sandboxes work without it, less well.
    Missing,
    /// Sandboxes do not work until it is repaired.
    Broken,
    /// The kernel claims to have it, and there was no sandbox to try it with.
    Untried,
}

impl Outcome {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Missing => "missing",
            Self::Broken => "broken",
            Self::Untried => "untried",
        }
    }
}

impl Check {
    pub(crate) fn ok(group: &'static str, name: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self { group, name: name.into(), outcome: Outcome::Ok, meaning: meaning.into(), fix: None }
    }

    pub(crate) fn missing(
        group: &'static str,
        name: impl Into<String>,
        meaning: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let outcome = Outcome::Missing;
        Self { group, name: name.into(), outcome, meaning: meaning.into(), fix: Some(fix.into()) }
    }

    pub(crate) fn untried(group: &'static str, name: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self { outcome: Outcome::Untried, ..Self::ok(group, name, meaning) }
    }

    pub(crate) fn broken(
        group: &'static str,
        name: impl Into<String>,
        meaning: impl Into<String>,
        fix: Option<String>,
    ) -> Self {
        Self { group, name: name.into(), outcome: Outcome::Broken, meaning: meaning.into(), fix }
    }
}
