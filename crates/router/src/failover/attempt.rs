//! May a failed attempt be made again, and where? Nothing runs twice unless its caller said that it may.

use std::time::Duration;

use sandstorm_types::{ErrorKind, Retry, duration};
use serde::{Deserialize, Serialize};

use super::{ErrorFamily, RetryBudget};
use crate::Moment;

/// Whether the caller's code can have begun to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Started {
    /// It provably did not: the sandbox was never there, or never got the code.
    Never,
    /// It did, or nobody knows.
    Perhaps,
}

/// An attempt that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailedAttempt {
    pub kind: ErrorKind,
    /// Where the adapter knows it better than its kind tells.
    #[serde(default)]
    pub family: Option<ErrorFamily>,
    pub retry: Retry,
    pub started: Started,
    /// When the provider wants to be asked again.
    #[serde(with = "duration::optional_seconds", default)]
    pub retry_after: Option<Duration>,
}

impl FailedAttempt {
    /// What it says about the provider; `None`: nothing.
    pub fn family(&self) -> Option<ErrorFamily> {
        self.family.or_else(|| ErrorFamily::of(self.kind))
    }
}

/// What holds for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AttemptRules {
    /// The caller says that running it twice does no harm.
    pub idempotent: bool,
    /// Attempts in all.
    pub most: u32,
    /// Attempts at one place.
    pub most_here: u32,
}

impl Default for AttemptRules {
    fn default() -> Self {
        Self { idempotent: false, most: 4, most_here: 2 }
    }
}

/// What has happened to the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoFar {
    /// Attempts in all.
    pub attempts: u32,
    /// Attempts at the place that failed last.
    pub attempts_here: u32,
    /// Places in the ranking that were not tried.
    pub places_left: usize,
    /// Until its deadline.
    pub time_left: Option<Duration>,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    /// Try the next place.
    Elsewhere,
    /// Try the same place again after this time.
    Here {
        #[serde(with = "duration::seconds")]
        after: Duration,
    },
    GiveUp {
        why: GiveUp,
    },
}

/// Why not once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GiveUp {
    /// It would fail again.
    Pointless,
    /// It may have run already.
    MayHaveRun,
    /// It was tried often enough.
    TooMany,
    /// There is no other place.
    NowhereLeft,
    /// There is no time for it.
    NoTime,
    /// Too many requests are being tried again already.
    NoBudget,
}

/// Before the second attempt at a place that does not say when; doubled for each further one.
const PAUSE: Duration = Duration::from_millis(100);

impl FailedAttempt {
    /// Decides. An attempt is taken from `budget` when there is to be one.
    pub fn next(&self, rules: &AttemptRules, so_far: SoFar, budget: &mut RetryBudget, now: Moment) -> Next {
        let give_up = |why| Next::GiveUp { why };
        if self.retry == Retry::Never {
            return give_up(GiveUp::Pointless);
        }
        if self.started == Started::Perhaps && !rules.idempotent {
            return give_up(GiveUp::MayHaveRun);
        }
        if so_far.attempts >= rules.most {
            return give_up(GiveUp::TooMany);
        }
        if so_far.time_left == Some(Duration::ZERO) {
            return give_up(GiveUp::NoTime);
        }
        let next = match self.place(rules, so_far) {
            Ok(next) => next,
            Err(why) => return give_up(why),
        };
        if budget.spend(now) { next } else { give_up(GiveUp::NoBudget) }
    }

    fn place(&self, rules: &AttemptRules, so_far: SoFar) -> Result<Next, GiveUp> {
        let pause = PAUSE.saturating_mul(1 << so_far.attempts_here.saturating_sub(1).min(10));
        let after = self.retry_after.unwrap_or(pause);
        let in_time = so_far.time_left.is_none_or(|left| after < left);
        let may_stay = self.retry == Retry::Here && so_far.attempts_here < rules.most_here;
        // Rather another place at once than this one in a long while.
        let soon = after <= Duration::from_secs(1) || so_far.places_left == 0;
        if may_stay && in_time && soon {
            Ok(Next::Here { after })
        } else if so_far.places_left > 0 {
            Ok(Next::Elsewhere)
        } else if may_stay {
            Err(GiveUp::NoTime)
        } else {
            Err(GiveUp::NowhereLeft)
        }
    }
}

#[cfg(test)]
mod tests;
