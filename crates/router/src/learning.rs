//! What was really seen of each provider, and what follows from it for the next run.
//!
//! Every outcome goes into an [`Arm`](arm::Arm) of its provider, region and workload class, and into one of the provider and
//! region as a whole, which speaks for classes of which little was seen. Old outcomes count less, by time and by the
//! number of newer ones. From an arm comes a [`Belief`]: what its latency and failures probably are, and how sure that is.

mod arm;
mod belief;
mod histogram;
mod knowledge;
mod memory;

pub use belief::Belief;
pub use knowledge::{ArmKey, Knowledge, Outcome, OutcomeResult, WorkloadClass};
pub use memory::Memory;
