//! The router as an arm: the same calls that a server makes.

use std::time::Duration;

use sandstorm_catalog::Usd;
use sandstorm_types::{ErrorKind, Retry};

use super::figures::Collected;
use super::options::{Options, Policy};
use super::world::{Drawn, World, WorldDay};
use crate::failover::{
    AttemptRules, ErrorFamily, FailedAttempt, HedgePlan, HedgeRules, Next, SoFar, Started,
};
use crate::prediction::millis;
use crate::{ArmKey, Decision, Moment, Observed, RouteRequest, Router, WorkloadClass};

pub(super) struct Routed {
    router: Router,
    request: RouteRequest,
    hedged: bool,
    seed: u64,
    failure: Duration,
    work_ms: f64,
    probes: u32,
}

/// What one attempt came to.
struct Attempted {
    ms: f64,
    ready: bool,
    cost: Usd,
}

/// Probes in one pause between two requests.
const MOST_PROBES: u32 = 3;
/// How long a probe uses its sandbox.
const PROBE_MS: f64 = 500.0;

impl Routed {
    pub(super) fn new(policy: Policy, seed: u64, options: &Options) -> Self {
        let request = RouteRequest {
            objective: policy.objective(),
            class: WorkloadClass::new(options.mode.name()),
            demand: options.demand.clone(),
            work: options.span(),
            cpu_permille: options.cpu_permille,
            ..RouteRequest::default()
        };
        Self {
            router: Router::new(options.settings, seed),
            request,
            hedged: policy == Policy::Fastest,
            seed,
            failure: options.failure_time,
            work_ms: options.work.as_secs_f64() * 1000.0,
            probes: 0,
        }
    }

    pub(super) fn probe(&mut self, world: &World, day: &WorldDay, number: u32, collected: &mut Collected) {
        let now = world.moment(day, number);
        for _ in 0..MOST_PROBES {
            let Some(probe) = self.router.plan_probe(&self.request, &day.candidates, now) else { return };
            if !self.router.attempt_begins(&probe.provider, now) {
                return;
            }
            self.probes = self.probes.wrapping_add(1);
            let drawn = world.attempt(self.seed, day, &probe.provider, Drawn::Probe(self.probes));
            let billed = drawn.map_or(self.failure_ms(), |ms| ms + PROBE_MS);
            collected.probe(world.cost(&probe.provider, billed));
            self.observe(&probe.provider, drawn, now);
        }
    }

    pub(super) fn serve(&mut self, world: &World, day: &WorldDay, number: u32, collected: &mut Collected) {
        let start = world.moment(day, number);
        let decision = self.router.decide(&self.request, &day.candidates, start);
        self.router.request_begins(&decision);
        let (mut took_ms, mut cost, mut attempts, mut served) = (0.0, Usd::ZERO, 0, false);
        for (turn, ranked) in decision.ranked.iter().enumerate() {
            let now = start.after(millis(took_ms));
            if !self.router.attempt_begins(&ranked.provider, now) {
                continue;
            }
            attempts += 1;
            let hedge = self.hedge(day, &decision, turn);
            let attempted = self.attempt(world, day, &ranked.provider, hedge.as_ref(), number, now);
            took_ms += attempted.ms;
            cost += attempted.cost;
            served = attempted.ready;
            let places_left = decision.ranked.len() - turn - 1;
            if served || !self.goes_on(attempts, places_left, start.after(millis(took_ms))) {
                break;
            }
        }
        self.router.request_ended(&decision, took_ms, cost);
        collected.request(took_ms, served, attempts, cost);
    }

    /// Only the first place is hedged, by the second.
    fn hedge(&self, day: &WorldDay, decision: &Decision, turn: usize) -> Option<HedgePlan> {
        let (first, second) = (decision.ranked.first()?, decision.ranked.get(1)?);
        let candidate = day.candidates.iter().find(|candidate| candidate.provider == second.provider)?;
        let wanted = self.hedged && turn == 0;
        wanted
            .then(|| HedgePlan::new(&self.request, first, second, candidate, &HedgeRules::default()))
            .flatten()
    }

    fn attempt(
        &mut self,
        world: &World,
        day: &WorldDay,
        provider: &str,
        hedge: Option<&HedgePlan>,
        number: u32,
        now: Moment,
    ) -> Attempted {
        let first = world.attempt(self.seed, day, provider, Drawn::Request(number));
        let first_ms = first.unwrap_or(self.failure_ms());
        self.observe(provider, first, now);
        let run = |provider: &str, ms: f64| world.cost(provider, ms + self.work_ms);
        let alone = Attempted {
            ms: first_ms,
            ready: first.is_some(),
            cost: if first.is_some() { run(provider, first_ms) } else { world.cost(provider, first_ms) },
        };
        let after_ms = hedge.map_or(f64::INFINITY, |plan| plan.after.as_secs_f64() * 1000.0);
        let Some(plan) = hedge.filter(|_| first_ms > after_ms) else { return alone };
        let later = now.after(plan.after);
        if !self.router.attempt_begins(&plan.provider, later) {
            return alone;
        }
        let second = world.attempt(self.seed, day, &plan.provider, Drawn::Request(number));
        self.observe(&plan.provider, second, later);
        let second_ms = second.unwrap_or(self.failure_ms());
        let second_wins = second.is_some() && (first.is_none() || after_ms + second_ms < first_ms);
        if second_wins {
            // The first is let come to its end, so that its time is known, and destroyed then.
            let cost = world.cost(provider, first_ms) + world.cost(&plan.provider, second_ms + self.work_ms);
            return Attempted { ms: after_ms + second_ms, ready: true, cost };
        }
        // Both failed, or the first was ready first: it may be the later of two failures that counts.
        let ms = if alone.ready { first_ms } else { first_ms.max(after_ms + second_ms) };
        Attempted { ms, cost: alone.cost + world.cost(&plan.provider, second_ms), ..alone }
    }

    fn goes_on(&mut self, attempts: u32, places_left: usize, now: Moment) -> bool {
        let failed = FailedAttempt {
            kind: ErrorKind::Provider,
            family: None,
            retry: Retry::Elsewhere,
            started: Started::Never,
            retry_after: None,
        };
        let so_far = SoFar { attempts, attempts_here: 1, places_left, time_left: None };
        self.router.next(&failed, &AttemptRules::default(), so_far, now) == Next::Elsewhere
    }

    fn observe(&mut self, provider: &str, drawn: Option<f64>, now: Moment) {
        let class = self.request.class.clone();
        let key = ArmKey { provider: provider.to_owned(), region: None, class };
        let (observed, after) = match drawn {
            Some(ms) => (Observed::Ready { after: millis(ms) }, millis(ms)),
            // The trace does not say how long it took, so the router is not told either.
            None => {
                let family = ErrorFamily::Failure;
                (Observed::Failed { family, after: None, retry_after: None }, self.failure)
            }
        };
        self.router.attempt_observed(&key, observed, now.after(after));
        self.router.attempt_ends(provider);
    }

    fn failure_ms(&self) -> f64 {
        self.failure.as_secs_f64() * 1000.0
    }
}
