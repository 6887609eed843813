//! Why a guest could not be copied.

use std::fmt;
use std::io;

/// Which of the two guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Source,
    Destination,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Who::Source => "source",
            Who::Destination => "destination",
        })
    }
}

/// A copy that came to nothing. The source runs as before in every case.
#[derive(Debug)]
pub struct TransplantError {
    pub cause: Cause,
    /// The destination was changed already and has been killed. Otherwise it still waits for its job.
    pub destination_spoiled: bool,
}

/// What was in the way.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The source has something that cannot be carried, in words for its owner.
    #[error("{0}")]
    Refused(String),
    #[error("the {0} ended")]
    Gone(Who),
    /// The two do not come from one zygote, or their walls differ.
    #[error("the two guests are not alike: {0}")]
    Unlike(String),
    #[error("could not {doing}")]
    Failed { doing: String, source: io::Error },
    #[error("guests cannot be copied on this processor")]
    Unsupported,
}

impl fmt::Display for TransplantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)?;
        if self.destination_spoiled {
            f.write_str("; the destination was killed, being half a copy")?;
        }
        Ok(())
    }
}

impl std::error::Error for TransplantError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.source()
    }
}

impl Cause {
    pub(super) fn refused(why: impl Into<String>) -> Self {
        Self::Refused(why.into())
    }
}

/// Names what was being done when it failed.
pub(super) fn doing(what: impl Into<String>) -> impl FnOnce(io::Error) -> Cause {
    let doing = what.into();
    move |source| Cause::Failed { doing, source }
}
