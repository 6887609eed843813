//! Hosted providers: sandboxes that live elsewhere, behind the same trait as those of this machine.
//!
//! One folder and one cargo feature for each; no folder knows another. All of them have the same files: `config` (what
//! the operator says), `client` (the way there), `error` (their failures in our words) and `provider` (the trait).

mod account;
mod bodies;
#[cfg(feature = "e2b")]
pub mod e2b;
mod ending;
#[cfg(feature = "sandstorm")]
pub mod sandstorm;

pub use account::{ApiKey, Owner, OwnerError};
