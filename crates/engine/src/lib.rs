//! Local isolators behind the Provider trait.
//!
//! [`LocalProvider`] holds sandboxes on this machine. It never forks: jails are made by the launcher, everything inside
//! them is done by the agent, and both are reached over sockets ([`launcher`], [`sandstorm_agent_client`]).

mod cookie;
mod disk_space;
mod exec;
mod guest;
mod journal;
mod launcher;
mod living;
mod local;
mod meter;
mod network;
mod plan;
mod pool;
mod snapshots;
mod walls;
mod warm;

pub use disk_space::DiskSpaceConfig;
pub use local::{LocalConfig, LocalProvider};
pub use pool::PoolConfig;
pub use sandstorm_agent_client::AGENT;
pub use snapshots::SnapshotConfig;
