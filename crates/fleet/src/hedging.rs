//! A second creation beside one that takes longer than it should. The loser is destroyed.

use sandstorm_provider::{Error, Sandbox};
use sandstorm_router::failover::HedgePlan;
use sandstorm_router::{Observed, Ranked};
use sandstorm_types::{Attempt, SandboxId};

use crate::homes::Place;
use crate::placing::{Placing, Tried};

/// How it went.
struct Run<'a> {
    /// The rank of what is last among those that were tried.
    winner: usize,
    tried: Vec<Tried>,
    loser: Option<(Place, &'a Ranked)>,
    /// Whether the second one was begun.
    beside: bool,
}

/// What came of a first place and a second one beside it.
pub(crate) struct Raced {
    /// The sandbox, and the rank of the place that it is at.
    pub(crate) made: Result<(Sandbox, usize), Error>,
    /// Ranks that were tried: the first, or the first two.
    pub(crate) ranks: usize,
}

impl Placing<'_> {
    /// The plan for the first two places, where it is worth it.
    pub(crate) fn hedge(&self) -> Option<HedgePlan> {
        let rules = self.fleet.settings.hedge?;
        // What is made for a place takes its time, which says nothing of how late the place is.
        if self.trees.is_some() {
            return None;
        }
        // Two at a time are for those to whom time is worth more than money.
        let weights = self.request.objective.weights();
        if weights.latency() <= weights.cost() {
            return None;
        }
        let [first, second, ..] = self.decision.ranked.as_slice() else { return None };
        let candidate = self.candidates.iter().find(|candidate| candidate.provider == second.provider)?;
        HedgePlan::new(self.request, first, second, candidate, &rules)
    }

    /// Tries the first place, and the second one beside it once that is late. `None`: somebody else is trying the first.
    pub(crate) async fn race(&mut self, plan: &HedgePlan) -> Option<Raced> {
        let (first, second) = (self.ranked(0)?, self.ranked(1)?);
        if !self.fleet.router().attempt_begins(&first.1.provider, self.fleet.now()) {
            return None;
        }
        let Run { winner, tried, loser, beside } = self.run_beside(plan, first, second).await;
        if let Some((place, ranked)) = loser {
            self.lose(place, ranked);
        }
        if beside {
            self.extra += plan.most_cost;
        }
        let mut last = None;
        for tried in tried {
            last = Some(self.note(tried));
        }
        let made = last?.map(|sandbox| (sandbox, winner));
        Some(Raced { made, ranks: 1 + usize::from(beside) })
    }

    async fn run_beside<'b>(
        &self,
        plan: &HedgePlan,
        first: (Place, &'b Ranked),
        second: (Place, &'b Ranked),
    ) -> Run<'b> {
        let fleet = self.fleet;
        let alone = |tried| Run { winner: 0, tried: vec![tried], loser: None, beside: false };
        let one = self.attempt(first.0, first.1);
        tokio::pin!(one);
        tokio::select! {
            biased;
            tried = &mut one => return alone(tried),
            () = tokio::time::sleep(plan.after) => {}
        }
        if !fleet.router().attempt_begins(&second.1.provider, fleet.now()) {
            return alone(one.await);
        }
        metrics::counter!("sandstorm_route_hedges_total", "provider" => second.1.provider.clone())
            .increment(1);
        let two = self.attempt(second.0, second.1);
        tokio::pin!(two);
        let (winner, tried, loser) = tokio::select! {
            tried = &mut one => match tried.made {
                Ok(_) => (0, vec![tried], Some(second)),
                Err(_) => (1, vec![tried, two.await], None),
            },
            tried = &mut two => match tried.made {
                Ok(_) => (1, vec![tried], Some(first)),
                Err(_) => (0, vec![tried, one.await], None),
            },
        };
        Run { winner, tried, loser, beside: true }
    }

    /// Takes back what was begun for nobody. It says nothing about its place.
    fn lose(&mut self, place: Place, ranked: &Ranked) {
        let (fleet, id): (_, SandboxId) = (self.fleet, self.options.id);
        let key = self.key(ranked);
        let mut router = fleet.router();
        router.attempt_observed(&key, Observed::Nothing, fleet.now());
        router.attempt_ends(&ranked.provider);
        drop(router);
        fleet.sweep(self.cx.tenant(), id, place);
        let provider = ranked.provider.clone();
        self.attempts.push(Attempt { provider, outcome: "hedged".to_owned(), ms: 0.0, sandbox: Some(id) });
    }
}
