//! Where a run goes: to the fastest or cheapest place that fits, with what to do when that place fails.
//!
//! Everything here is a pure function or a small state machine. Time is handed in as a [`Moment`], chance as a seed, and
//! nothing waits, so the same inputs give the same choice, on a server and in a [`backtest`]. [`choose`] is the heart:
//! candidates and what was learned go in, a [`Decision`] with every reason comes out. [`Router`] keeps what changes between
//! two decisions.

pub mod backtest;
mod canary;
mod candidate;
mod choose;
mod decision;
mod exclusion;
mod explain;
pub mod failover;
mod learning;
mod moment;
pub mod money;
mod prediction;
mod random;
mod regret;
mod request;
mod router;

pub use canary::{CanaryBudget, CanaryRules, Probe, ProbeReason};
pub use candidate::{Candidate, Health, Load};
pub use choose::choose;
pub use decision::{Decision, Excluded, Ranked};
pub use exclusion::Exclusion;
pub use failover::ErrorFamily;
pub use learning::{ArmKey, Belief, Knowledge, Memory, Outcome, OutcomeResult, WorkloadClass};
pub use moment::{Moment, SteadyClock};
pub use prediction::{Prediction, Range};
pub use random::Random;
pub use regret::Regret;
pub use request::{Constraints, RouteRequest};
pub use router::{NotResumed, Observed, Router, Settings};
pub use sandstorm_types::{Objective, Require, Weights, WeightsError};
