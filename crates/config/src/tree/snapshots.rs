//! Sandboxes that were saved.

use sandstorm_types::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::form;

/// Saved sandboxes: what may be kept of them. They stay until they are removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Snapshots {
    /// Room that all snapshots of this machine may take in the state directory. `0`: sandboxes of this machine are not
    /// saved.
    #[serde(with = "form::size")]
    #[schemars(with = "form::Size")]
    pub space: ByteSize,
    /// How many one tenant may keep, wherever they are.
    pub per_tenant: u32,
    /// Room that those of one tenant may take, as far as those who keep them tell their size.
    #[serde(with = "form::size")]
    #[schemars(with = "form::Size")]
    pub space_per_tenant: ByteSize,
}

impl Default for Snapshots {
    fn default() -> Self {
        Snapshots { space: ByteSize::gib(20), per_tenant: 100, space_per_tenant: ByteSize::gib(5) }
    }
}
