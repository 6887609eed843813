//! What changes between two decisions, kept together: knowledge, breakers, limits, holds, budgets.

mod saved;

use std::collections::BTreeMap;
use std::time::Duration;

use sandstorm_catalog::Usd;
use sandstorm_types::duration;
use serde::{Deserialize, Serialize};

pub use saved::NotResumed;

use crate::canary::{self, CanaryBudget, CanaryRules, Probe};
use crate::choose::choose;
use crate::failover::{
    AttemptRules, Breakers, ConcurrencyLimit, ConcurrencyRules, Ended, ErrorFamily, FailedAttempt, Holds,
    Next, Outliers, RetryBudget, RetryBudgetRules, SoFar,
};
use crate::{
    ArmKey, Candidate, Decision, Exclusion, Health, Knowledge, Load, Memory, Moment, Outcome, OutcomeResult,
    Random, Regret, RouteRequest, SteadyClock,
};

/// What an operator can change.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    pub memory: Memory,
    /// By how many deviations worse than believed each place is taken to be for users' requests.
    pub caution: f64,
    pub canaries: CanaryRules,
    pub retries: RetryBudgetRules,
    /// For providers without limits of their own.
    pub concurrency: ConcurrencyRules,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            memory: Memory::default(),
            caution: 0.5,
            canaries: CanaryRules::default(),
            retries: RetryBudgetRules::default(),
            concurrency: ConcurrencyRules::default(),
        }
    }
}

/// What came of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Observed {
    /// The sandbox can be used.
    Ready {
        #[serde(with = "duration::seconds")]
        after: Duration,
    },
    /// The provider failed.
    Failed {
        family: ErrorFamily,
        /// Time that it took, where it was measured.
        #[serde(with = "duration::optional_seconds", default)]
        after: Option<Duration>,
        #[serde(with = "duration::optional_seconds", default)]
        retry_after: Option<Duration>,
    },
    /// It says nothing about the provider: the caller went away, or the request was wrong.
    Nothing,
}

/// The router. Its moments may come from any clock, even one that jumps.
#[derive(Debug, Clone)]
pub struct Router {
    settings: Settings,
    clock: SteadyClock,
    knowledge: Knowledge,
    breakers: Breakers,
    outliers: Outliers,
    holds: Holds,
    limits: BTreeMap<String, ConcurrencyLimit>,
    retries: RetryBudget,
    canaries: CanaryBudget,
    regret: Regret,
    random: Random,
}

impl Router {
    pub fn new(settings: Settings, seed: u64) -> Self {
        Self {
            settings,
            clock: SteadyClock::default(),
            knowledge: Knowledge::new(settings.memory),
            breakers: Breakers::default(),
            outliers: Outliers::default(),
            holds: Holds::default(),
            limits: BTreeMap::new(),
            retries: RetryBudget::new(settings.retries),
            canaries: CanaryBudget::new(settings.canaries),
            regret: Regret::default(),
            random: Random::new(seed),
        }
    }

    pub fn knowledge(&self) -> &Knowledge {
        &self.knowledge
    }

    pub fn regret(&self) -> &Regret {
        &self.regret
    }

    /// Where a request should go, and where next. Nothing is booked: it can be asked to explain as often as one likes.
    pub fn decide(&mut self, request: &RouteRequest, candidates: &[Candidate], now: Moment) -> Decision {
        let now = self.clock.at(now);
        let mut candidates = self.with_health(candidates, now);
        let decision = choose(request, &candidates, &self.knowledge, self.settings.caution, now);
        if !decision.ranked.is_empty() || !readmit(&decision, &mut candidates) {
            return decision;
        }
        choose(request, &candidates, &self.knowledge, self.settings.caution, now)
    }

    /// How a provider is at present.
    pub fn health(&mut self, provider: &str, now: Moment) -> Health {
        let now = self.clock.at(now);
        self.health_at(provider, now)
    }

    fn health_at(&self, provider: &str, now: Moment) -> Health {
        let breaker = self.breakers.health(provider, now);
        match (self.holds.held_for(provider, now), self.outliers.out_for(provider, now)) {
            _ if matches!(breaker, Health::Open { .. }) => breaker,
            (Some(retry_in), _) => Health::Held { retry_in },
            (None, Some(retry_in)) => Health::Ejected { retry_in },
            (None, None) => breaker,
        }
    }

    fn with_health(&self, candidates: &[Candidate], now: Moment) -> Vec<Candidate> {
        let probed = self.settings.canaries.most >= 1.0;
        let filled = |candidate: &Candidate| {
            // What the caller knows to be down stays down.
            let health = match (candidate.health, self.health_at(&candidate.provider, now)) {
                // Without probes somebody else has to find out, in its turn and few at a time.
                (Health::Up, Health::Probing { .. }) if !probed => Health::Up,
                (Health::Up, health) => health,
                (known, _) => known,
            };
            let learned = self.limits.get(&candidate.provider);
            let limit = match (candidate.load.limit, learned.map(ConcurrencyLimit::limit)) {
                (Some(configured), Some(learned)) => Some(configured.min(learned)),
                (configured, learned) => configured.or(learned),
            };
            let in_use = candidate.load.in_use.max(learned.map_or(0, ConcurrencyLimit::in_use));
            Candidate { health, load: Load { in_use, limit }, ..candidate.clone() }
        };
        candidates.iter().map(filled).collect()
    }

