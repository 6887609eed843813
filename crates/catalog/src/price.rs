//! How a provider's bill is made up.

use sandstorm_types::MilliCpus;
use serde::{Deserialize, Serialize};

use crate::{Size, Usd};

/// The models that are in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "snake_case", deny_unknown_fields)]
pub enum PriceModel {
    /// What was asked for, for as long as it is there, used or not.
    Allocated { vcpu_second: Usd, gib_second: Usd },
    /// Processor time that was used, and memory for as long as it is there.
    ActiveCpu { vcpu_second: Usd, gib_second: Usd },
    /// For each of processor and memory the larger of what was asked for and what was used.
    MaxOfRequestAndActual { vcpu_second: Usd, gib_second: Usd },
    /// Memory, with processors in proportion: more processors mean more memory.
    BundledByMemory { gib_second: Usd, cpus_per_gib: MilliCpus },
    /// A few shapes, each at its price; with one there is no choice.
    Tiers { tiers: Vec<Tier> },
    /// Whole units of processor and memory together.
    Units { unit: Size, unit_minute: Usd },
    /// Hardware that is there anyway, at a rate that the operator works out; nothing by default.
    Owned {
        #[serde(default)]
        vcpu_hour: Usd,
        #[serde(default)]
        gib_hour: Usd,
    },
    /// Nobody has told us: nothing is sent there before the operator has set a price.
    Unknown {},
}

/// One shape and its price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tier {
    pub name: String,
    pub size: Size,
    pub hour: Usd,
}

impl PriceModel {
    /// Its name, as files spell it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Allocated { .. } => "allocated",
            Self::ActiveCpu { .. } => "active_cpu",
            Self::MaxOfRequestAndActual { .. } => "max_of_request_and_actual",
            Self::BundledByMemory { .. } => "bundled_by_memory",
            Self::Tiers { .. } => "tiers",
            Self::Units { .. } => "units",
            Self::Owned { .. } => "owned",
            Self::Unknown {} => "unknown",
        }
    }

    pub fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown {})
    }

    pub fn is_owned(&self) -> bool {
        matches!(self, Self::Owned { .. })
    }

    /// The cheapest shape that holds what is wanted, where there are shapes.
    pub fn tier(&self, wanted: Size) -> Option<&Tier> {
        let Self::Tiers { tiers } = self else { return None };
        tiers.iter().filter(|tier| tier.size.holds(wanted)).min_by_key(|tier| tier.hour)
    }
}
