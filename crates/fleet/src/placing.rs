//! Making a sandbox somewhere: the best member first, the next one when that fails, and nothing left behind.

use std::time::{Duration, Instant};

use sandstorm_provider::{CreateOptions, Error, OpContext, Placement, Result, Sandbox};
use sandstorm_router::failover::{FailedAttempt, Next, SoFar, Started};
use sandstorm_router::{ArmKey, Decision, ErrorFamily, Observed, Ranked, RouteRequest};
use sandstorm_types::{Attempt, ErrorKind, Retry, SandboxId, SandboxSpec};

use crate::fleet::Fleet;
use crate::homes::Place;
use crate::nowhere;

/// How often something that may be left at a member is tried to be removed, and how long in between.
const SWEEPS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
];

impl Fleet {
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
        let candidates = self.candidates(spec);
        let decision = {
            let (mut router, now) = (self.router(), self.now());
            let decision = router.decide(request, &candidates, now);
            router.request_begins(&decision);
            decision
        };
        if decision.ranked.is_empty() {
            return Err(nowhere::fits(&decision));
        }
        Placing { fleet: self, cx, spec, options, request, decision: &decision, attempts: Vec::new() }
            .run()
            .await
    }

    /// Removes what a failed creation may have left at a member, however long that takes.
    fn sweep(&self, cx: &OpContext, id: SandboxId, place: Place) {
        let provider = self.members[place].provider.clone();
        let (name, tenant) = (self.members[place].name().to_owned(), cx.tenant());
        self.tasks.start("sweep after a failed creation", async move {
            for pause in SWEEPS {
                tokio::time::sleep(pause).await;
                let cx = OpContext::new(tenant).with_timeout(Duration::from_secs(30));
                match provider.destroy(&cx, &id).await {
                    Ok(()) => return,
                    Err(error) => tracing::debug!(sandbox = %id, provider = name, %error, "not removed yet"),
                }
            }
            tracing::warn!(sandbox = %id, provider = name, "something may be left of a sandbox that could not be made");
        });
    }
}

/// One creation on its way through the ranking.
struct Placing<'a> {
    fleet: &'a Fleet,
    cx: &'a OpContext,
    spec: &'a SandboxSpec,
    options: &'a CreateOptions,
    request: &'a RouteRequest,
    decision: &'a Decision,
    attempts: Vec<Attempt>,
}

impl Placing<'_> {
    async fn run(mut self) -> Result<Sandbox> {
        let began = Instant::now();
        let mut failure = None;
        for (rank, ranked) in self.decision.ranked.iter().enumerate() {
            let Some(place) = self.fleet.place_named(&ranked.provider) else { continue };
            let mut here = 0;
            loop {
                if !self.fleet.router().attempt_begins(&ranked.provider, self.fleet.now()) {
                    break;
                }
                here += 1;
                let error = match self.attempt(place, ranked).await {
                    Ok(sandbox) => return Ok(self.made(sandbox, place, ranked, began)),
                    Err(error) => error,
                };
                let so_far = SoFar {
                    attempts: u32::try_from(self.attempts.len()).unwrap_or(u32::MAX),
                    attempts_here: here,
                    places_left: self.decision.ranked.len() - rank - 1,
                    time_left: self.cx.remaining(),
                };
                let next = self.next(&error, so_far);
                failure = Some(error);
                match next {
                    Next::Elsewhere => break,
                    Next::Here { after } => {
                        let pause = async {
                            tokio::time::sleep(after).await;
                            Ok(())
                        };
                        self.cx.run("create", pause).await?;
                    }
                    Next::GiveUp { .. } => return Err(nowhere::worked(failure, &self.attempts)),
                }
            }
        }
        Err(nowhere::worked(failure, &self.attempts))
    }

    async fn attempt(&mut self, place: Place, ranked: &Ranked) -> Result<Sandbox> {
        let (fleet, id) = (self.fleet, self.options.id);
        let provider = &fleet.members[place].provider;
        fleet.homes.trying(id, place);
        // The next one needs time too.
        let patience = self
            .cx
            .remaining()
            .map_or(fleet.settings.patience, |left| fleet.settings.patience.min(left.mul_f64(0.6)));
        let cx = self.cx.child().with_timeout(patience);
        let began = Instant::now();
        let made = provider.create(&cx, self.spec, self.options.clone()).await;
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
        self.attempts.push(Attempt {
            provider: ranked.provider.clone(),
            outcome: outcome.to_owned(),
            ms: took.as_secs_f64() * 1000.0,
        });
        let mut router = fleet.router();
        match &made {
            Ok(_) => router.attempt_observed(&key, Observed::Ready { after: took }, fleet.now()),
            Err(error) => {
                router.attempt_observed(&key, observed(error, took, gave_up), fleet.now());
                router.attempt_ends(&ranked.provider);
            }
        }
        drop(router);
        made.inspect_err(|error| self.clean_up(place, error))
    }

    fn clean_up(&self, place: Place, error: &Error) {
        if error.is_not_started() {
            self.fleet.homes.clean(self.options.id, place);
        } else {
            self.fleet.sweep(self.cx, self.options.id, place);
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

    fn made(self, mut sandbox: Sandbox, place: Place, ranked: &Ranked, began: Instant) -> Sandbox {
        let fleet = self.fleet;
        fleet.homes.settle(self.options.id, place);
        let took = began.elapsed().as_secs_f64() * 1000.0;
        fleet.router().request_ended(self.decision, took, ranked.prediction.cost.expected);
        metrics::counter!("sandstorm_route_choices_total", "provider" => ranked.provider.clone())
            .increment(1);
        sandbox.placement = Some(Placement {
            info: fleet.members[place].provider.info().clone(),
            reason: self.decision.why.join(" "),
            attempts: self.attempts,
        });
        sandbox
    }

    fn key(&self, ranked: &Ranked) -> ArmKey {
        let class = self.request.class.clone();
        ArmKey { provider: ranked.provider.clone(), region: ranked.region.clone(), class }
    }
}

/// What a failed creation says about its provider.
/// Whoever gave up says nothing about it.
fn observed(error: &Error, took: Duration, gave_up: bool) -> Observed {
    match ErrorFamily::of(error.kind()) {
        Some(family) if !gave_up => {
            Observed::Failed { family, after: Some(took), retry_after: error.retry_after() }
        }
        _ => Observed::Nothing,
    }
}
