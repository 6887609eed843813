//! What a sandbox costs whoever asked for it: the provider's charge, less what free credits pay, and what the operator adds.
//!
//! Each line is rounded up to the next picodollar where it is made, once, and lines are added exactly. A bill is therefore
//! never below its exact amount, and above it by less than one picodollar for each line.

use std::time::Duration;

use sandstorm_types::{ByteSize, Usd};
use serde::{Deserialize, Serialize};

use crate::{Charge, Credit, FeeRules};

/// A bill, by its lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bill {
    /// What the provider charges.
    pub charge: Usd,
    /// How much of the charge free credits pay.
    pub credit: Usd,
    /// The operator's share of what is passed through.
    pub margin: Usd,
    /// For keeping snapshots.
    pub snapshots: Usd,
}

impl Bill {
    /// Free credits pay first, computing before everything else, and nobody pays a margin on what they paid. `owned` is
    /// hardware of the operator's own, which knows neither.
    pub fn of(charge: &Charge, owned: bool, rules: &FeeRules, credit: &mut Credit) -> Self {
        let total = charge.total();
        let paid = if owned { Usd::ZERO } else { credit.pay(total).credit };
        let passed = Charge { compute: charge.compute.saturating_sub(paid), ..*charge };
        let fees = rules.margin(&passed, owned);
        Self { charge: total, credit: paid, margin: fees.margin, snapshots: fees.snapshots }
    }

    /// For a snapshot that was kept.
    pub fn of_snapshot(size: ByteSize, kept: Duration, rules: &FeeRules) -> Self {
        Self { snapshots: rules.snapshot(size, kept).snapshots, ..Self::default() }
    }

    /// What is left to pay.
    pub fn total(&self) -> Usd {
        self.charge - self.credit + self.margin + self.snapshots
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn charge(compute: i128, egress: i128) -> Charge {
        Charge { compute: Usd::picos(compute), egress: Usd::picos(egress), ..Charge::default() }
    }

    #[test]
    fn credits_pay_before_money_and_have_no_margin() {
        let mut credit = Credit::new(Usd::dollars(3));
        let half_paid = Bill::of(
            &Charge { compute: Usd::dollars(5), creation: Usd::dollars(1), ..Charge::default() },
            false,
            &FeeRules::USUAL,
            &mut credit,
        );
        assert_eq!((half_paid.charge, half_paid.credit), (Usd::dollars(6), Usd::dollars(3)));
        // 5 % of the two dollars of computing that are left.
        assert_eq!(
            (half_paid.margin.to_string(), half_paid.total().to_string()),
            ("0.1".into(), "3.1".into())
        );
        assert_eq!(credit.left(), Usd::ZERO);
    }

    #[test]
    fn hardware_of_ones_own_has_neither_credits_nor_margin() {
        let mut credit = Credit::new(Usd::dollars(3));
        let bill = Bill::of(&charge(7, 0), true, &FeeRules::USUAL, &mut credit);
        assert_eq!((bill.total(), credit.left()), (Usd::picos(7), Usd::dollars(3)));
    }

    #[test]
    fn without_rules_the_charge_is_the_bill() {
        let bill = Bill::of(&charge(7, 2), false, &FeeRules::default(), &mut Credit::default());
        assert_eq!(bill, Bill { charge: Usd::picos(9), ..Bill::default() });
        let kept = Bill::of_snapshot(ByteSize::gib(2), Duration::from_secs(5400), &FeeRules::USUAL);
        assert_eq!(kept.total().to_string(), "0.003");
    }

    proptest! {
        #[test]
        fn lines_add_up_and_are_rounded_up_once(
            compute in 0_i128..1_000_000_000_000_000, egress in 0_i128..1_000_000_000, left in 0_i128..1_000_000_000_000_000,
            permille in 0_u32..1000,
        ) {
            let rules = FeeRules { margin_permille: permille, ..FeeRules::default() };
            let mut credit = Credit::new(Usd::picos(left));
            let bill = Bill::of(&charge(compute, egress), false, &rules, &mut credit);
            prop_assert_eq!(bill.credit + credit.left(), Usd::picos(left));
            prop_assert_eq!(bill.total(), bill.charge - bill.credit + bill.margin);
            prop_assert!(bill.credit <= bill.charge && !(Usd::ZERO - bill.total()).is_positive());
            // In thousandths of a picodollar nothing is rounded.
            let passed = (compute - bill.credit.as_picos()).max(0);
            let exact = passed * i128::from(permille);
            let over = bill.margin.as_picos() * 1000 - exact;
            prop_assert!((0..1000).contains(&over), "{over}");
        }

        /// What is paid does not depend on how a use is cut into pieces, but for one picodollar a piece.
        #[test]
        fn pieces_cost_what_the_whole_costs(pieces in prop::collection::vec(0_i128..1_000_000_000, 1..40), permille in 0_u32..200) {
            let rules = FeeRules { margin_permille: permille, ..FeeRules::default() };
            let bill = |compute| Bill::of(&charge(compute, 0), false, &rules, &mut Credit::default()).total();
            let whole = bill(pieces.iter().sum()).as_picos();
            let apart: i128 = pieces.iter().map(|&piece| bill(piece).as_picos()).sum();
            prop_assert!(whole <= apart && apart - whole <= pieces.len() as i128);
        }
    }
}
