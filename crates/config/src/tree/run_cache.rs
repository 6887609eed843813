//! Results of runs that are kept for whoever asks for the same again.

use std::time::Duration;

use sandstorm_types::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::form;

/// Results of runs that asked for it with `cache`, for the same run again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunCache {
    /// Most memory that results may take, of all tenants together; a tenant has at most a quarter of it. `0` switches it
    /// off: runs that ask for it are carried out each time.
    #[serde(with = "form::size")]
    #[schemars(with = "form::Size")]
    pub max_bytes: ByteSize,
    /// How long a result is given again.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub max_age: Duration,
}

impl Default for RunCache {
    fn default() -> Self {
        RunCache { max_bytes: ByteSize::mib(64), max_age: Duration::from_secs(3_600) }
    }
}
