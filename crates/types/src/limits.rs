//! The limits of a sandbox or run.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{ByteSize, LimitError, LimitName, LimitsPatch, MilliCpus, duration};

/// Every limit of a sandbox or run. [`Default`] is what a request gets that asks for nothing.
///
/// Reading goes through [`LimitsPatch`] so that a refusal names the limit; absent fields are defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Limits {
    /// Time by the clock.
    #[serde(with = "duration::seconds")]
    pub wall: Duration,
    /// Processor time of all processes together; `None` leaves it to `wall` and `cpus`.
    #[serde(with = "duration::optional_seconds")]
    pub cpu_time: Option<Duration>,
    /// Share of processors.
    pub cpus: MilliCpus,
    /// Memory of all processes together; what they write to files comes on top of it.
    pub memory: ByteSize,
    /// Processes and threads alive at once.
    pub processes: u32,
    /// Open descriptors per process.
    pub open_files: u32,
    /// Bytes in writable file systems.
    pub disk: ByteSize,
    /// Files, directories and links in writable file systems.
    pub inodes: u64,
    /// Bytes kept of standard output and standard error together.
    pub output: ByteSize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall: Duration::from_secs(30),
            cpu_time: None,
            cpus: MilliCpus::ONE,
            memory: ByteSize::mib(512),
            processes: 256,
            open_files: 1024,
            disk: ByteSize::mib(512),
            inodes: 100_000,
            output: ByteSize::mib(10),
        }
    }
}

impl Limits {
    /// Checks every limit against its range; all that are wrong are named.
    pub fn validate(&self) -> Result<(), Vec<LimitError>> {
        let errors: Vec<_> = LimitName::ALL
            .into_iter()
            .filter_map(|name| self.steps(name).and_then(|value| name.check(value).err()))
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// Lowers each limit to that of `ceiling` and says which were lowered.
    pub fn clamped(&self, ceiling: &Self) -> (Self, Vec<LimitName>) {
        let cpu_time = match (self.cpu_time, ceiling.cpu_time) {
            (Some(wanted), Some(most)) => Some(wanted.min(most)),
            (wanted, most) => wanted.or(most),
        };
        let clamped = Self {
            wall: self.wall.min(ceiling.wall),
            cpu_time,
            cpus: self.cpus.min(ceiling.cpus),
            memory: self.memory.min(ceiling.memory),
            processes: self.processes.min(ceiling.processes),
            open_files: self.open_files.min(ceiling.open_files),
            disk: self.disk.min(ceiling.disk),
            inodes: self.inodes.min(ceiling.inodes),
            output: self.output.min(ceiling.output),
        };
        let lowered =
            LimitName::ALL.into_iter().filter(|name| self.steps(*name) != clamped.steps(*name)).collect();
        (clamped, lowered)
    }

    /// A limit's value as people write it, such as `512MiB`; `None` where it is not set.
    pub fn show(&self, name: LimitName) -> Option<String> {
        self.steps(name).map(|value| name.show(value))
    }

    /// The limit's value in its smallest step, as `LimitName` counts it.
    fn steps(&self, name: LimitName) -> Option<u64> {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        match name {
            LimitName::Wall => Some(nanos(self.wall)),
            LimitName::CpuTime => self.cpu_time.map(nanos),
            LimitName::Cpus => Some(self.cpus.milli().into()),
            LimitName::Memory => Some(self.memory.as_u64()),
            LimitName::Processes => Some(self.processes.into()),
            LimitName::OpenFiles => Some(self.open_files.into()),
            LimitName::Disk => Some(self.disk.as_u64()),
            LimitName::Inodes => Some(self.inodes),
            LimitName::Output => Some(self.output.as_u64()),
        }
    }
}

impl Serialize for Limits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The derived code, which `remote` turned into a plain function.
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Limits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return Self::deserialize(deserializer);
        }
        let patch = LimitsPatch::deserialize(deserializer)?;
        patch.apply(&Self::default()).map_err(|errors| de::Error::custom(&errors[0]))
    }
}

impl From<Limits> for LimitsPatch {
    fn from(limits: Limits) -> Self {
        Self {
            wall: Some(limits.wall),
            cpu_time: limits.cpu_time,
            cpus: Some(limits.cpus),
            memory: Some(limits.memory),
            processes: Some(limits.processes),
            open_files: Some(limits.open_files),
            disk: Some(limits.disk),
            inodes: Some(limits.inodes),
            output: Some(limits.output),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_shown_as_they_are_written() {
        let limits = Limits::default();
        assert_eq!(limits.show(LimitName::Wall).as_deref(), Some("30s"));
        assert_eq!(limits.show(LimitName::CpuTime), None);
        assert_eq!(limits.show(LimitName::Memory).as_deref(), Some("512MiB"));
        assert_eq!(limits.show(LimitName::Processes).as_deref(), Some("256"));
    }

    #[test]
    fn defaults_are_allowed() {
        assert_eq!(Limits::default().validate(), Ok(()));
    }

    #[test]
    fn every_wrong_limit_is_named() {
        let limits =
            Limits { wall: Duration::ZERO, inodes: u64::MAX, cpus: MilliCpus::new(0), ..Limits::default() };
        let names: Vec<_> = limits.validate().unwrap_err().into_iter().map(|error| error.name).collect();
        assert_eq!(names, [LimitName::Wall, LimitName::Cpus, LimitName::Inodes]);
    }

    #[test]
    fn a_ceiling_lowers_and_never_raises() {
        let ceiling =
            Limits { memory: ByteSize::mib(64), wall: Duration::from_secs(60), ..Limits::default() };
        let ceiling = Limits { cpu_time: Some(Duration::from_secs(5)), ..ceiling };
        let (clamped, lowered) = Limits::default().clamped(&ceiling);
        assert_eq!(lowered, [LimitName::CpuTime, LimitName::Memory]);
        assert_eq!(clamped.memory, ByteSize::mib(64));
        assert_eq!(clamped.wall, Duration::from_secs(30));
        assert_eq!(clamped.cpu_time, Some(Duration::from_secs(5)));
    }

    #[test]
    fn reads_back_from_json_and_binary() {
        let limits =
            Limits { wall: Duration::from_millis(1500), cpus: MilliCpus::new(250), ..Limits::default() };
        let json = serde_json::to_string(&limits).unwrap();
        assert_eq!(serde_json::from_str::<Limits>(&json).unwrap(), limits);
        let binary = postcard::to_stdvec(&limits).unwrap();
        assert_eq!(postcard::from_bytes::<Limits>(&binary).unwrap(), limits);
    }
}
