//! The use cases of a server: sandboxes, execs, contexts, files, runs and keys, over one provider and one store.
//!
//! Every method takes a [`Caller`], which only [`Control::authenticate`] makes, and looks things up by tenant *and* id:
//! there is no way to name another tenant's object. What must survive is written before it is done, together with its
//! audit record; a restarted server finds out from the provider what became of it.

mod access;
mod admission;
mod authentication;
mod beginning;
mod bodies;
mod cached_runs;
mod cell_log;
mod cells;
mod clocks;
mod contexts;
mod costs;
mod create;
mod cursor;
mod ended;
mod events;
mod execs;
mod executions;
mod failure;
mod files;
mod follower;
mod fork;
mod idempotency;
mod install;
mod interpreter;
pub mod keys;
mod leases;
mod listener;
mod living;
mod names;
mod numbering;
mod one_shot;
mod patience;
mod program;
mod provider_events;
mod quotas;
mod recovery;
mod rest;
mod routing;
mod run_cache;
mod run_record;
mod runs;
mod samples;
mod sandbox_tokens;
mod sandboxes;
mod settling;
mod snapshots;
mod steady;
mod steps;
#[cfg(feature = "testing")]
pub mod testing;
mod transitions;
mod usage;
mod wall;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sandstorm_fleet::Fleet;
use sandstorm_provider::{Error, ExecSignal, OpContext, Provider, Result, Tasks};
use sandstorm_store::Store;
use sandstorm_types::{ByteSize, Capabilities, Enforcement, ErrorKind, Limits, TenantId};
use tokio_util::sync::CancellationToken;

pub(crate) use admission::Promise;

pub use access::{Caller, KeyForm, KeyView, NewKey, NewTenant, Scope, Scopes, TenantView, Verb};
pub use bodies::{BodyRoom, gather};
pub use contexts::{ContextView, NewContext};
pub use costs::{AtLimit, Budget, CostGroup, CostQuery, CostReport, Costs, Window};
pub use events::{ControlEvent, EventBodyView, EventFilter};
pub use execs::{Attached, ExecView, ExecWork, NewExec};
pub use files::WrittenFile;
pub use fork::{ForkView, NewFork};
pub use idempotency::{
    Answer, Answered, Claim, Found, Keyed, Once, OneContext, OneExec, OneFork, OneInstall, OneRun,
    OneSandbox, OneSnapshot, OneStart,
};
pub use install::{Installed, NewInstall};
pub(crate) use quotas::RunGuard;
pub use quotas::StreamGuard;
pub use routing::ProviderView;
pub use run_cache::RunCacheLimits;
pub use runs::{RunQuery, RunView, Running};
pub use sandbox_tokens::TokenKind;
pub use sandboxes::{NewSandbox, Page, SandboxQuery, SandboxView};
pub use snapshots::{NewSnapshot, SnapshotLimits, SnapshotQuery, SnapshotView};
pub use usage::{Sample, UsageView};

/// What [`Control::explain`] gives.
pub use sandstorm_router::Decision as RouteDecision;

/// What [`Control::audit`] gives.
pub use sandstorm_store::{AuditRow, Decision};
/// What [`Control::costs`] is asked for and gives.
pub use sandstorm_store::{GroupBy, LedgerSum};

use crate::run::Runner;
use crate::space::Space;

/// What a server is made from.
#[derive(Debug)]
pub struct Setup {
    pub store: Store,
    pub provider: Arc<dyn Provider>,
    pub runner: Runner,
    pub settings: Settings,
}

