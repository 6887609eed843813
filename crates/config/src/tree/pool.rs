//! Sandboxes made before anybody asks for them.

use std::time::Duration;

use sandstorm_types::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::form;

/// Sandboxes that a server makes before anybody asks for them, so that a run need not wait for one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Pool {
    /// Whether there is a pool. Without it every sandbox is made when it is asked for.
    pub enabled: bool,
    /// Whether Python programs may begin in forks of an interpreter that is warm already. Needs root; where it cannot be
    /// had, they are started as everywhere else.
    pub zygotes: bool,
    /// Most sandboxes that wait at once, of all tenants together. Each holds one block of `ids`, so at most half of
    /// `ids.blocks`.
    pub max: u32,
    /// Most memory that they may take while they wait.
    #[serde(with = "form::size")]
    #[schemars(with = "form::Size")]
    pub memory: ByteSize,
    /// How old one may get; then another takes its place.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub max_age: Duration,
    /// How many wait at all times for Python runs of the first tenant with the default limits and no network. The rest
    /// follows demand.
    pub prefill: u32,
    /// Python modules to import ahead, where this machine has them for its own Python: a program that imports one of them
    /// finds it loaded.
    pub preload: Vec<String>,
}

impl Default for Pool {
    fn default() -> Self {
        Pool {
            enabled: true,
            zygotes: true,
            max: 128,
            memory: ByteSize::mib(512),
            max_age: Duration::from_secs(600),
            prefill: 4,
            preload: ["numpy", "pandas", "matplotlib"].map(str::to_owned).to_vec(),
        }
    }
}
