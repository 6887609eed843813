//! What an operator adds to a provider's bill, as data. Nothing unless configured.

use std::time::Duration;

use sandstorm_types::ByteSize;
use serde::{Deserialize, Serialize};

use crate::{Charge, Usd};

/// The rules. [`Default`] adds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FeeRules {
    /// Share of what a provider bills for computing, in thousandths. Hardware of one's own has none.
    pub margin_permille: u32,
    /// For each gibibyte of a saved sandbox and each hour.
    pub snapshot_gib_hour: Usd,
}

/// What was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Fees {
    pub margin: Usd,
    pub snapshots: Usd,
}

impl Fees {
    pub fn total(&self) -> Usd {
        self.margin + self.snapshots
    }
}

impl FeeRules {
    /// What is usual where fees are taken: 5 % and 0.001 USD.
    pub const USUAL: Self = Self { margin_permille: 50, snapshot_gib_hour: Usd::micros(1000) };

    /// The margin on a charge; `owned` is hardware of the operator's own, whose rate has it in it.
    pub fn margin(&self, charge: &Charge, owned: bool) -> Fees {
        let margin = if owned { Usd::ZERO } else { charge.compute.permille(self.margin_permille) };
        Fees { margin, snapshots: Usd::ZERO }
    }

    /// The fee for keeping a snapshot.
    pub fn snapshot(&self, size: ByteSize, kept: Duration) -> Fees {
        let amount = u128::from(size.as_u64()) * kept.as_micros();
        let snapshots = self.snapshot_gib_hour.for_each(amount, (1 << 30) * 3_600_000_000);
        Fees { margin: Usd::ZERO, snapshots }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charge(compute: Usd) -> Charge {
        Charge { compute, egress: Usd::dollars(7), ..Charge::default() }
    }

    #[test]
    fn nothing_unless_configured() {
        let rules: FeeRules = serde_json::from_str("{}").unwrap();
        assert_eq!(rules.margin(&charge(Usd::dollars(1)), false).total(), Usd::ZERO);
        assert_eq!(rules.snapshot(ByteSize::gib(100), Duration::from_secs(86_400)).total(), Usd::ZERO);
        assert!(serde_json::from_str::<FeeRules>(r#"{"margin": 5}"#).is_err());
    }

    #[test]
    fn the_usual_rules() {
        let rules = FeeRules::USUAL;
        assert_eq!(rules.margin(&charge(Usd::dollars(2)), false).total().to_string(), "0.1");
        assert_eq!(rules.margin(&charge(Usd::dollars(2)), true).total(), Usd::ZERO);
        // 2 GiB for 90 minutes are 3 gibibyte-hours.
        let kept = rules.snapshot(ByteSize::gib(2), Duration::from_secs(5400));
        assert_eq!(kept.total().to_string(), "0.003");
    }
}
