//! The fuse of a budget: it is asked before a sandbox is made, and again while it runs.

use std::time::Duration;

use sandstorm_catalog::{CostEstimate, Usd};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What becomes of a sandbox when the money is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtLimit {
    #[default]
    Stop,
    Pause,
}

/// The budget of a tenant, a key or a label.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpendFuse {
    /// `None` is no limit.
    limit: Option<Usd>,
    at_limit: AtLimit,
    spent: Usd,
    /// Promised to sandboxes that run.
    reserved: Usd,
}

/// Money that is kept back for one sandbox until its bill is known. Give it back to [`SpendFuse::settle`].
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[must_use = "what is reserved has to be settled"]
pub struct Reservation {
    amount: Usd,
}

/// Why nothing is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("about {wanted} USD would be needed, and of {limit} there is {left} left")]
pub struct Blown {
    pub wanted: Usd,
    pub left: Usd,
    pub limit: Usd,
}

/// What a running sandbox should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum During {
    /// Go on, and be asked again after this time at the latest; `None`: never again.
    Continue {
        ask_again: Option<Duration>,
    },
    Stop,
    Pause,
}

/// Between two looks at a sandbox that costs something.
const SOONEST: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_secs(60);

impl SpendFuse {
    pub fn new(limit: Option<Usd>, at_limit: AtLimit) -> Self {
        Self { limit, at_limit, spent: Usd::ZERO, reserved: Usd::ZERO }
    }

    /// What was spent before, as the ledger has it.
    pub fn with_spent(self, spent: Usd) -> Self {
        Self { spent, ..self }
    }

    /// The same, read again.
    pub fn set_spent(&mut self, spent: Usd) {
        self.spent = spent;
    }

    pub fn spent(&self) -> Usd {
        self.spent
    }

    pub fn limit(&self) -> Option<Usd> {
        self.limit
    }

    /// What nobody has spent or been promised.
    pub fn left(&self) -> Option<Usd> {
        self.limit.map(|limit| limit.saturating_sub(self.spent + self.reserved))
    }

    /// Before a sandbox is made: keeps its expected cost back, or refuses. The high end is the run's matter, which is asked
    /// again.
    pub fn before_create(&mut self, estimate: &CostEstimate) -> Result<Reservation, Blown> {
        let wanted = estimate.expected;
        if let (Some(limit), Some(left)) = (self.limit, self.left()) {
            // At the limit even what costs nothing is refused: an estimate of nothing is not a promise.
            if wanted > left || (left == Usd::ZERO && !self.is_free(estimate)) {
                return Err(Blown { wanted, left, limit });
            }
        }
        self.reserved += wanted;
        Ok(Reservation { amount: wanted })
    }

    fn is_free(&self, estimate: &CostEstimate) -> bool {
        estimate.high == Usd::ZERO
    }

    /// Keeps money back for one that runs already, whether there is any left or not.
    pub fn adopt(&mut self, amount: Usd) -> Reservation {
        self.reserved += amount;
        Reservation { amount }
    }

    /// While it runs: `so_far` is what it has cost, `per_second` what it goes on costing. What it will have cost by the next
    /// question is kept back for it, so that many that run at once cannot spend the same money.
    pub fn during(&mut self, reservation: &mut Reservation, so_far: Usd, per_second: Usd) -> During {
        let Some(limit) = self.limit else { return During::Continue { ask_again: None } };
        if !per_second.is_positive() && !so_far.is_positive() {
            return During::Continue { ask_again: None };
        }
        // Its own share of what is reserved is its to spend.
        let others = self.spent + self.reserved.saturating_sub(reservation.amount);
        let own = limit.saturating_sub(others);
        let left = own.saturating_sub(so_far);
        if !left.is_positive() {
            return match self.at_limit {
                AtLimit::Stop => During::Stop,
                AtLimit::Pause => During::Pause,
            };
        }
        if !per_second.is_positive() {
            return During::Continue { ask_again: Some(LATEST) };
        }
        // Halfway to the limit, since others spend too.
        let micros = left.as_picos().saturating_mul(500_000) / per_second.as_picos();
        let half_way = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
        let ask_again = half_way.clamp(SOONEST, LATEST);
        let by_then = so_far + per_second.for_each(ask_again.as_micros(), 1_000_000);
        self.keep_back(reservation, by_then.min(own));
        During::Continue { ask_again: Some(ask_again) }
    }

    /// More than before, never less.
    fn keep_back(&mut self, reservation: &mut Reservation, amount: Usd) {
        let more = amount.saturating_sub(reservation.amount);
        self.reserved += more;
        reservation.amount += more;
    }

