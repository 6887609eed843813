//! The resolver that a sandbox sees.
//!
//! It never asks anyone: a name that the policy could let through gets a synthetic address, any other is refused, so a
//! query carries nothing out of the sandbox.

mod message;
mod server;

#[cfg(test)]
pub(crate) use message::tests::query;
#[cfg(test)]
pub(crate) use server::answer;
pub(crate) use server::{serve_tcp, serve_udp};
