//! Every provider of an installation as one.
//!
//! [`Fleet`] is a provider itself: a new sandbox goes to the member that the router chooses, to the next one if that fails, and
//! everything that is asked of the sandbox later goes to whoever holds it. What is pure is in `sandstorm_router`; here are the
//! calls, the clocks and the memory of who holds what.

mod capabilities;
mod delegate;
mod fleet;
mod hedging;
mod homes;
mod keeping;
mod late;
mod member;
mod nowhere;
mod orphans;
mod placing;
mod portable;
mod probing;
mod survey;
mod work;

pub use fleet::{Fleet, FleetSettings};
pub use late::{Connect, Late};
pub use member::Member;
pub use orphans::Orphan;
pub use placing::Trees;
pub use survey::Standing;
