//! What sandboxes of a server may ask for.

use std::time::Duration;

use sandstorm_types::{ByteSize, Limits, MilliCpus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Config;
use crate::form;

/// Sandboxes of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sandboxes {
    /// The longest lifetime that may be asked for.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub lifetime_max: Duration,
    /// How long a sandbox may go without a request or a running program before it is treated as at the end of its
    /// lifetime. Not set: any time.
    #[serde(with = "form::optional_span")]
    #[schemars(with = "Option<form::Span>", example = &"30m")]
    pub idle_timeout: Option<Duration>,
    /// How long a paused sandbox is kept before it is deleted.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub paused_for: Duration,
    /// The most that a run or sandbox may ask for. What `limits` gives by default is always allowed.
    pub ceiling: Ceiling,
}

impl Default for Sandboxes {
    fn default() -> Self {
        let day = Duration::from_secs(86_400);
        Sandboxes { lifetime_max: day, idle_timeout: None, paused_for: day, ceiling: Ceiling::default() }
    }
}

/// The most that a run or sandbox may ask for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ceiling {
    /// Time by the clock.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub wall: Duration,
    /// Processor time. Not set: bounded by `wall` and `cpus`.
    #[serde(with = "form::optional_span")]
    #[schemars(with = "Option<form::Span>", example = &"1h")]
    pub cpu_time: Option<Duration>,
    /// Share of processors.
    #[schemars(with = "form::Cpus")]
    pub cpus: MilliCpus,
    /// Memory.
    #[serde(with = "form::size")]
    #[schemars(with = "form::Size")]
    pub memory: ByteSize,
    /// Processes and threads alive at once.
    pub processes: u32,
    /// Open files per process.
    pub open_files: u32,
    /// Bytes in writable file systems.
    #[serde(with = "form::size")]
    #[schemars(with = "form::Size")]
    pub disk: ByteSize,
    /// Files, directories and links in writable file systems.
    pub inodes: u64,
    /// Bytes kept of output.
    #[serde(with = "form::size")]
    #[schemars(with = "form::Size")]
    pub output: ByteSize,
}

impl Default for Ceiling {
    fn default() -> Self {
        Ceiling {
            wall: Duration::from_secs(86_400),
            cpu_time: None,
            cpus: MilliCpus::new(8_000),
            memory: ByteSize::gib(8),
            processes: 4_096,
            open_files: 65_536,
            disk: ByteSize::gib(8),
            inodes: 1_000_000,
            output: ByteSize::mib(100),
        }
    }
}

impl Ceiling {
    pub fn limits(&self) -> Limits {
        Limits {
            wall: self.wall,
            cpu_time: self.cpu_time,
            cpus: self.cpus,
            memory: self.memory,
            processes: self.processes,
            open_files: self.open_files,
            disk: self.disk,
            inodes: self.inodes,
            output: self.output,
        }
    }
}

impl Config {
    /// The most that a run or sandbox of a server may ask for: `sandbox.ceiling`, raised to the default limits where
    /// those are higher.
    pub fn ceiling(&self) -> Limits {
        let (most, usual) = (self.sandbox.ceiling.limits(), self.limits);
        Limits {
            wall: most.wall.max(usual.wall),
            cpu_time: most.cpu_time.map(|most| most.max(usual.cpu_time.unwrap_or_default())),
            cpus: most.cpus.max(usual.cpus),
            memory: most.memory.max(usual.memory),
            processes: most.processes.max(usual.processes),
            open_files: most.open_files.max(usual.open_files),
            disk: most.disk.max(usual.disk),
            inodes: most.inodes.max(usual.inodes),
            output: most.output.max(usual.output),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_by_default_is_allowed() {
        let mut config = Config::default();
        assert_eq!(config.ceiling(), Ceiling::default().limits());
        assert_eq!(config.ceiling().validate(), Ok(()));
        assert_eq!(config.limits.clamped(&config.ceiling()), (config.limits, Vec::new()));

        config.limits.memory = ByteSize::gib(32);
        config.limits.cpu_time = Some(Duration::from_secs(20));
        config.sandbox.ceiling.cpu_time = Some(Duration::from_secs(10));
        let ceiling = config.ceiling();
        assert_eq!(ceiling.memory, ByteSize::gib(32));
        assert_eq!(ceiling.cpu_time, Some(Duration::from_secs(20)));
        assert_eq!(config.limits.clamped(&ceiling), (config.limits, Vec::new()));
    }
}
