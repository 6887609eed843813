//! Which walls are up: measured by PID 1 when the last of them stood, and completed by the launcher with what only the
//! host can see.

use rustix::fs::{AtFlags, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::cgroup::{Controller, Version};

/// Namespaces that make a jail.
pub const NAMESPACES: [&str; 7] = ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"];

/// What PID 1 found of itself in its last moment before it became the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Inode of each namespace, in the order of [`NAMESPACES`].
    pub namespaces: Vec<u64>,
    /// The root is a file system of the jail's own.
    pub own_root: bool,
    pub bounding_set: u64,
    pub no_new_privs: bool,
    pub seccomp_mode: u32,
    pub landlock: bool,
    /// No supplementary groups are left.
    pub no_groups: bool,
    /// Trees that are shown with inodes that others have as well: what the jail watches and locks there, it watches and
    /// locks for all of them.
    pub shared: Vec<String>,
}

impl Measured {
    /// `before`: the device of the root that was left.
    pub(crate) fn take(landlock: bool, before: u64, shared: Vec<String>) -> std::io::Result<Self> {
        Ok(Self {
            namespaces: namespaces()?,
            own_root: rustix::fs::stat("/")?.st_dev != before,
            shared,
            bounding_set: sandstorm_sys::process::bounding_set()?,
            no_new_privs: rustix::thread::no_new_privs()?,
            seccomp_mode: sandstorm_sys::filter::mode()?,
            landlock,
            no_groups: rustix::process::getgroups()?.is_empty(),
        })
    }
}

/// The namespaces of this process, in the order of [`NAMESPACES`].
pub(crate) fn namespaces() -> std::io::Result<Vec<u64>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let all = rustix::fs::open("/proc/self/ns", flags, Mode::empty())?;
    NAMESPACES.iter().map(|name| Ok(rustix::fs::statat(&all, *name, AtFlags::empty())?.st_ino)).collect()
}

/// The walls of a jail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub measured: Measured,
    /// For each of [`NAMESPACES`]: it differs from the launcher's.
    pub separated: Vec<bool>,
    /// PID 1 and payload have ids that nobody else has.
    pub own_ids: bool,
    pub landlock_abi: u32,
    pub filter_profile: String,
    pub filter_hash: String,
    pub cgroup: Version,
    pub controllers: Vec<Controller>,
    /// Limits that are not enforced, with the reason.
    pub missing_limits: Vec<(String, String)>,
}

impl Report {
    /// Whether a namespace is the jail's own.
    pub fn separates(&self, namespace: &str) -> bool {
        NAMESPACES
            .iter()
            .position(|n| *n == namespace)
            .and_then(|i| self.separated.get(i))
            .copied()
            .unwrap_or(false)
    }
}
