//! How large a sandbox is wanted, and how large a provider makes it.

use sandstorm_types::{ByteSize, Limits, MilliCpus};
use serde::{Deserialize, Serialize};

/// What a run asks a provider for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Demand {
    pub cpus: MilliCpus,
    pub memory: ByteSize,
    pub disk: ByteSize,
    /// The kind of one accelerator, such as `H100`.
    pub gpu: Option<String>,
}

impl Default for Demand {
    fn default() -> Self {
        Self::of(&Limits::default())
    }
}

impl Demand {
    pub fn of(limits: &Limits) -> Self {
        Self { cpus: limits.cpus, memory: limits.memory, disk: limits.disk, gpu: None }
    }

    pub fn size(&self) -> Size {
        Size { cpus: self.cpus, memory: self.memory }
    }
}

/// Processors and memory of one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    pub cpus: MilliCpus,
    pub memory: ByteSize,
}

impl Size {
    /// Whether a sandbox of this size does for one of that size.
    pub fn holds(self, wanted: Self) -> bool {
        self.cpus >= wanted.cpus && self.memory >= wanted.memory
    }

    /// The larger in each.
    pub fn at_least(self, least: Self) -> Self {
        Self { cpus: self.cpus.max(least.cpus), memory: self.memory.max(least.memory) }
    }
}

/// Sizes that a provider makes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sizes {
    /// What one gets without asking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Size>,
    /// The smallest that is made, and billed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least: Option<Size>,
    /// The only ones that there are; empty means any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<Size>,
}

impl Sizes {
    /// The smallest size that holds what is wanted; `None`: it is larger than any.
    pub fn fit(&self, wanted: Size) -> Option<Size> {
        let wanted = self.least.map_or(wanted, |least| wanted.at_least(least));
        if self.only.is_empty() {
            return Some(wanted);
        }
        self.only
            .iter()
            .copied()
            .filter(|size| size.holds(wanted))
            .min_by_key(|size| (size.memory, size.cpus))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(milli: u32, mib: u64) -> Size {
        Size { cpus: MilliCpus::new(milli), memory: ByteSize::mib(mib) }
    }

    #[test]
    fn the_smallest_that_holds_it() {
        let any = Sizes::default();
        assert_eq!(any.fit(size(300, 100)), Some(size(300, 100)));
        let least = Sizes { least: Some(size(250, 128)), ..Sizes::default() };
        assert_eq!(least.fit(size(100, 512)), Some(size(250, 512)));
        let steps =
            Sizes { only: vec![size(2000, 4096), size(500, 4096), size(250, 1024)], ..Sizes::default() };
        assert_eq!(steps.fit(size(250, 512)), Some(size(250, 1024)));
        assert_eq!(steps.fit(size(400, 512)), Some(size(500, 4096)));
        assert_eq!(steps.fit(size(4000, 512)), None);
    }
}
