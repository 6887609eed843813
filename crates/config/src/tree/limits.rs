//! How the limits stand in the file. The limits themselves, their defaults and ranges are those of `Limits`.

use std::time::Duration;

use sandstorm_types::{ByteSize, Limits, MilliCpus};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::form;

/// Limits of a run or sandbox that asks for none of its own.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LimitsForm {
    /// Time by the clock. A number of seconds, or a text such as `1m30s`.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    wall: Duration,
    /// Processor time of all processes together. Not set: bounded by `wall` and `cpus`.
    #[serde(with = "form::optional_span")]
    #[schemars(with = "Option<form::Span>", example = &"10s")]
    cpu_time: Option<Duration>,
    /// Share of processors, such as `2`, `0.5` or `500m`.
    #[schemars(with = "form::Cpus")]
    cpus: MilliCpus,
    /// Memory of all processes together; what they write to files comes on top of it. Units are powers of 1,024.
    #[serde(with = "form::size")]
    #[schemars(with = "form::Size")]
    memory: ByteSize,
    /// Processes and threads alive at once.
    processes: u32,
    /// Open files per process.
    open_files: u32,
    /// Bytes in writable file systems.
    #[serde(with = "form::size")]
    #[schemars(with = "form::Size")]
    disk: ByteSize,
    /// Files, directories and links in writable file systems.
    inodes: u64,
    /// Bytes kept of standard output and standard error together.
    #[serde(with = "form::size")]
    #[schemars(with = "form::Size")]
    output: ByteSize,
}

impl Default for LimitsForm {
    fn default() -> Self {
        Limits::default().into()
    }
}

impl From<Limits> for LimitsForm {
    fn from(limits: Limits) -> Self {
        let Limits { wall, cpu_time, cpus, memory, processes, open_files, disk, inodes, output } = limits;
        LimitsForm { wall, cpu_time, cpus, memory, processes, open_files, disk, inodes, output }
    }
}

impl From<LimitsForm> for Limits {
    fn from(form: LimitsForm) -> Self {
        let LimitsForm { wall, cpu_time, cpus, memory, processes, open_files, disk, inodes, output } = form;
        Limits { wall, cpu_time, cpus, memory, processes, open_files, disk, inodes, output }
    }
}

pub(super) fn serialize<S: Serializer>(limits: &Limits, serializer: S) -> Result<S::Ok, S::Error> {
    LimitsForm::from(*limits).serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Limits, D::Error> {
    LimitsForm::deserialize(deserializer).map(Limits::from)
}
