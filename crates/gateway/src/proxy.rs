//! The way to a port inside a sandbox: what may pass in each direction, and how upgraded connections are carried.
//!
//! What answers is hostile to us and to the browser that asked. Nothing of ours reaches it (keys, cookies of this
//! host), and nothing of its answer may act on this host: see [`headers::response`].

pub(crate) mod cookies;
pub(crate) mod headers;
mod secrets;
pub(crate) mod tunnel;