/// What the operator decides.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Limits of sandboxes that ask for none.
    pub limits: Limits,
    /// The most that anybody may ask for.
    pub ceiling: Limits,
    /// What to do about walls and limits that this machine cannot have, where a request does not say.
    pub enforcement: Enforcement,
    /// What a tenant that an operator makes may use, unless its own row says otherwise.
    pub quota: Quota,
    /// The same for the local tenant, which is all that there is where no operator makes others. `None`: no difference.
    pub local_quota: Option<Quota>,
    /// Memory that all sandboxes together may be promised. A creation past it waits, then is refused.
    pub admission_memory: ByteSize,
    /// Memory for request bodies that are not answered yet, beside what is promised. One tenant has a quarter of it.
    pub body_memory: ByteSize,
    /// How long a creation may wait for memory, and how many may wait.
    pub admission_wait: Duration,
    pub admission_queue: usize,
    /// What sandboxes of this machine write lies in its memory, beside that of their programs.
    pub space_in_memory: bool,
    /// Where the kernel says how much memory the machine has left.
    pub meminfo: PathBuf,
    /// Without a request or a running exec for this long a sandbox ends as its lifetime says. `None`: never.
    pub idle_timeout: Option<Duration>,
    /// How long a paused sandbox is kept.
    pub paused_for: Duration,
    /// The longest lifetime that may be asked for.
    pub longest_lifetime: Duration,
    pub retention: Retention,
    /// How often what the audit newly has is anchored: for so long somebody who can write the database could cut it off unseen.
    pub anchor_every: Duration,
    pub run_cache: RunCacheLimits,
    /// What one tenant may keep of saved sandboxes.
    pub snapshots: SnapshotLimits,
    pub costs: Costs,
    /// How often what is elsewhere is compared with what is known.
    pub reconcile_every: Duration,
    /// From this age on a price is warned about.
    pub price_age: Duration,
    /// The server asks for no keys: everybody is the developer, and tokens of the developer are good.
    pub keyless: bool,
    /// Keys the hashes of API keys and the marks of list cursors. Kept in the state directory, never in the store.
    pub pepper: Pepper,
}

impl Settings {
    /// What a tenant may use unless its own row says otherwise.
    fn quota_of(&self, tenant: TenantId) -> Quota {
        self.local_quota.filter(|_| tenant == TenantId::LOCAL).unwrap_or(self.quota)
    }
}

/// What one tenant may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Quota {
    pub sandboxes: u32,
    /// Thousandths of a processor, promised to living sandboxes together.
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// `None`: as many as admission takes.
    pub runs_per_minute: Option<u32>,
    /// `None`: as many as come.
    pub requests_per_second: Option<u32>,
    pub open_streams: u32,
}

/// How long records are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    pub runs: Duration,
    pub events: Duration,
    pub audit: Duration,
    /// What things cost.
    pub ledger: Duration,
}

/// A secret of 32 bytes; shown to nobody.
#[derive(Clone)]
pub struct Pepper(pub [u8; 32]);

impl std::fmt::Debug for Pepper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pepper(…)")
    }
}

/// The server's use cases. Cloning gives another hand on the same server.
#[derive(Debug, Clone)]
pub struct Control(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    provider: Arc<dyn Provider>,
    runner: Runner,
    settings: Settings,
    tasks: Tasks,
    keys: keys::Keys,
    known_keys: authentication::KnownKeys,
    quotas: quotas::Quotas,
    bodies: bodies::Bodies,
    saving: snapshots::Saving,
    admission: admission::Admission,
    sandboxes: living::Register,
    making: living::Making,
    executions: executions::Executions,
    ended_cells: cell_log::EndedCells,
    interpreters: interpreter::Interpreters,
    runs: one_shot::Runs,
    run_cache: run_cache::RunCache,
    events: events::Wakers,
    settling: settling::Settling,
    clock: clocks::Clock,
    records_clock: wall::RecordsClock,
    ledger: usage::Ledger,
    spending: Arc<costs::Spending>,
    in_flight: Arc<idempotency::InFlight>,
    /// How the one provider looks beside others, where there is no fleet; made when somebody asks.
    alone: OnceLock<Arc<Fleet>>,
    draining: CancellationToken,
    leases: leases::Leases,
    /// `None`: nothing is kept on a disk.
    space: Option<Arc<Space>>,
}

