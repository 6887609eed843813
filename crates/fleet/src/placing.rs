//! Making a sandbox somewhere: the best member first, the next one when that fails, and nothing left behind.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use sandstorm_catalog::Usd;
use sandstorm_provider::{CreateOptions, Error, HostMount, OpContext, Placement, Result, Sandbox};
use sandstorm_router::failover::{FailedAttempt, Next, SoFar, Started};
use sandstorm_router::{ArmKey, Candidate, Decision, ErrorFamily, Observed, Ranked, RouteRequest};
use sandstorm_types::{Attempt, ErrorKind, Retry, SandboxSpec};

use crate::fleet::Fleet;
use crate::homes::Place;
use crate::{nowhere, portable};

/// Trees of this machine that are made only for a place that can show them.
#[async_trait]
pub trait Trees: Send + Sync {
    /// Asked before each attempt at such a place, so what was made for one is given to the next.
    async fn make(&self, cx: &OpContext) -> Result<Vec<HostMount>>;
}

impl Fleet {
    /// Makes a sandbox as [`sandstorm_provider::Provider::create`] does, with trees that are made when it turns out that it
    /// comes here.
    pub async fn create_with(
        &self,
        cx: &OpContext,
        spec: &SandboxSpec,
        options: &CreateOptions,
        trees: &dyn Trees,
    ) -> Result<Sandbox> {
        let request = self.request(spec, options.routing.as_deref());
        self.place_with(cx, spec, options, &request, Some(trees)).await
    }

    /// Makes a sandbox where this request should go. The result says where it is and what was tried.
    ///
    /// Nothing of a caller's runs while a sandbox is made, so one that could not be made here may be made there.
    pub async fn place(
        &self,
        cx: &OpContext,
        spec: &SandboxSpec,
        options: &CreateOptions,
        request: &RouteRequest,
    ) -> Result<Sandbox> {
        self.place_with(cx, spec, options, request, None).await
    }

    async fn place_with(
        &self,
        cx: &OpContext,
        spec: &SandboxSpec,
        options: &CreateOptions,
        request: &RouteRequest,
        trees: Option<&dyn Trees>,
    ) -> Result<Sandbox> {
        let candidates = self.candidates(spec, options);
        let decision = {
            let (mut router, now) = (self.router(), self.now());
            let decision = router.decide(request, &candidates, now);
            router.request_begins(&decision);
            decision
        };
        if decision.ranked.is_empty() {
            return Err(nowhere::fits(&decision));
        }
        let placing = Placing {
            fleet: self,
            cx,
            spec,
            options,
            trees,
            request,
            candidates,
            decision: &decision,
            attempts: Vec::new(),
            reasons: Vec::new(),
            extra: Usd::ZERO,
        };
        placing.run().await
    }
}

/// One creation on its way through the ranking.
pub(crate) struct Placing<'a> {
    pub(crate) fleet: &'a Fleet,
    pub(crate) cx: &'a OpContext,
    pub(crate) spec: &'a SandboxSpec,
    pub(crate) options: &'a CreateOptions,
    pub(crate) trees: Option<&'a dyn Trees>,
    pub(crate) request: &'a RouteRequest,
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) decision: &'a Decision,
    pub(crate) attempts: Vec<Attempt>,
    /// What those said that failed.
    pub(crate) reasons: Vec<String>,
    /// What was begun beside it costs at most.
    pub(crate) extra: Usd,
}

/// One attempt that is over.
pub(crate) struct Tried {
    pub(crate) attempt: Attempt,
    pub(crate) made: Result<Sandbox>,
}

