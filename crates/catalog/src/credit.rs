//! Free credits are used up first.

use sandstorm_types::Usd;
use serde::{Deserialize, Serialize};

/// What is left of a provider's free credits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Credit {
    left: Usd,
}

/// Who paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paid {
    pub credit: Usd,
    pub pocket: Usd,
}

impl Credit {
    pub fn new(left: Usd) -> Self {
        Self { left: left.max(Usd::ZERO) }
    }

    pub fn left(self) -> Usd {
        self.left
    }

    /// Takes as much of `charge` from the credit as there is.
    pub fn pay(&mut self, charge: Usd) -> Paid {
        let credit = charge.min(self.left).max(Usd::ZERO);
        self.left -= credit;
        Paid { credit, pocket: charge - credit }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn credit_first_and_nothing_is_lost(left in 0_i64..1000, charges in prop::collection::vec(0_i64..300, 0..20)) {
            let mut credit = Credit::new(Usd::micros(left));
            let (mut by_credit, mut by_pocket) = (Usd::ZERO, Usd::ZERO);
            for charge in charges.iter().map(|&micros| Usd::micros(micros)) {
                let paid = credit.pay(charge);
                prop_assert_eq!(paid.credit + paid.pocket, charge);
                prop_assert!(!paid.pocket.is_positive() || credit.left() == Usd::ZERO);
                (by_credit, by_pocket) = (by_credit + paid.credit, by_pocket + paid.pocket);
            }
            prop_assert_eq!(by_credit + credit.left(), Usd::micros(left));
            prop_assert_eq!(by_credit + by_pocket, Usd::micros(charges.iter().sum()));
        }
    }
}
