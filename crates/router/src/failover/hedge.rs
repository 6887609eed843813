//! A second creation beside a slow one, if that costs little. Only creations are hedged: no code has run when one of the two is
//! destroyed.

use std::time::Duration;

use sandstorm_catalog::{Span, Usd};
use sandstorm_types::duration;
use serde::{Deserialize, Serialize};

use crate::prediction::millis;
use crate::{Candidate, Prediction, Ranked, RouteRequest};

/// When a hedge is worth it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HedgeRules {
    /// What one loser may cost.
    pub most_cost: Usd,
    /// What losers may cost on average, in thousandths of what the run is expected to cost.
    pub most_cost_permille: u32,
    /// Nobody notices less.
    #[serde(with = "duration::seconds")]
    pub least_wait: Duration,
}

impl Default for HedgeRules {
    fn default() -> Self {
        let least_wait = Duration::from_millis(50);
        Self { most_cost: Usd::micros(1000), most_cost_permille: 250, least_wait }
    }
}

/// If the first is not ready by then, a second one is made there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HedgePlan {
    pub provider: String,
    pub region: Option<String>,
    #[serde(with = "duration::seconds")]
    pub after: Duration,
    /// What the loser probably costs at most; it is billed to the run either way.
    pub most_cost: Usd,
}

impl HedgePlan {
    /// The plan for a ranking's first place with its second, where that is worth it: from some time on the second one, begun
    /// then, is expected before the first, and the loser is cheap.
    pub fn new(
        request: &RouteRequest,
        first: &Ranked,
        second: &Ranked,
        candidate: &Candidate,
        rules: &HedgeRules,
    ) -> Option<Self> {
        // The second one loses when the first is ready meanwhile; it is destroyed as soon as it is ready itself.
        let loser = Span::exactly(millis(second.prediction.p95_ms));
        let pinned = candidate.region.is_some();
        let cost = candidate.entry.estimate(&request.demand, loser, request.cpu_permille, pinned).ok()?.high;
        if cost > rules.most_cost {
            return None;
        }
        let allowed = first.prediction.cost.expected.permille(rules.most_cost_permille);
        let affordable = |share: u32| cost.permille(share) <= allowed;
        let after = worth_it_after(&first.prediction, second.prediction.ready_ms.expected, affordable)?;
        let after = millis(after).max(rules.least_wait);
        Some(Self {
            provider: second.provider.clone(),
            region: second.region.clone(),
            after,
            most_cost: cost,
        })
    }
}

/// Past the slowest of late by this much, something is wrong.
const LATE: f64 = 1.2;

/// The earliest of a few times after which what is still to be waited for is longer than a second one takes, of those that
/// are not reached too often to be paid for: `affordable` is asked for thousandths of all runs. Who is later than anybody was
/// lately may be for any time.
fn worth_it_after(first: &Prediction, second_ms: f64, affordable: impl Fn(u32) -> bool) -> Option<f64> {
    let Prediction { p50_ms, p80_ms, p95_ms, p99_ms, .. } = *first;
    // Sums over straight lines between the quantiles; what lies beyond the last one counts as that.
    let above_p95 = 0.04 * (p95_ms + p99_ms) / 2.0 + 0.01 * p99_ms;
    let above_p80 = 0.15 * (p80_ms + p95_ms) / 2.0 + above_p95;
    let above_p50 = 0.30 * (p50_ms + p80_ms) / 2.0 + above_p80;
    let times = [
        (p50_ms, above_p50 / 0.5 - p50_ms, 500),
        (p80_ms, above_p80 / 0.2 - p80_ms, 200),
        (p95_ms, above_p95 / 0.05 - p95_ms, 50),
        (p99_ms * LATE, f64::INFINITY, 20),
    ];
    times
        .into_iter()
        .find(|(_, left, share)| *left > second_ms && affordable(*share))
        .map(|(after, ..)| after)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sandstorm_catalog::Catalog;
    use sandstorm_types::Capabilities;

    use super::*;
    use crate::{Decision, Knowledge, Moment, Objective, Outcome, OutcomeResult, choose};

    fn place(name: &str) -> Candidate {
        let entry = Catalog::embedded().get(name).unwrap().clone();
        Candidate::new(name, Capabilities::default(), Arc::new(entry))
    }

    fn request() -> RouteRequest {
        RouteRequest { objective: Objective::Fastest, ..RouteRequest::default() }
    }

    /// The first place is quick but for three in a hundred, the second one steady.
    fn decided(slow_ms: u64) -> (Vec<Candidate>, Decision) {
        let (places, mut knowledge) = (vec![place("daytona"), place("e2b")], Knowledge::default());
        for n in 0..100 {
            for (candidate, ms) in places.iter().zip([if n % 33 == 0 { slow_ms } else { 100 }, 600]) {
                let result = OutcomeResult::Ready { after: Duration::from_millis(ms) };
                knowledge
                    .observe(&Outcome { key: candidate.key(&Default::default()), result }, Moment::START);
            }
        }
        let decision = choose(&request(), &places, &knowledge, 1.0, Moment::START);
        (places, decision)
    }

    fn plan(slow_ms: u64, rules: &HedgeRules) -> Option<HedgePlan> {
        let (places, decision) = decided(slow_ms);
        assert_eq!(decision.ranked[0].provider, "daytona");
        HedgePlan::new(&request(), &decision.ranked[0], &decision.ranked[1], &places[1], rules)
    }

    #[test]
    fn a_long_tail_is_hedged_by_a_steady_second() {
        let plan = plan(8000, &HedgeRules::default()).unwrap();
        assert_eq!(plan.provider, "e2b");
        assert!(plan.after < Duration::from_millis(300), "{plan:?}");
        assert!(plan.most_cost.is_positive() && plan.most_cost < Usd::micros(100), "{plan:?}");
    }

    #[test]
    fn a_short_tail_is_hedged_late_and_without_money_not_at_all() {
        let late = plan(110, &HedgeRules::default()).unwrap();
        assert!(
            late.after > Duration::from_millis(120) && late.after < Duration::from_millis(400),
            "{late:?}"
        );
        let poor = HedgeRules { most_cost: Usd::micros(1), ..HedgeRules::default() };
        assert_eq!(plan(8000, &poor), None);
        let stingy = HedgeRules { most_cost_permille: 0, ..HedgeRules::default() };
        assert_eq!(plan(8000, &stingy), None);
    }
}