impl<'a> Placing<'a> {
    async fn run(mut self) -> Result<Sandbox> {
        let began = Instant::now();
        let (mut failure, mut done) = (None, 0);
        if let Some(plan) = self.hedge()
            && let Some(raced) = self.race(&plan).await
        {
            match raced.made {
                Ok((sandbox, rank)) => return self.made(sandbox, rank, began),
                Err(error) => {
                    done = raced.ranks;
                    let next = self.next(&error, self.so_far(done, 1));
                    failure = Some(error);
                    if matches!(next, Next::GiveUp { .. }) {
                        return Err(self.failed(failure));
                    }
                }
            }
        }
        for rank in done..self.decision.ranked.len() {
            let Some((place, ranked)) = self.ranked(rank) else { continue };
            let mut here = 0;
            loop {
                if !self.fleet.router().attempt_begins(&ranked.provider, self.fleet.now()) {
                    break;
                }
                here += 1;
                let tried = self.attempt(place, ranked).await;
                let error = match self.note(tried) {
                    Ok(sandbox) => return self.made(sandbox, rank, began),
                    Err(error) => error,
                };
                let next = self.next(&error, self.so_far(rank + 1, here));
                failure = Some(error);
                match next {
                    Next::Elsewhere => break,
                    Next::Here { after } => {
                        let pause = async {
                            tokio::time::sleep(after).await;
                            Ok(())
                        };
                        if let Err(error) = self.cx.run("create", pause).await {
                            return Err(error.with_attempts(self.attempts));
                        }
                    }
                    Next::GiveUp { .. } => return Err(self.failed(failure)),
                }
            }
        }
        Err(self.failed(failure))
    }

    /// The answer when nothing worked. Whoever gave up hears just that.
    fn failed(&mut self, failure: Option<Error>) -> Error {
        let error = match (self.cx.check("create"), failure) {
            (Err(_), Some(error)) => error,
            (_, failure) => nowhere::worked(failure, &self.reasons),
        };
        error.with_attempts(std::mem::take(&mut self.attempts))
    }

    /// Remembers what was tried and gives what came of it.
    pub(crate) fn note(&mut self, tried: Tried) -> Result<Sandbox> {
        let Tried { attempt, made } = tried;
        if let Err(error) = &made {
            self.reasons.push(format!("{}: {}", attempt.provider, error.message()));
        }
        self.attempts.push(attempt);
        made
    }

    pub(crate) fn ranked(&self, rank: usize) -> Option<(Place, &'a Ranked)> {
        let ranked = self.decision.ranked.get(rank)?;
        Some((self.fleet.place_named(&ranked.provider)?, ranked))
    }

    /// How far it has come: so many ranks are over, and so many attempts were made at the last one.
    fn so_far(&self, ranks: usize, attempts_here: u32) -> SoFar {
        SoFar {
            attempts: u32::try_from(self.attempts.len()).unwrap_or(u32::MAX),
            attempts_here,
            places_left: self.decision.ranked.len().saturating_sub(ranks),
            time_left: self.cx.remaining(),
        }
    }

    pub(crate) async fn attempt(&self, place: Place, ranked: &Ranked) -> Tried {
        let (fleet, id) = (self.fleet, self.options.id);
        let provider = &fleet.members[place].provider;
        let can = provider.capabilities();
        let (spec, mut options) =
            (portable::spec(can, self.spec, self.options), portable::options(can, self.options));
        if let Some(trees) = self.trees.filter(|_| can.host_trees) {
            let (began, made) = (Instant::now(), trees.make(self.cx).await);
            match made {
                Ok(mounts) => options.mounts.extend(mounts),
                Err(error) => return self.no_trees(ranked, began, error),
            }
        }
        fleet.homes.trying(id, place);
        // The next one needs time too.
        let patience = self
            .cx
            .remaining()
            .map_or(fleet.settings.patience, |left| fleet.settings.patience.min(left.mul_f64(0.6)));
        let cx = self.cx.child().with_timeout(patience);
        let began = Instant::now();
        let made = provider.create(&cx, &spec, options).await;
        // Too late for our patience is not too late for the caller.
        let gave_up = self.cx.check("create").is_err();
        let made = made.map_err(|error| match error.kind() {
            ErrorKind::Timeout if !gave_up => error.with_retry(Retry::Elsewhere),
            _ => error,
        });
        let (took, key) = (began.elapsed(), self.key(ranked));
        let outcome = made.as_ref().map_or_else(|error| error.kind().code(), |_| "ok");
        let labels = [("provider", ranked.provider.clone()), ("outcome", outcome.to_owned())];
        metrics::counter!("sandstorm_route_attempts_total", &labels).increment(1);
        metrics::histogram!("sandstorm_route_create_seconds", "provider" => ranked.provider.clone())
            .record(took.as_secs_f64());
        let attempt = Attempt {
            provider: ranked.provider.clone(),
            outcome: outcome.to_owned(),
            ms: took.as_secs_f64() * 1000.0,
            sandbox: made.as_ref().map_or_else(|error| !error.is_not_started(), |_| true).then_some(id),
        };
        let mut router = fleet.router();
        match &made {
            Ok(_) => router.attempt_observed(&key, Observed::Ready { after: took }, fleet.now()),
            Err(error) => {
                router.attempt_observed(&key, observed(error, took, gave_up), fleet.now());
                router.attempt_ends(&ranked.provider);
            }
        }
        drop(router);
        let made = made.inspect_err(|error| self.clean_up(place, error));
        Tried { attempt, made }
    }

