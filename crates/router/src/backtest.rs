//! The router against what really happened: a trace of latencies and failures is replayed through the same code that serves
//! requests, beside always using one provider.
//!
//! A trace has a few figures for each day and provider. Samples are drawn from them: each request, provider and seed has a
//! draw of its own, the same in every arm, so that two arms that send a request to one place pay the same for it. No arm sees
//! a day before it happens.

mod always;
mod arm;
mod figures;
mod options;
mod policy;
mod report;
mod table;
mod trace;
mod world;

pub use figures::{Figures, Spread};
pub use options::{Options, Policy, SEEDS};
pub use report::{Report, Row, Verdict, run};
pub use trace::{Mode, Trace, TraceError};