    /// A user's request is about to be served as decided; call it once for each.
    pub fn request_begins(&mut self, decision: &Decision) {
        self.retries.pay_in();
        self.canaries
            .pay_in(decision.winner().map(|winner| winner.prediction.cost.expected).unwrap_or_default());
    }

    /// An attempt begins, a probe of ours or a user's; `false`: somebody else is trying that provider already, take the next.
    pub fn attempt_begins(&mut self, provider: &str, now: Moment) -> bool {
        let now = self.clock.at(now);
        let may = self.breakers.begin(provider, now);
        if may {
            let rules = self.settings.concurrency;
            self.limits.entry(provider.to_owned()).or_insert_with(|| ConcurrencyLimit::new(rules)).begin();
        }
        may
    }

    /// What came of an attempt is known. Its sandbox, if there is one, is still there.
    pub fn attempt_observed(&mut self, key: &ArmKey, observed: Observed, now: Moment) {
        let now = self.clock.at(now);
        let provider = key.provider.as_str();
        let mut learn = |result| self.knowledge.observe(&Outcome { key: key.clone(), result }, now);
        let ended = match observed {
            Observed::Ready { after } => {
                learn(OutcomeResult::Ready { after });
                self.breakers.succeeded(provider);
                self.outliers.observe(provider, true, now);
                Ended::Fine
            }
            Observed::Failed { family, after, retry_after } => {
                learn(OutcomeResult::Failed { after });
                self.breakers.failed(provider, family, now);
                self.outliers.observe(provider, false, now);
                if let Some(span) = retry_after {
                    self.holds.hold(provider, span, now);
                }
                if family.is_overload() { Ended::Overloaded } else { Ended::Otherwise }
            }
            Observed::Nothing => {
                self.breakers.abandoned(provider);
                Ended::Otherwise
            }
        };
        if let Some(limit) = self.limits.get_mut(provider) {
            limit.learned(ended, now);
        }
    }

    /// What came of work in a sandbox that was ready there. `Ready`: the provider did its part, however the work ended.
    pub fn work_observed(&mut self, key: &ArmKey, observed: Observed, now: Moment) {
        let now = self.clock.at(now);
        let provider = key.provider.as_str();
        match observed {
            Observed::Ready { .. } => self.breakers.worked(provider),
            Observed::Failed { family, after, retry_after } => {
                let result = OutcomeResult::Failed { after };
                self.knowledge.observe(&Outcome { key: key.clone(), result }, now);
                self.breakers.work_failed(provider, family, now);
                self.outliers.observe(provider, false, now);
                if let Some(span) = retry_after {
                    self.holds.hold(provider, span, now);
                }
                if let Some(limit) = self.limits.get_mut(provider).filter(|_| family.is_overload()) {
                    limit.learned(Ended::Overloaded, now);
                }
            }
            Observed::Nothing => {}
        }
    }

    /// An attempt is over: it failed, or its sandbox is gone.
    pub fn attempt_ends(&mut self, provider: &str) {
        if let Some(limit) = self.limits.get_mut(provider) {
            limit.end();
        }
    }

    /// Whether a failed attempt may be made again, and where; one that may is taken from the budget.
    pub fn next(&mut self, failed: &FailedAttempt, rules: &AttemptRules, so_far: SoFar, now: Moment) -> Next {
        let now = self.clock.at(now);
        failed.next(rules, so_far, &mut self.retries, now)
    }

    /// A request was served: `took_ms` and `paid` are all of its attempts, `best` what its decision believed.
    pub fn request_ended(&mut self, decision: &Decision, took_ms: f64, paid: Usd) {
        let best_ms =
            decision.ranked.iter().map(|ranked| ranked.prediction.ready_ms.expected).min_by(f64::total_cmp);
        let best_cost = decision.ranked.iter().map(|ranked| ranked.prediction.cost.expected).min();
        if let (Some(best_ms), Some(best_cost)) = (best_ms, best_cost) {
            self.regret.add(took_ms, best_ms, paid, best_cost);
        }
    }

    /// Whom to probe now, if anybody; to be asked from time to time, and after each probe.
    pub fn plan_probe(
        &mut self,
        request: &RouteRequest,
        candidates: &[Candidate],
        now: Moment,
    ) -> Option<Probe> {
        let now = self.clock.at(now);
        let candidates = self.with_health(candidates, now);
        let (knowledge, budget) = (&self.knowledge, &mut self.canaries);
        canary::plan(request, &candidates, knowledge, budget, &mut self.random, now)
    }
}

/// Lets those in again who only sit out, when nobody else is left; `false`: there are none.
fn readmit(decision: &Decision, candidates: &mut [Candidate]) -> bool {
    let ejected =
        |reason: &Exclusion| matches!(reason, Exclusion::Unhealthy { health: Health::Ejected { .. } });
    let mut any = false;
    for place in decision.excluded.iter().filter(|place| place.reasons.iter().all(ejected)) {
        let same = |candidate: &&mut Candidate| {
            candidate.provider == place.provider && candidate.region == place.region
        };
        for candidate in candidates.iter_mut().filter(same) {
            candidate.health = Health::Up;
            any = true;
        }
    }
    any
}

#[cfg(test)]
mod tests;
