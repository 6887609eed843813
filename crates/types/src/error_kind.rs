//! The families of failure that a client can tell apart.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What kind of failure it is. Each kind's code is stable: documents, SDK classes and scripts name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request makes no sense or asks for what is not offered.
    InvalidRequest,
    /// Nobody is known to have asked.
    Unauthenticated,
    /// Who asked may not.
    Forbidden,
    /// There is no such thing, or it is not theirs.
    NotFound,
    /// It cannot be done in the present state.
    Conflict,
    /// A tenant's own limit is reached.
    Quota,
    /// There is no money for it: a budget is used up, or a provider wants to be paid first.
    Billing,
    /// No place can take it now: all are full, or none can be reached.
    Capacity,
    /// The deadline passed.
    Timeout,
    /// A wall or limit could not be built.
    Isolation,
    /// A file operation in the sandbox failed.
    FileSystem,
    /// The provider failed or cannot be reached.
    Provider,
    /// A mistake of ours.
    Internal,
    /// The caller gave up before it was done.
    Cancelled,
}

/// Whether trying again can help, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    Never,
    /// The same provider may succeed a little later.
    Here,
    /// Another provider may succeed.
    Elsewhere,
}

impl ErrorKind {
    pub const ALL: [Self; 14] = [
        Self::InvalidRequest,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NotFound,
        Self::Conflict,
        Self::Quota,
        Self::Billing,
        Self::Capacity,
        Self::Timeout,
        Self::Isolation,
        Self::FileSystem,
        Self::Provider,
        Self::Internal,
        Self::Cancelled,
    ];

    /// The stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Quota => "quota",
            Self::Billing => "billing",
            Self::Capacity => "capacity",
            Self::Timeout => "timeout",
            Self::Isolation => "isolation",
            Self::FileSystem => "file_system",
            Self::Provider => "provider",
            Self::Internal => "internal",
            Self::Cancelled => "cancelled",
        }
    }

    /// What usually helps; an error that knows better says so itself.
    pub const fn usual_retry(self) -> Retry {
        match self {
            Self::Billing | Self::Capacity | Self::Isolation | Self::Provider => Retry::Elsewhere,
            Self::InvalidRequest
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::NotFound
            | Self::Conflict
            | Self::Quota
            | Self::Timeout
            | Self::FileSystem
            | Self::Internal
            | Self::Cancelled => Retry::Never,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_json_form_and_distinct() {
        let mut codes: Vec<_> = ErrorKind::ALL.iter().map(|kind| kind.code()).collect();
        for kind in ErrorKind::ALL {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), ErrorKind::ALL.len());
    }
}
