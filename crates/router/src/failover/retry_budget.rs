//! A budget of second attempts, so that a bad day does not become a storm.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Moment;

/// How much there is to spend.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryBudgetRules {
    /// Second attempts that each request pays in.
    pub per_request: f64,
    /// And each second, so that one who has few requests can try again at all.
    pub per_second: f64,
    /// What is not spent is kept up to this.
    pub most: f64,
}

impl Default for RetryBudgetRules {
    fn default() -> Self {
        Self { per_request: 0.2, per_second: 0.5, most: 50.0 }
    }
}

/// A bucket of attempts. It is full at first.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryBudget {
    rules: RetryBudgetRules,
    left: f64,
    last: Moment,
}

impl RetryBudget {
    pub fn new(rules: RetryBudgetRules) -> Self {
        Self { rules, left: rules.most, last: Moment::START }
    }

    /// A request came.
    pub fn pay_in(&mut self) {
        self.add(self.rules.per_request);
    }

    /// Takes one attempt; `false`: there is none left.
    pub fn spend(&mut self, now: Moment) -> bool {
        let elapsed: Duration = now.since(self.last);
        self.last = self.last.max(now);
        self.add(self.rules.per_second * elapsed.as_secs_f64());
        let enough = self.left >= 1.0;
        if enough {
            self.left -= 1.0;
        }
        enough
    }

    fn add(&mut self, attempts: f64) {
        self.left = (self.left + attempts).min(self.rules.most);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULES: RetryBudgetRules = RetryBudgetRules { per_request: 0.2, per_second: 0.0, most: 3.0 };

    #[test]
    fn a_fifth_of_the_requests_may_be_tried_again() {
        let mut budget = RetryBudget::new(RULES);
        let spent = (0..100).filter(|_| {
            budget.pay_in();
            budget.spend(Moment::START)
        });
        assert_eq!(spent.count(), 3 + 19);
    }

    #[test]
    fn it_fills_with_time_and_not_past_its_rim() {
        let mut budget = RetryBudget::new(RetryBudgetRules { per_second: 1.0, ..RULES });
        let spend = |budget: &mut RetryBudget, second| {
            (0..10).filter(|_| budget.spend(Moment::from_secs(second))).count()
        };
        assert_eq!((spend(&mut budget, 0), spend(&mut budget, 2), spend(&mut budget, 1000)), (3, 2, 3));
    }

    proptest! {
        #[test]
        fn never_more_than_was_paid_in(events in prop::collection::vec(any::<bool>(), 0..300)) {
            let mut budget = RetryBudget::new(RULES);
            let (mut requests, mut spent) = (0, 0);
            for request in events {
                if request {
                    budget.pay_in();
                    requests += 1;
                } else {
                    spent += u32::from(budget.spend(Moment::START));
                }
                prop_assert!(f64::from(spent) <= RULES.most + 0.2 * f64::from(requests) + 1e-6);
            }
        }
    }
}
