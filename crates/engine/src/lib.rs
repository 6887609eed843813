//! Local isolators behind the Provider trait.
//!
//! [`LocalProvider`] holds sandboxes on this machine. It never forks: jails are made by the launcher, everything inside
//! them is done by the agent, and both are reached over sockets ([`launcher`], [`agent`]).

mod agent;
mod connect;
mod cookie;
mod exec;
mod files;
mod guest;
mod journal;
mod launcher;
mod living;
mod local;
mod meter;
mod network;
mod plan;
mod pool;
mod socket;
mod walls;
mod warm;

pub use local::{LocalConfig, LocalProvider};
pub use pool::PoolConfig;

/// The agent: a static program that becomes PID 1 of every sandbox.
pub static AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sandstorm-agent"));
