//! How strongly a sandbox is separated from its host, in ascending order.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The boundary between a sandbox and its host. A request names the least it accepts; nothing weaker
/// may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// A process of the host with few or no walls.
    #[default]
    Process,
    /// Namespaces, system-call filter and cgroups on the host's kernel.
    Container,
    /// A kernel in user space between program and host.
    UserKernel,
    /// A virtual machine with a kernel of its own.
    MicroVm,
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "process",
            Self::Container => "container",
            Self::UserKernel => "user_kernel",
            Self::MicroVm => "micro_vm",
        })
    }
}
