//! The `e2b` provider against our own server of E2B's API.

mod answers;
mod conformance;
mod files;
mod lifetime;
mod outages;
mod restart;
mod snapshots;
mod streams;
pub(crate) mod world;
