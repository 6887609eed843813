//! The fleet itself: its members, what the router knows of them, and who holds what.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandstorm_provider::{Error, OpContext, Provider, ProviderInfo, Result, Tasks};
use sandstorm_router::failover::AttemptRules;
use sandstorm_router::{Candidate, Decision, Moment, RouteRequest, Router};
use sandstorm_types::{ErrorKind, ExecId, SandboxId, SandboxSpec};

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
}

impl Default for FleetSettings {
    fn default() -> Self {
        Self {
            router: sandstorm_router::Settings::default(),
            usual: RouteRequest::default(),
            attempts: AttemptRules::default(),
            patience: Duration::from_secs(60),
        }
    }
}

pub struct Fleet {
    pub(crate) info: ProviderInfo,
    pub(crate) members: Vec<Member>,
    pub(crate) homes: Homes,
    pub(crate) settings: FleetSettings,
    pub(crate) tasks: Tasks,
    router: Mutex<Router>,
    began: Instant,
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
        let router = Mutex::new(Router::new(settings.router, seed));
        Arc::new(Self {
            info,
            members,
            homes: Homes::default(),
            settings,
            tasks,
            router,
            began: Instant::now(),
        })
    }

    /// Where such a sandbox would go, with every member's verdict. Nothing is booked.
    pub fn explain(&self, request: &RouteRequest, spec: &SandboxSpec) -> Decision {
        let candidates = self.candidates(spec);
        self.router().decide(request, &candidates, self.now())
    }

    pub(crate) fn candidates(&self, spec: &SandboxSpec) -> Vec<Candidate> {
        let candidate = |(place, member): (Place, &Member)| member.candidate(spec, self.homes.count(place));
        self.members.iter().enumerate().map(candidate).collect()
    }

    pub(crate) fn router(&self) -> MutexGuard<'_, Router> {
        self.router.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Moment {
        Moment::START.after(self.began.elapsed())
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
