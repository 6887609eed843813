//! A second creation beside a slow one, if that costs little. Only creations are hedged: no code has run when one of the two is
//! destroyed.

use std::time::Duration;

use sandstorm_catalog::{Span, Usd};
use sandstorm_types::duration;
use serde::{Deserialize, Serialize};

use crate::prediction::millis;
use crate::{Candidate, Ranked, RouteRequest};

/// When a hedge is worth it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HedgeRules {
    /// What the loser may cost, whatever the run costs.
    pub most_cost: Usd,
    /// What the loser may cost, in thousandths of the run.
    pub most_cost_permille: u32,
    /// Nobody notices less.
    #[serde(with = "duration::seconds")]
    pub least_wait: Duration,
}

impl Default for HedgeRules {
    fn default() -> Self {
        let least_wait = Duration::from_millis(50);
        Self { most_cost: Usd::micros(1000), most_cost_permille: 500, least_wait }
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
    /// The plan for a ranking's first place with its second, where that is worth it: the second one would win against the
    /// slowest of the first, and the loser is cheap.
    pub fn new(
        request: &RouteRequest,
        first: &Ranked,
        second: &Ranked,
        candidate: &Candidate,
        rules: &HedgeRules,
    ) -> Option<Self> {
        let after = millis(first.prediction.p95_ms).max(rules.least_wait);
        let gain = first.prediction.p99_ms - after.as_secs_f64() * 1000.0 - second.prediction.p95_ms;
        if gain <= 0.0 {
            return None;
        }
        // The second one loses when it is not ready either; it is destroyed as soon as it is.
        let loser = Span::exactly(millis(second.prediction.p95_ms));
        let pinned = candidate.region.is_some();
        let cost = candidate.entry.estimate(&request.demand, loser, 1000, pinned).ok()?.high;
        let share = first.prediction.cost.expected.permille(rules.most_cost_permille);
        let cheap = cost <= rules.most_cost && cost <= share;
        cheap.then(|| Self {
            provider: second.provider.clone(),
            region: second.region.clone(),
            after,
            most_cost: cost,
        })
    }
}
