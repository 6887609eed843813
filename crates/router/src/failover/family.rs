//! Errors of a provider, by what they say about the next request.

use std::fmt;

use sandstorm_types::ErrorKind;
use serde::{Deserialize, Serialize};

/// Families that are told apart because each is over at another time: a full place in seconds, an unpaid bill when somebody
/// has paid it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorFamily {
    /// It does not know us, or does not let us.
    Auth,
    /// It wants to be paid.
    Billing,
    /// Our account is at its limit there.
    Quota,
    /// It is full.
    Capacity,
    /// It did not answer in time.
    Timeout,
    /// It failed.
    Failure,
    /// It had made a sandbox and then lost it, or went silent or made no sense about what ran there. Another sandbox that can
    /// be made proves nothing against it, only work that came to its end.
    Lost,
}

impl ErrorFamily {
    pub const ALL: [Self; 7] =
        [Self::Auth, Self::Billing, Self::Quota, Self::Capacity, Self::Timeout, Self::Failure, Self::Lost];

    /// The family of an error that the creation of a sandbox ended with. `None`: the request was at fault, which says nothing
    /// about the provider.
    pub fn of(kind: ErrorKind) -> Option<Self> {
        match kind {
            ErrorKind::Unauthenticated | ErrorKind::Forbidden => Some(Self::Auth),
            ErrorKind::Billing => Some(Self::Billing),
            ErrorKind::Quota => Some(Self::Quota),
            ErrorKind::Capacity => Some(Self::Capacity),
            ErrorKind::Timeout => Some(Self::Timeout),
            ErrorKind::Provider | ErrorKind::Internal | ErrorKind::Isolation => Some(Self::Failure),
            _ => None,
        }
    }

    /// The same of an error that work in a sandbox ended with: what is left of failures there is the loss of it. Everything else
    /// may be what the sandbox itself says, such as one that is full of its own processes, and is nobody else's matter.
    pub fn of_work(kind: ErrorKind) -> Option<Self> {
        matches!(Self::of(kind)?, Self::Timeout | Self::Failure).then_some(Self::Lost)
    }

    /// Whether it says that there is too much at once.
    pub fn is_overload(self) -> bool {
        matches!(self, Self::Quota | Self::Capacity)
    }
}

impl fmt::Display for ErrorFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auth => "auth",
            Self::Billing => "billing",
            Self::Quota => "quota",
            Self::Capacity => "capacity",
            Self::Timeout => "timeout",
            Self::Failure => "failure",
            Self::Lost => "losing what ran there",
        })
    }
}