    /// What comes of an attempt before which something was to be made here. That says nothing about the place.
    fn no_trees(&self, ranked: &Ranked, began: Instant, error: Error) -> Tried {
        let (fleet, key) = (self.fleet, self.key(ranked));
        let mut router = fleet.router();
        router.attempt_observed(&key, Observed::Nothing, fleet.now());
        router.attempt_ends(&ranked.provider);
        let attempt = Attempt {
            provider: ranked.provider.clone(),
            outcome: error.kind().code().to_owned(),
            ms: began.elapsed().as_secs_f64() * 1000.0,
            sandbox: None,
        };
        Tried { attempt, made: Err(error.with_not_started()) }
    }

    fn clean_up(&self, place: Place, error: &Error) {
        if error.is_not_started() {
            self.fleet.homes.clean(self.options.id, place);
        } else {
            self.fleet.sweep(self.cx.tenant(), self.options.id, place);
        }
    }

    fn next(&self, error: &Error, so_far: SoFar) -> Next {
        let failed = FailedAttempt {
            kind: error.kind(),
            family: None,
            retry: error.retry(),
            started: Started::Never,
            retry_after: error.retry_after(),
        };
        self.fleet.router().next(&failed, &self.fleet.settings.attempts, so_far, self.fleet.now())
    }

    fn made(self, mut sandbox: Sandbox, rank: usize, began: Instant) -> Result<Sandbox> {
        let fleet = self.fleet;
        let Some((place, ranked)) = self.ranked(rank) else {
            return Err(Error::new(ErrorKind::Internal, "a sandbox was made nowhere"));
        };
        fleet.homes.settle(self.options.id, place);
        let (took, cost) =
            (began.elapsed().as_secs_f64() * 1000.0, ranked.prediction.cost.expected + self.extra);
        let regret = {
            let mut router = fleet.router();
            router.request_ended(self.decision, took, cost);
            *router.regret()
        };
        metrics::gauge!("sandstorm_route_regret_milliseconds").set(regret.latency_ms);
        metrics::gauge!("sandstorm_route_regret_dollars").set(regret.cost.as_f64());
        metrics::counter!("sandstorm_route_choices_total", "provider" => ranked.provider.clone())
            .increment(1);
        let provider = &fleet.members[place].provider;
        sandbox.placement = Some(Placement {
            info: provider.info().clone(),
            reason: self.decision.why.join(". "),
            attempts: self.attempts,
            elsewhere: !provider.capabilities().host_trees,
            cost,
        });
        Ok(sandbox)
    }

    pub(crate) fn key(&self, ranked: &Ranked) -> ArmKey {
        let class = self.request.class.clone();
        ArmKey { provider: ranked.provider.clone(), region: ranked.region.clone(), class }
    }
}

/// What a failed creation says about its provider.
/// Whoever gave up says nothing about it.
fn observed(error: &Error, took: Duration, gave_up: bool) -> Observed {
    match ErrorFamily::of(error.kind()) {
        Some(family) if !gave_up && error.blames_provider() => {
            Observed::Failed { family, after: Some(took), retry_after: error.retry_after() }
        }
        _ => Observed::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tenant that has all of its disk must not close a place for the others.
    #[test]
    fn a_refusal_of_one_request_says_nothing_about_the_place() {
        for kind in [ErrorKind::Quota, ErrorKind::Capacity] {
            let refused = || Error::new(kind, "no disk is left for this tenant");
            let blamed = observed(&refused(), Duration::ZERO, false);
            assert!(matches!(blamed, Observed::Failed { .. }), "{kind:?}: {blamed:?}");
            let alone = refused().with_blameless_provider();
            assert_eq!(observed(&alone, Duration::ZERO, false), Observed::Nothing, "{kind:?}");
            let said = nowhere::worked(Some(alone), &[]);
            assert_eq!((said.kind(), said.message()), (kind, "no disk is left for this tenant"));
        }
    }
}
