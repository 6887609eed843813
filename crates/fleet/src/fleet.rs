//! The fleet itself: its members, what the router knows of them, and who holds what.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandstorm_catalog::{Demand, ProviderEntry, Span, Usage, Usd};
use sandstorm_provider::{CreateOptions, Error, Metered, OpContext, Provider, ProviderInfo, Result, Tasks};
use sandstorm_router::failover::{AttemptRules, HedgeRules};
use sandstorm_router::{Candidate, Constraints, Decision, Moment, RouteRequest, Router};
use sandstorm_types::{Capabilities, ErrorKind, ExecId, Limits, Routing, SandboxId, SandboxSpec};
use tokio::time::Instant;

use crate::homes::{Homes, Place};
use crate::member::Member;

/// What an operator can change.
#[derive(Debug, Clone)]
pub struct FleetSettings {
    pub router: sandstorm_router::Settings,
    /// For requests that say nothing.
    pub usual: RouteRequest,
    pub attempts: AttemptRules,
    /// How long one member may take to make a sandbox before the next one is asked.
    pub patience: Duration,
    /// When a second creation may be made beside a slow one; `None`: never.
    pub hedge: Option<HedgeRules>,
    /// What probes of our own are made from.
    pub probe: SandboxSpec,
    /// Younger ones may be on their way to be known: they are no orphans yet.
    pub orphan_age: Duration,
}

impl Default for FleetSettings {
    fn default() -> Self {
        Self {
            router: sandstorm_router::Settings::default(),
            usual: RouteRequest::default(),
            attempts: AttemptRules::default(),
            patience: Duration::from_secs(60),
            hedge: None,
            probe: SandboxSpec::default(),
            orphan_age: Duration::from_secs(120),
        }
    }
}

pub struct Fleet {
    pub(crate) info: ProviderInfo,
    pub(crate) members: Vec<Member>,
    pub(crate) homes: Homes,
    pub(crate) settings: FleetSettings,
    pub(crate) tasks: Tasks,
    pub(crate) router: Arc<Mutex<Router>>,
    pub(crate) clock: Clock,
}

/// The time of a fleet, from its beginning on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn now(self) -> Moment {
        Moment::START.after(self.0.elapsed())
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.members.iter().map(Member::name).collect();
        f.debug_struct("Fleet").field("members", &names).finish_non_exhaustive()
    }
}

impl Fleet {
    /// Members in the order in which they are listed to people; their names differ. `tasks` outlive every request.
    pub fn new(members: Vec<Member>, settings: FleetSettings, seed: u64, tasks: Tasks) -> Arc<Self> {
        let info = ProviderInfo { name: "fleet".to_owned(), kind: "fleet".to_owned(), region: None };
        let router = Arc::new(Mutex::new(Router::new(settings.router, seed)));
        Arc::new(Self {
            info,
            members,
            homes: Homes::default(),
            settings,
            tasks,
            router,
            clock: Clock(Instant::now()),
        })
    }

    /// The question for one sandbox: what its caller wishes over what is usual.
    pub fn request(&self, spec: &SandboxSpec, routing: Option<&Routing>) -> RouteRequest {
        let mut request = self.settings.usual.clone();
        let wall = spec.limits.wall;
        let Span { low, expected, .. } = request.work;
        request.work = Span { low: low.min(wall), expected: expected.min(wall), high: wall };
        request.demand = Demand::of(&spec.limits);
        if let Some(routing) = routing {
            request.objective = routing.objective.unwrap_or(request.objective);
            request.demand.gpu = routing.require.gpu.clone().filter(|kind| kind != "any");
            request.constraints = Constraints {
                max_cost: routing.max_cost,
                max_latency: routing.max_latency,
                preferred_region: routing.preferred_region.clone(),
                preferred_providers: routing.preferred_providers.clone(),
                exclude_providers: routing.exclude_providers.clone(),
                order: routing.order.clone(),
                require: routing.require.clone(),
            };
        }
        request
    }

    /// Where such a sandbox would go, with every member's verdict. Nothing is booked.
    pub fn explain(&self, spec: &SandboxSpec, routing: Option<&Routing>) -> Decision {
        let candidates = self.candidates(spec, &CreateOptions::default());
        let request = self.request(spec, routing);
        self.router().decide(&request, &candidates, self.now())
    }

