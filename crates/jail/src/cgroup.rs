//! Control groups of a jail, on hosts with v1, v2 or both.
//!
//! Each jail has one leaf in each hierarchy that it needs. All limits are written before the first process enters.
//! The unified tree, where it is mounted, is how PID 1 is born inside and how everything is killed at once; v1 groups
//! are joined by PID 1 itself through descriptors, since moving another process costs milliseconds.

mod counters;
mod delegation;
mod gauge;
mod hierarchy;
mod leaf;
mod meter;
mod spares;

pub use counters::Counters;
pub use delegation::delegated_parent;
pub use gauge::Gauges;
pub use hierarchy::{Controller, Hierarchies, Version};
pub(crate) use leaf::{Leaf, Reclaim, sweep};
pub use meter::{Extent, Meter};
pub(crate) use spares::Spares;