/// How long the store and the provider may take to say that they are well.
const HEALTH: Duration = Duration::from_secs(2);
/// How long what is ended at the end of a drain may take.
const LAST_WAIT: Duration = Duration::from_secs(5);
/// When to come back to a server that is being replaced, or has no space.
const REPLACED: Duration = Duration::from_secs(5);

/// How ready the server is; for `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    pub ready: bool,
    /// Why not: `draining`, `disk`, `lease`, `store`, `provider`.
    pub reason: Option<&'static str>,
}

impl Control {
    /// Settles what an earlier server left (adopted sandboxes stay, lost ones fail, strangers end), then starts the
    /// clocks: lifetimes, idle time, retention, samples.
    pub async fn start(setup: Setup) -> Result<Self> {
        let Setup { store, provider, runner, settings } = setup;
        let inner = Arc::new(Inner {
            keys: keys::Keys::new(store.clone(), settings.pepper.clone()),
            known_keys: authentication::KnownKeys::default(),
            quotas: quotas::Quotas::new(settings.quota, settings.quota_of(TenantId::LOCAL)),
            bodies: bodies::Bodies::default(),
            saving: snapshots::Saving::default(),
            admission: admission::Admission::new(
                settings.admission_memory,
                settings.admission_wait,
                settings.admission_queue,
                settings.space_in_memory,
            ),
            tasks: Tasks::default(),
            sandboxes: living::Register::default(),
            making: living::Making::default(),
            executions: executions::Executions::default(),
            settling: settling::Settling::default(),
            ended_cells: cell_log::EndedCells::default(),
            interpreters: interpreter::Interpreters::default(),
            runs: one_shot::Runs::default(),
            run_cache: run_cache::RunCache::new(settings.run_cache),
            events: events::Wakers::default(),
            clock: clocks::Clock::default(),
            records_clock: wall::RecordsClock::of(&store),
            ledger: usage::Ledger::default(),
            spending: costs::Spending::new(&settings.costs, &provider.info().name, runner.fleet.clone()),
            in_flight: Arc::default(),
            alone: OnceLock::new(),
            draining: CancellationToken::new(),
            leases: leases::Leases::default(),
            space: runner.spools.dir().map(|dir| Arc::new(Space::of(dir))),
            store,
            provider,
            runner,
            settings,
        });
        let events = inner.provider.events();
        inner.take_lease().await?;
        let keeping = Arc::clone(&inner);
        inner.tasks.start("keep the lease", keeping.keep_lease());
        inner.recover().await?;
        inner.keep_wall_clock().await;
        inner.hear_provider(events);
        let settling = Arc::clone(&inner);
        inner.tasks.start("settle snapshots", async move { settling.settle_snapshots().await });
        inner.start_clocks();
        if let Some(fleet) = inner.runner.fleet.clone() {
            let every = inner.settings.reconcile_every;
            inner.tasks.start("look for orphans", Arc::clone(&inner).look_for_orphans(fleet, every));
        }
        Ok(Self(inner))
    }

    /// What the provider can do, and what the server adds to it.
    pub fn capabilities(&self) -> Capabilities {
        let requirements = self.0.runner.layers.is_some();
        Capabilities { requirements, lifetime: true, ..self.0.provider.capabilities() }
    }

    /// The names of where sandboxes can be made.
    pub fn places(&self) -> Vec<String> {
        match &self.0.runner.fleet {
            Some(fleet) => fleet.names().map(str::to_owned).collect(),
            None => vec![self.0.provider.info().name.clone()],
        }
    }

