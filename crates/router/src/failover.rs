//! What to do when a place fails: whom not to ask, when to ask again, and whether this run may be tried once more.
//!
//! Each part is a state machine of its own that knows nothing of the others. They are given moments of a
//! [`SteadyClock`](crate::SteadyClock), so a clock that jumps back makes no hold longer.

mod attempt;
mod breaker;
mod concurrency;
mod family;
mod hedge;
mod outlier;
mod retry_after;
mod retry_budget;

pub use attempt::{AttemptRules, FailedAttempt, GiveUp, Next, SoFar, Started};
pub(crate) use breaker::SavedBreaker;
pub use breaker::{Breaker, BreakerRules, BreakerState, Breakers};
pub use concurrency::{ConcurrencyLimit, ConcurrencyRules, Ended};
pub use family::ErrorFamily;
pub use hedge::{HedgePlan, HedgeRules};
pub use outlier::{OutlierRules, Outliers};
pub use retry_after::Holds;
pub use retry_budget::{RetryBudget, RetryBudgetRules};