    /// Refuses what no member could take at all or at present; each is named with its reasons.
    pub fn fits(&self, spec: &SandboxSpec, routing: &Routing) -> Result<()> {
        let decision = self.explain(spec, Some(routing));
        if decision.ranked.is_empty() { Err(crate::nowhere::fits(&decision)) } else { Ok(()) }
    }

    /// Members by name, in the order in which they are listed to people.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(Member::name)
    }

    pub fn info_of(&self, name: &str) -> Option<&ProviderInfo> {
        self.place_named(name).map(|place| self.members[place].provider.info())
    }

    pub fn capabilities_of(&self, name: &str) -> Option<Capabilities> {
        self.place_named(name).map(|place| self.members[place].provider.capabilities())
    }

    /// A member itself, for what it keeps beside sandboxes.
    pub fn provider_named(&self, name: &str) -> Option<Arc<dyn Provider>> {
        self.place_named(name).map(|place| Arc::clone(&self.members[place].provider))
    }

    /// A member's page of the catalogue, with the operator's figures.
    pub fn entry_of(&self, name: &str) -> Option<&Arc<ProviderEntry>> {
        self.place_named(name).map(|place| &self.members[place].entry)
    }

    /// A sandbox of an earlier process is there.
    pub fn meet(&self, id: SandboxId, provider: &str) {
        if let Some(place) = self.place_named(provider) {
            self.homes.settle(id, place);
        }
    }

    /// What a member counted for what it had under an id; see [`Provider::metered`]. `None`: it does not tell, or is not a
    /// member any more.
    pub async fn metered_at(
        &self,
        cx: &OpContext,
        provider: &str,
        id: &SandboxId,
    ) -> Result<Option<Vec<Metered>>> {
        match self.place_named(provider) {
            Some(place) => self.members[place].provider.metered(cx, id).await,
            None => Ok(None),
        }
    }

    /// Whether a member is this machine, where whatever is used is measured by ourselves.
    pub fn is_here(&self, provider: &str) -> bool {
        self.capabilities_of(provider).is_some_and(|can| can.host_trees)
    }

    /// What a sandbox of this size costs there for so long, by the catalogue.
    pub fn charge(&self, provider: &str, limits: &Limits, time: Duration, cpu: Duration) -> Option<Usd> {
        let usage = Usage::of(&Demand::of(limits), time, cpu);
        self.entry_of(provider)?.charge(&usage).ok().map(|charge| charge.total())
    }

    pub(crate) fn candidates(&self, spec: &SandboxSpec, options: &CreateOptions) -> Vec<Candidate> {
        let candidate =
            |(place, member): (Place, &Member)| member.candidate(spec, options, self.homes.count(place));
        self.members.iter().enumerate().map(candidate).collect()
    }

    pub(crate) fn router(&self) -> MutexGuard<'_, Router> {
        self.router.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(crate) fn place_named(&self, name: &str) -> Option<Place> {
        self.members.iter().position(|member| member.name() == name)
    }

    /// Who holds a sandbox. One that was made before this process began is looked for.
    pub(crate) async fn holder(&self, cx: &OpContext, id: &SandboxId) -> Result<(Place, &Arc<dyn Provider>)> {
        if let Some(place) = self.homes.of(id) {
            return Ok((place, &self.members[place].provider));
        }
        let mut silent = None;
        for (place, member) in self.members.iter().enumerate() {
            match member.provider.get(cx, id).await {
                Ok(_) => {
                    self.homes.settle(*id, place);
                    return Ok((place, &member.provider));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => silent = Some(error),
            }
        }
        // One that does not answer may have it.
        Err(silent.unwrap_or_else(|| no_sandbox(id)))
    }

    /// Who runs a program, as far as that is known.
    pub(crate) fn runner(&self, exec: &ExecId) -> Option<&Arc<dyn Provider>> {
        self.homes.of_exec(exec).map(|place| &self.members[place].provider)
    }
}

fn no_sandbox(id: &SandboxId) -> Error {
    Error::new(ErrorKind::NotFound, "there is no such sandbox").with("sandbox", id)
}
