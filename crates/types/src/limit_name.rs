//! The names of the limits, as requests, results and reports spell them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// One limit by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitName {
    Wall,
    CpuTime,
    Cpus,
    Memory,
    Processes,
    OpenFiles,
    Disk,
    Inodes,
    Output,
}

/// A text that names no limit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "there is no limit called `{0}`: limits are wall, cpu_time, cpus, memory, processes, open_files, disk, inodes, output"
)]
pub struct UnknownLimit(pub String);

impl LimitName {
    pub const ALL: [Self; 9] = [
        Self::Wall,
        Self::CpuTime,
        Self::Cpus,
        Self::Memory,
        Self::Processes,
        Self::OpenFiles,
        Self::Disk,
        Self::Inodes,
        Self::Output,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::CpuTime => "cpu_time",
            Self::Cpus => "cpus",
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::OpenFiles => "open_files",
            Self::Disk => "disk",
            Self::Inodes => "inodes",
            Self::Output => "output",
        }
    }
}

impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for LimitName {
    type Err = UnknownLimit;

    fn from_str(text: &str) -> Result<Self, UnknownLimit> {
        Self::ALL.into_iter().find(|name| name.as_str() == text).ok_or_else(|| UnknownLimit(text.to_owned()))
    }
}

/// A small set of limits that can be copied, such as those a provider enforces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(into = "Vec<LimitName>", from = "Vec<LimitName>")]
pub struct LimitSet(u16);

impl LimitSet {
    pub const EMPTY: Self = Self(0);

    pub fn all() -> Self {
        LimitName::ALL.into_iter().collect()
    }

    pub const fn with(self, name: LimitName) -> Self {
        Self(self.0 | 1 << name as u16)
    }

    /// All of both.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn contains(self, name: LimitName) -> bool {
        self.0 & 1 << name as u16 != 0
    }

    pub fn iter(self) -> impl Iterator<Item = LimitName> {
        LimitName::ALL.into_iter().filter(move |name| self.contains(*name))
    }
}

impl FromIterator<LimitName> for LimitSet {
    fn from_iter<I: IntoIterator<Item = LimitName>>(names: I) -> Self {
        names.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl From<Vec<LimitName>> for LimitSet {
    fn from(names: Vec<LimitName>) -> Self {
        names.into_iter().collect()
    }
}

impl From<LimitSet> for Vec<LimitName> {
    fn from(set: LimitSet) -> Self {
        set.iter().collect()
    }
}

impl fmt::Debug for LimitSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json_agree() {
        for name in LimitName::ALL {
            assert_eq!(name.as_str().parse(), Ok(name));
            assert_eq!(serde_json::to_string(&name).unwrap(), format!("\"{name}\""));
            assert!(UnknownLimit(String::new()).to_string().contains(name.as_str()));
        }
        assert_eq!("ram".parse::<LimitName>(), Err(UnknownLimit("ram".into())));
    }

    #[test]
    fn sets_hold_what_was_put_in() {
        let set: LimitSet = [LimitName::Output, LimitName::Wall].into_iter().collect();
        assert!(set.contains(LimitName::Wall) && !set.contains(LimitName::Memory));
        assert_eq!(set.iter().collect::<Vec<_>>(), [LimitName::Wall, LimitName::Output]);
        assert_eq!(LimitSet::all().iter().count(), LimitName::ALL.len());
    }
}