    /// The bill is there.
    pub fn settle(&mut self, reservation: Reservation, actual: Usd) {
        self.reserved = self.reserved.saturating_sub(reservation.amount);
        self.spent += actual;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn micros(amount: i64) -> CostEstimate {
        let amount = Usd::micros(amount);
        CostEstimate { low: amount, expected: amount, high: amount }
    }

    #[test]
    fn refused_before_it_would_cost_too_much() {
        let mut fuse = SpendFuse::new(Some(Usd::micros(100)), AtLimit::Stop).with_spent(Usd::micros(30));
        let first = fuse.before_create(&micros(50)).unwrap();
        let refused = fuse.before_create(&micros(30)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "about 0.00003 USD would be needed, and of 0.0001 there is 0.00002 left"
        );
        fuse.settle(first, Usd::micros(10));
        assert_eq!((fuse.spent(), fuse.left()), (Usd::micros(40), Some(Usd::micros(60))));
        let second = fuse.before_create(&micros(60)).unwrap();
        assert!(fuse.before_create(&micros(1)).is_err());
        let free = fuse.before_create(&micros(0)).unwrap();
        let perhaps = CostEstimate { high: Usd::micros(1), ..CostEstimate::default() };
        assert!(fuse.before_create(&perhaps).is_err());
        fuse.settle(second, Usd::ZERO);
        fuse.settle(free, Usd::ZERO);
    }

    #[test]
    fn stopped_or_paused_at_the_limit_and_looked_at_before() {
        for (at_limit, end) in [(AtLimit::Stop, During::Stop), (AtLimit::Pause, During::Pause)] {
            let mut fuse = SpendFuse::new(Some(Usd::micros(100)), at_limit);
            let mut run = fuse.before_create(&micros(10)).unwrap();
            let per_second = Usd::micros(1);
            let ask_again = Some(Duration::from_secs(40));
            assert_eq!(fuse.during(&mut run, Usd::micros(20), per_second), During::Continue { ask_again });
            assert_eq!(fuse.during(&mut run, Usd::micros(100), per_second), end);
            let other = fuse.before_create(&micros(40)).unwrap();
            assert_eq!(fuse.during(&mut run, Usd::micros(60), per_second), end, "the rest is promised");
            fuse.settle(other, Usd::ZERO);
            fuse.settle(run, Usd::micros(10));
        }
    }

    #[test]
    fn without_a_limit_or_a_price_nobody_looks() {
        let mut fuse = SpendFuse::default();
        let mut run = fuse.before_create(&micros(1_000_000)).unwrap();
        let never = During::Continue { ask_again: None };
        assert_eq!(fuse.during(&mut run, Usd::dollars(1000), Usd::dollars(1)), never);
        fuse.settle(run, Usd::ZERO);
        let mut fuse = SpendFuse::new(Some(Usd::micros(1)), AtLimit::Stop);
        let mut run = fuse.before_create(&micros(0)).unwrap();
        assert_eq!(fuse.during(&mut run, Usd::ZERO, Usd::ZERO), never);
        fuse.settle(run, Usd::ZERO);
    }

    /// Sandboxes that all run at once, each asked when it said that it wants to be.
    #[test]
    fn many_that_run_at_once_do_not_spend_the_same_money() {
        let (limit, per_second) = (Usd::micros(1_000_000), Usd::micros(1000));
        let mut fuse = SpendFuse::new(Some(limit), AtLimit::Stop);
        let mut running: Vec<_> =
            (0..50).map(|_| (fuse.before_create(&micros(100)).unwrap(), 0_u64)).collect();
        let (mut millis, mut spent) = (0_u64, Usd::ZERO);
        while !running.is_empty() {
            millis += 10;
            let cost = per_second.for_each(millis.into(), 1000);
            let mut going_on = Vec::new();
            for (mut reservation, next) in running {
                if millis < next {
                    going_on.push((reservation, next));
                    continue;
                }
                match fuse.during(&mut reservation, cost, per_second) {
                    During::Continue { ask_again } => {
                        let after = ask_again.expect("it costs something").as_millis();
                        going_on.push((reservation, millis + u64::try_from(after).unwrap()));
                    }
                    During::Stop | During::Pause => {
                        spent += cost;
                        fuse.settle(reservation, cost);
                    }
                }
            }
            running = going_on;
        }
        assert_eq!(fuse.spent(), spent);
        // Each can be late by one look.
        let late = per_second.for_each(50 * 120, 1000);
        assert!(spent >= limit && spent <= limit + late, "{spent}");
    }

    proptest! {
        /// Runs that cost what was estimated never exceed the limit, in whatever order they end.
        #[test]
        fn estimates_that_hold_keep_the_limit(runs in prop::collection::vec((1_i64..40, any::<bool>()), 0..60)) {
            let mut fuse = SpendFuse::new(Some(Usd::micros(100)), AtLimit::Stop);
            let mut running = Vec::new();
            for (cost, end_one) in runs {
                if let Ok(reservation) = fuse.before_create(&micros(cost)) {
                    running.push((reservation, cost));
                }
                if end_one && !running.is_empty() {
                    let (reservation, cost) = running.remove(0);
                    fuse.settle(reservation, Usd::micros(cost));
                }
                prop_assert!(fuse.spent() <= Usd::micros(100));
            }
        }
    }
}
