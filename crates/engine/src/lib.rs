//! Local isolators behind the Provider trait.

/// The agent: a static program that becomes PID 1 of every sandbox.
pub static AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sandstorm-agent"));
