//! The Linux jail: namespaces, mounts, cgroups, seccomp, Landlock, and the launcher that builds them.
//!
//! Synchronous throughout, and without knowledge of providers or HTTP. A client describes a jail in a [`JailSpec`] and
//! hands it to the [`launcher`]; what comes back is a socket to the agent inside and a [`Report`] of the walls that
//! really stand. `ARCHITECTURE.md` draws who forks, who reaps and who holds what.

pub mod cgroup;
mod descriptors;
mod devices;
mod error;
mod identity;
mod image;
mod instance;
pub mod landlock;
pub mod launcher;
pub mod mold;
mod mounts;
pub mod network;
pub mod packet;
mod pid1;
pub mod pod;
mod privileges;
mod procfs;
mod report;
mod root;
pub mod seccomp;
mod spec;
mod step;
pub mod template;
pub mod transplant;
mod zygote;

pub use error::JailError;
pub use identity::{BLOCK, IdRange};
pub use report::{Measured, NAMESPACES, Report};
pub use spec::{JailLimits, JailSpec, Network, OnMemory, PAYLOAD_ID, RootSpec, Strictness, Tree};
