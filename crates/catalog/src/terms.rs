//! What a bill and an account have besides the price of computing: steps, fees, credits, quotas. Every figure may be absent,
//! which is why the same types say what the operator has changed.

use std::collections::BTreeMap;
use std::time::Duration;

use sandstorm_types::duration;
use serde::{Deserialize, Serialize};

use crate::Usd;

/// Makes `overlaid`: the figures of another one where it has them, ours elsewhere.
macro_rules! overlaid {
    ($name:ident { $($field:ident),+ }) => {
        impl $name {
            /// With every figure that `other` states in place of this one's.
            pub fn overlaid(self, other: Self) -> Self {
                Self { $($field: other.$field.or(self.$field)),+ }
            }
        }
    };
}

/// How time becomes a bill.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Billing {
    /// Time is billed in steps of this.
    #[serde(with = "duration::optional_seconds", skip_serializing_if = "Option::is_none")]
    pub granularity: Option<Duration>,
    /// Less than this is billed as this.
    #[serde(with = "duration::optional_seconds", skip_serializing_if = "Option::is_none")]
    pub minimum_time: Option<Duration>,
    /// No sandbox costs less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum_charge: Option<Usd>,
    /// For making one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_fee: Option<Usd>,
    /// Of the plan, whether anything runs or not; not part of any run's cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_fee_month: Option<Usd>,
    /// How much more a region costs that the caller insists on, in thousandths of the price, at least and at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned_region_permille: Option<(u32, u32)>,
}

overlaid!(Billing {
    granularity,
    minimum_time,
    minimum_charge,
    creation_fee,
    plan_fee_month,
    pinned_region_permille
});

/// What one does not pay for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Credits {
    /// Once, when the account is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub once: Option<Usd>,
    /// Every month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monthly: Option<Usd>,
}

overlaid!(Credits { once, monthly });

/// What an account may do at most.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quotas {
    /// Sandboxes at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<u32>,
    /// Sandboxes made in a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creates_per_minute: Option<u32>,
    /// Longest life of one.
    #[serde(with = "duration::optional_seconds", skip_serializing_if = "Option::is_none")]
    pub max_lifetime: Option<Duration>,
}

overlaid!(Quotas { concurrent, creates_per_minute, max_lifetime });

/// Prices of what is not processor and memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Extras {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_gib_second: Option<Usd>,
    /// Disk that costs nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_free_gib: Option<u32>,
    /// A saved sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_gib_hour: Option<Usd>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress_gib: Option<Usd>,
    /// A second of one accelerator, by its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_second: Option<BTreeMap<String, Usd>>,
}

overlaid!(Extras { disk_gib_second, disk_free_gib, snapshot_gib_hour, egress_gib, gpu_second });

/// A place that a provider runs sandboxes in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Region {
    /// The provider's own name for it.
    pub name: String,
    /// Where the data lies, such as `us` or `eu`; for rules on residency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub area: Option<String>,
}
