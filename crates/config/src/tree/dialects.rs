//! Foreign APIs that a server offers beside its own.

use std::time::Duration;

use sandstorm_types::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::form;

/// Foreign APIs that the server offers beside its own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Dialects {
    /// The API under `/workspace/se`. Its limits are its own: those of `limits` do not count there.
    pub session: SessionDialect,
}

/// The API under `/workspace/se`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SessionDialect {
    /// Whether it is offered.
    pub enabled: bool,
    /// Processor time of one execution.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub cpu_time: Duration,
    /// Memory of a session's programs. The files of a session live in memory too, and come on top of this.
    #[serde(with = "form::size")]
    #[schemars(with = "form::Size")]
    pub memory: ByteSize,
    /// Whether sessions reach the public internet, whatever `network.default` says.
    pub network: bool,
    /// Time by the clock of one execution that asks for none.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub timeout: Duration,
    /// Processes and threads of a session alive at once.
    pub processes: u32,
    /// How long a session lives; it is deleted then, with its files.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub expiration: Duration,
}

impl Default for SessionDialect {
    fn default() -> Self {
        SessionDialect {
            enabled: true,
            cpu_time: Duration::from_secs(2),
            memory: ByteSize::mib(128),
            network: true,
            timeout: Duration::from_secs(300),
            processes: 10,
            expiration: Duration::from_secs(86_400),
        }
    }
}