    pub async fn readiness(&self) -> Readiness {
        let not = |reason| Readiness { ready: false, reason: Some(reason) };
        if self.0.draining.is_cancelled() {
            return not("draining");
        }
        if self.0.is_full() {
            return not("disk");
        }
        if self.0.is_lapsed() {
            return not("lease");
        }
        if !matches!(tokio::time::timeout(HEALTH, self.0.store.health()).await, Ok(Ok(()))) {
            return not("store");
        }
        let cx = OpContext::new(TenantId::LOCAL);
        if !matches!(tokio::time::timeout(HEALTH, self.0.provider.health(&cx)).await, Ok(Ok(()))) {
            return not("provider");
        }
        Readiness { ready: true, reason: None }
    }

    /// [`Control::drain_work`], then [`Control::stop`].
    pub async fn drain(&self, grace: Duration) {
        self.drain_work(grace).await;
        self.stop().await;
    }

    /// Refuses new work with `Capacity` and a time to retry from now on.
    pub fn refuse_work(&self) {
        self.0.draining.cancel();
    }

    /// Refuses new work, waits up to `grace` for runs and foreground execs, then ends the rest: whoever waits for them has
    /// an answer when this returns. Sandboxes stay.
    pub async fn drain_work(&self, grace: Duration) {
        let inner = &self.0;
        self.refuse_work();
        if tokio::time::timeout(grace, inner.in_flight_done()).await.is_err() {
            for run in inner.runs.list() {
                run.cancel.cancel();
            }
            for execution in inner.executions.foreground() {
                execution.cancel.cancel();
                let executions::Stage::Log { log, .. } = *execution.stage.borrow() else { continue };
                let cx = OpContext::new(execution.row.tenant).with_timeout(LAST_WAIT);
                if let Err(error) = inner.provider.signal(&cx, &log, ExecSignal::Kill).await {
                    tracing::warn!(exec = %execution.id(), %error, "an exec could not be ended");
                }
            }
            if tokio::time::timeout(LAST_WAIT, inner.in_flight_done()).await.is_err() {
                tracing::warn!("work in flight has not ended in time");
            }
        }
    }

    /// Resolves when another server has taken over what this one had on record. It can do nothing more for its callers; started
    /// again, it finds out what became of that and ends what is left of it.
    pub fn superseded(&self) -> impl Future<Output = ()> + Send + use<> {
        let inner = Arc::clone(&self.0);
        async move { inner.leases.superseded().await }
    }

    pub fn is_superseded(&self) -> bool {
        self.0.leases.is_superseded()
    }

    /// Writes what is not written yet and ends everything that happens by itself.
    pub async fn stop(&self) {
        self.0.write_batches().await;
        self.0.tasks.stop().await;
    }

    /// Ends every sandbox of this server; for a stop that is meant to last.
    pub async fn end_everything(&self) {
        use futures_util::StreamExt;
        self.0.draining.cancel();
        let all = futures_util::stream::iter(self.0.sandboxes.list());
        all.for_each_concurrent(32, |living| async move {
            if let Err(error) = self.0.end_sandbox(living.tenant, living.id, None).await {
                tracing::error!(sandbox = %living.id, %error, "a sandbox could not be ended");
            }
        })
        .await;
        self.0.write_batches().await;
    }
}

impl Inner {
    /// `Capacity` while the server is being replaced, or its disk is full.
    fn accepts_work(&self) -> Result<()> {
        let why = match (self.draining.is_cancelled(), self.is_full(), self.is_lapsed()) {
            (true, ..) => "the server is stopping",
            (_, true, _) => "the disk of the server is full",
            (.., true) => "the server could not renew its lease on its records",
            (false, false, false) => return Ok(()),
        };
        Err(Error::new(ErrorKind::Capacity, why).with_retry_after(REPLACED))
    }

    fn is_full(&self) -> bool {
        self.space.as_ref().is_some_and(|space| space.is_full())
    }

    /// Waits for runs and foreground execs.
    async fn in_flight_done(&self) {
        for run in self.runs.list() {
            run.over.cancelled().await;
        }
        for execution in self.executions.foreground() {
            execution.wait_end().await;
        }
    }
}
