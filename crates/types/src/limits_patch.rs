//! The limits that a request or a file states; the rest comes from elsewhere.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::{ByteSize, LimitError, LimitName, LimitSet, LimitValue, Limits, MilliCpus, duration};

/// Limits that were stated, to be laid over others.
///
/// Reading is strict: unknown names and values outside a limit's range are refused by name. Fields may
/// be set directly too, which is why [`LimitsPatch::apply`] checks again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct LimitsPatch {
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "duration::optional_seconds::serialize"
    )]
    pub wall: Option<Duration>,
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "duration::optional_seconds::serialize"
    )]
    pub cpu_time: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<MilliCpus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<ByteSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<ByteSize>,
}

impl LimitsPatch {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reads one limit from a text, as a flag or a variable gives it.
    pub fn set_text(&mut self, name: LimitName, text: &str) -> Result<(), LimitError> {
        self.set(name, &LimitValue::Text(text.to_owned()))
    }

    /// Reads one limit from whatever a document holds.
    pub fn set(&mut self, name: LimitName, value: &LimitValue) -> Result<(), LimitError> {
        let steps = name.read(value)?;
        let small = || u32::try_from(steps).expect("the range of each 32-bit limit ends below 2^32");
        match name {
            LimitName::Wall => self.wall = Some(Duration::from_nanos(steps)),
            LimitName::CpuTime => self.cpu_time = Some(Duration::from_nanos(steps)),
            LimitName::Cpus => self.cpus = Some(MilliCpus::new(small())),
            LimitName::Memory => self.memory = Some(ByteSize::bytes(steps)),
            LimitName::Processes => self.processes = Some(small()),
            LimitName::OpenFiles => self.open_files = Some(small()),
            LimitName::Disk => self.disk = Some(ByteSize::bytes(steps)),
            LimitName::Inodes => self.inodes = Some(steps),
            LimitName::Output => self.output = Some(ByteSize::bytes(steps)),
        }
        Ok(())
    }

    /// These limits where stated, else those of `base`; refused when any is out of range.
    pub fn apply(&self, base: &Limits) -> Result<Limits, Vec<LimitError>> {
        let limits = Limits {
            wall: self.wall.unwrap_or(base.wall),
            cpu_time: self.cpu_time.or(base.cpu_time),
            cpus: self.cpus.unwrap_or(base.cpus),
            memory: self.memory.unwrap_or(base.memory),
            processes: self.processes.unwrap_or(base.processes),
            open_files: self.open_files.unwrap_or(base.open_files),
            disk: self.disk.unwrap_or(base.disk),
            inodes: self.inodes.unwrap_or(base.inodes),
            output: self.output.unwrap_or(base.output),
        };
        limits.validate().map(|()| limits)
    }

    /// Lays `self` over `below`: what both state comes from `self`.
    pub fn over(self, below: Self) -> Self {
        Self {
            wall: self.wall.or(below.wall),
            cpu_time: self.cpu_time.or(below.cpu_time),
            cpus: self.cpus.or(below.cpus),
            memory: self.memory.or(below.memory),
            processes: self.processes.or(below.processes),
            open_files: self.open_files.or(below.open_files),
            disk: self.disk.or(below.disk),
            inodes: self.inodes.or(below.inodes),
            output: self.output.or(below.output),
        }
    }
}

impl<'de> Deserialize<'de> for LimitsPatch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PatchVisitor)
    }
}

struct PatchVisitor;

impl<'de> de::Visitor<'de> for PatchVisitor {
    type Value = LimitsPatch;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of limits")
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<LimitsPatch, A::Error> {
        let mut patch = LimitsPatch::default();
        let mut seen = LimitSet::EMPTY;
        while let Some(key) = map.next_key::<String>()? {
            let name: LimitName = key.parse().map_err(de::Error::custom)?;
            if seen.contains(name) {
                return Err(de::Error::custom(format_args!("limit `{name}` is given twice")));
            }
            seen = seen.with(name);
            if let Some(value) = map.next_value::<Option<LimitValue>>()? {
                patch.set(name, &value).map_err(de::Error::custom)?;
            }
        }
        Ok(patch)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(json: &str) -> Result<LimitsPatch, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn nonsense_in_every_field_is_refused_by_name() {
        for name in LimitName::ALL {
            for value in [
                "-1",
                "0",
                "-0.5",
                "1e308",
                "-1e308",
                "0.0001",
                "9223372036854775808",
                "1e30",
                "true",
                "[]",
                "{}",
                "\"NaN\"",
                "\"inf\"",
                "\"-1\"",
                "\"\"",
                "\"1e3\"",
                "\"0x10\"",
                "\"10 \"",
                "\"99999999999999999999999999\"",
            ] {
                let error = read(&format!("{{\"{name}\": {value}}}")).unwrap_err();
                assert!(error.starts_with(&format!("limit `{name}` cannot be ")), "{name} {value}: {error}");
                assert!(error.contains(&format!("allowed is {}", name.allowed())), "{name} {value}: {error}");
            }
            let mut patch = LimitsPatch::default();
            assert_eq!(patch.set(name, &LimitValue::Float(f64::NAN)).unwrap_err().name, name);
            assert_eq!(patch.set(name, &LimitValue::Float(f64::INFINITY)).unwrap_err().name, name);
            assert!(patch.is_empty());
        }
    }

    #[test]
    fn reads_words_and_numbers() {
        let patch =
            read(r#"{"wall": "1m30s", "cpus": 0.5, "memory": "256M", "processes": 16, "cpu_time": null}"#)
                .unwrap();
        assert_eq!(patch.wall, Some(Duration::from_secs(90)));
        assert_eq!(patch.cpus, Some(MilliCpus::new(500)));
        assert_eq!(patch.memory, Some(ByteSize::mib(256)));
        assert_eq!(patch.processes, Some(16));
        assert_eq!(patch.cpu_time, None);
    }

    #[test]
    fn unknown_and_repeated_names_are_refused() {
        assert!(read(r#"{"ram": 1}"#).unwrap_err().contains("no limit called `ram`"));
        assert!(read(r#"{"wall": 1, "wall": 2}"#).unwrap_err().contains("given twice"));
    }

    #[test]
    fn what_is_stated_wins() {
        let patch = LimitsPatch { inodes: Some(500), ..LimitsPatch::default() };
        let limits = patch.apply(&Limits::default()).unwrap();
        assert_eq!(limits, Limits { inodes: 500, ..Limits::default() });
        let below = LimitsPatch { inodes: Some(900), processes: Some(3), ..LimitsPatch::default() };
        assert_eq!(
            patch.over(below),
            LimitsPatch { inodes: Some(500), processes: Some(3), ..LimitsPatch::default() }
        );
    }

    #[test]
    fn fields_set_by_hand_are_checked_too() {
        let patch = LimitsPatch { memory: Some(ByteSize::bytes(1)), ..LimitsPatch::default() };
        assert_eq!(patch.apply(&Limits::default()).unwrap_err()[0].name, LimitName::Memory);
    }

    proptest! {
        #[test]
        fn accepted_means_usable(name in 0..LimitName::ALL.len(), text in "[0-9.]{1,6}(ms|s|m|h|K|M|G|T)?") {
            let mut patch = LimitsPatch::default();
            if patch.set_text(LimitName::ALL[name], &text).is_ok() {
                prop_assert!(patch.apply(&Limits::default()).is_ok());
                let json = serde_json::to_string(&patch).unwrap();
                let back: LimitsPatch = serde_json::from_str(&json).unwrap();
                prop_assert!(back.apply(&Limits::default()).is_ok());
            }
        }
    }
}
