//! Writable space of sandboxes on this machine's disk.

use sandstorm_types::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::form;

/// Sandboxes of a server with `space: disk`: what they may have of this machine's disk. A sandbox that would go past it is
/// refused when it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DiskSpace {
    /// The most that all of them together may be promised: the sum of their `limits.disk`. `0`: none has its space on disk.
    #[serde(with = "form::size")]
    #[schemars(with = "form::Size")]
    pub total: ByteSize,
    /// The most that those of one tenant may be promised.
    #[serde(with = "form::size")]
    #[schemars(with = "form::Size")]
    pub per_tenant: ByteSize,
    /// What stays free on the disk of the state directory when all of them have written all that they may.
    #[serde(with = "form::size")]
    #[schemars(with = "form::Size")]
    pub keep_free: ByteSize,
}

impl Default for DiskSpace {
    fn default() -> Self {
        DiskSpace { total: ByteSize::gib(100), per_tenant: ByteSize::gib(20), keep_free: ByteSize::gib(1) }
    }
}
