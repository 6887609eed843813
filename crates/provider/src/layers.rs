//! Wrappers that add one behaviour to any provider by implementing the same trait.

mod capability_check;

pub use capability_check::CapabilityCheck;
