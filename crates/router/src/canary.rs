//! Background probes: which place to try next so that users' requests need not find out.
//!
//! Exploration costs somebody time or money. Users' requests go where it is known to be good; whether it is better somewhere
//! else is asked by small runs of our own, within a budget of number and money. Whom to ask is decided by Thompson sampling:
//! for every place a possible truth is drawn from what is believed of it, and the best that is not where users go anyway is
//! probed. A place of which little was seen of late may be drawn far better than it is believed to be, and so gets its turn.

use std::time::Duration;

use sandstorm_catalog::{Span, Usd};
use serde::{Deserialize, Serialize};

use crate::choose::{choose, score};
use crate::prediction::millis;
use crate::{Candidate, Health, Knowledge, Moment, Random, RouteRequest, exclusion};

/// How much is probed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CanaryRules {
    /// Probes for each request of users.
    pub per_request: f64,
    /// And for each hour, so that there is something to go by before the first request.
    pub per_hour: f64,
    /// What is not used is kept up to this; there is as much at first.
    pub most: f64,
    /// What probes may cost, in thousandths of what users' requests are expected to cost.
    pub spend_permille: u32,
    /// And for each day besides.
    pub usd_per_day: Usd,
    /// What is not spent is kept up to this; there is as much at first.
    pub usd_most: Usd,
}

impl Default for CanaryRules {
    fn default() -> Self {
        Self {
            per_request: 0.05,
            per_hour: 1.0,
            most: 30.0,
            spend_permille: 10,
            usd_per_day: Usd::micros(200),
            usd_most: Usd::micros(20_000),
        }
    }
}

/// What is left to probe with.
#[derive(Debug, Clone, PartialEq)]
pub struct CanaryBudget {
    rules: CanaryRules,
    probes: f64,
    money: Usd,
    last: Moment,
}

const DAY: Duration = Duration::from_secs(86_400);

impl CanaryBudget {
    pub fn new(rules: CanaryRules) -> Self {
        Self { rules, probes: rules.most, money: rules.usd_most, last: Moment::START }
    }

    /// A user's request came, which will probably cost this.
    pub fn pay_in(&mut self, cost: Usd) {
        self.probes = (self.probes + self.rules.per_request).min(self.rules.most);
        self.money = (self.money + cost.permille(self.rules.spend_permille)).min(self.rules.usd_most);
    }

    pub fn refill(&mut self, now: Moment) {
        let elapsed = now.since(self.last);
        self.last = self.last.max(now);
        let probes = self.rules.per_hour * elapsed.as_secs_f64() / 3600.0;
        self.probes = (self.probes + probes).min(self.rules.most);
        let money = self.rules.usd_per_day.for_each(elapsed.as_micros(), DAY.as_micros());
        self.money = (self.money + money).min(self.rules.usd_most);
    }

    fn affords(&self, cost: Usd) -> bool {
        self.probes >= 1.0 && cost <= self.money
    }

    fn spend(&mut self, cost: Usd) {
        self.probes -= 1.0;
        self.money -= cost;
    }
}

/// A place to probe now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Probe {
    pub provider: String,
    pub region: Option<String>,
    /// What it will probably cost; it has been taken from the budget.
    pub cost: Usd,
    pub why: ProbeReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeReason {
    /// It failed and may have recovered.
    Recovery,
    /// Nothing was ever seen of it, so that what is expected of it is a guess.
    NeverSeen,
    /// It may be better than where users go.
    MayBeBetter,
}

/// How long a probe uses its sandbox.
const PROBE_WORK: Duration = Duration::from_millis(500);
/// Where users go for nothing, others are still asked now and then.
const LEAST_USUAL: Usd = Usd::micros(10);
/// More than any difference of scores.
const RECOVERY: f64 = 1e6;
const NEVER_SEEN: f64 = 1e5;

/// Whom to probe for requests such as this one, if anybody.
pub(crate) fn plan(
    request: &RouteRequest,
    candidates: &[Candidate],
    knowledge: &Knowledge,
    budget: &mut CanaryBudget,
    random: &mut Random,
    now: Moment,
) -> Option<Probe> {
    budget.refill(now);
    if !budget.affords(Usd::ZERO) {
        return None;
    }
    let decision = choose(request, candidates, knowledge, 0.0, now);
    let first = decision.winner().map(|winner| (winner.provider.clone(), winner.region.clone()));
    let to_beat = decision.winner().map_or(f64::INFINITY, |winner| winner.score);
    let fallback = decision.winner().map_or(0.0, |winner| winner.prediction.ready_ms.expected);
    let usual_cost = decision.winner().map(|winner| winner.prediction.cost.expected.max(LEAST_USUAL));
    let mut best: Option<(f64, Probe)> = None;
    for candidate in candidates {
        // In the same order for everybody, so that one place's state does not change another's chance.
        let belief = knowledge.belief(&candidate.key(&request.class), now);
        let ((typical, failure), luck) = (belief.sample(random), random.share());
        let recovers = matches!(candidate.health, Health::Probing { .. });
        // That it failed is known; the question is whether it still does, and what it would be worth if not.
        let failure = if recovers { 0.0 } else { failure };
        let drawn = (1.0 - failure) * typical + failure * (belief.failure_ms + fallback);
        let is_first = first
            .as_ref()
            .is_some_and(|(provider, region)| *provider == candidate.provider && *region == candidate.region);
        if (is_first && !recovers) || !exclusion::by_what_it_is(candidate, &request.constraints).is_empty() {
            continue;
        }
        let estimate = |span: Span| {
            let pinned = candidate.region.is_some();
            candidate.entry.estimate(&request.demand, span, request.cpu_permille, pinned).ok()
        };
        let ready = Span::exactly(millis(belief.mean_ms));
        let Some(run) = estimate(ready.then(request.work)) else { continue };
        let Some(probe) = estimate(ready.then(Span::exactly(PROBE_WORK))) else { continue };
        if !budget.affords(probe.expected) || constraint_on_money(request, run.expected) {
            continue;
        }
        // One that costs more than a user's run has its turn less often, so that it does not use up everybody's money.
        if usual_cost.is_some_and(|usual| luck * probe.expected.as_f64() > usual.as_f64()) {
            continue;
        }
        let pocket = run.expected.saturating_sub(candidate.free_credit);
        let value = score(&request.objective.weights(), drawn, pocket, failure.min(0.5));
        // A guess is no reason not to look: a place may be a thousand times faster than what one expects of anybody.
        let never_seen = !knowledge.has_seen(&candidate.provider, candidate.region.as_deref());
        if value >= to_beat && !never_seen {
            continue;
        }
        // Who would be worth it comes first when it may have recovered: until somebody has asked, users do not go there.
        let (value, why) = match (recovers, never_seen) {
            (true, _) => (value - RECOVERY, ProbeReason::Recovery),
            (false, true) => (value - NEVER_SEEN, ProbeReason::NeverSeen),
            (false, false) => (value, ProbeReason::MayBeBetter),
        };
        if best.as_ref().is_none_or(|(other, _)| value < *other) {
            let (provider, region) = (candidate.provider.clone(), candidate.region.clone());
            best = Some((value, Probe { provider, region, cost: probe.expected, why }));
        }
    }
    let (_, probe) = best?;
    budget.spend(probe.cost);
    Some(probe)
}

fn constraint_on_money(request: &RouteRequest, expected: Usd) -> bool {
    request.constraints.max_cost.is_some_and(|most| expected > most)
}

#[cfg(test)]
mod tests;
