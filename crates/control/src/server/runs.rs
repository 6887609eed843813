//! One-shot runs with a record.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::BoxStream;
use sandstorm_provider::{Error, Result};
use sandstorm_store::{EntryKind, RunRow};
use sandstorm_types::{
    Event, LanguageName, Limits, LimitsPatch, Problem, RunId, RunResult, RunSpec, Status, Timestamp,
};
use tracing::{Instrument, debug_span};

use super::costs::Opening;
use super::create::within_ceiling;
use super::cursor::{self, List, Place};
use super::events::body;

use super::failure::{conflict, elsewhere, not_found, stored};
use super::one_shot::{self, OneShot};
use super::run_cache::Sought;
use super::run_record::Beginning;
use super::sandboxes::{LARGEST_PAGE, PAGE};
use super::{Caller, Control, EventBodyView, Page, Scope};
use crate::outcome::Outcome;
use crate::reserve::{Height, Reserve};

/// How long one waits for the end of a run that was cancelled.
const CANCELLED: Duration = Duration::from_secs(10);

/// A run as its owner sees it.
#[derive(Debug, Clone)]
pub struct RunView {
    pub id: RunId,
    pub language: LanguageName,
    /// `None` while it runs; also `None`, with `problem`, when the platform failed.
    pub status: Option<Status>,
    pub problem: Option<String>,
    pub result: Option<RunResult>,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Default)]
pub struct RunQuery {
    pub running_only: bool,
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}

/// A run on its way.
pub struct Running {
    pub id: RunId,
    /// From `start` to `end`. Dropping it cancels the run.
    pub events: BoxStream<'static, Event>,
    /// The result, once `events` has ended; recorded before it resolves. Of long output it has the beginning, as the record
    /// has: `events` tell all of it.
    pub result: tokio::sync::oneshot::Receiver<Result<RunResult>>,
}

impl Running {
    /// Waits for the result, with no interest in the events.
    async fn result(self) -> Result<RunResult> {
        let result = self.result.await.map_err(|_| conflict("the server is stopping"))?;
        // Until now: dropping them cancels the run.
        drop(self.events);
        result
    }
}

/// A run that may be done.
enum Admitted {
    New(Box<OneShot>),
    /// An earlier result does.
    Made(Running),
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Control {
    /// Runs to the end. Dropping the future cancels the run.
    pub async fn run(&self, caller: &Caller, spec: RunSpec) -> Result<RunResult> {
        self.run_whole(caller, spec).await?.into_result()
    }

    /// The same, with long output where it takes no memory.
    pub async fn run_whole(&self, caller: &Caller, spec: RunSpec) -> Result<Outcome> {
        self.run_as(caller, spec, None).await
    }

    /// The same under an id that was chosen before.
    pub(super) async fn run_as(&self, caller: &Caller, spec: RunSpec, id: Option<RunId>) -> Result<Outcome> {
        match self.admit_run(caller, spec, id).await? {
            Admitted::New(shot) => one_shot::run(&self.0, shot).await,
            Admitted::Made(running) => running.result().await.map(Outcome::from),
        }
    }

    /// Starts a run and gives its events as they happen.
    pub async fn start_run(&self, caller: &Caller, spec: RunSpec) -> Result<Running> {
        match self.admit_run(caller, spec, None).await? {
            Admitted::New(shot) => one_shot::start(&self.0, *shot).await,
            Admitted::Made(running) => Ok(running),
        }
    }

    #[tracing::instrument(level = "debug", name = "begin_run", skip_all, fields(run))]
    async fn admit_run(&self, caller: &Caller, mut spec: RunSpec, given: Option<RunId>) -> Result<Admitted> {
        caller.require(Scope::Run)?;
        self.0.accepts_work()?;
        let tenant = self.0.quotas.of(caller.tenant);
        let limits = within_ceiling(&self.0.settings, &self.0.settings.limits, &spec.limits)?;
        spec.limits = patch(limits);
        spec.enforcement.get_or_insert(self.0.settings.enforcement);
        // What it is counted under does not make it another run.
        let (labels, max_cost) = (std::mem::take(&mut spec.labels), spec.max_cost.take());
        let mut prepared = self.0.runner.prepare(&spec, None)?;
        if spec.routing.is_some() {
            self.0.check_run_routing(&spec, &limits)?;
        }
        tenant.count_run()?;
        let id = given.unwrap_or_else(RunId::random);
        let lead = match self.0.seek_result(caller, &spec, &prepared).await? {
            Sought::Found(made) => {
                return Box::pin(self.0.give_again(caller, id, &made, &prepared)).await.map(Admitted::Made);
            }
            Sought::Lead(lead) => Some(lead),
            Sought::Wait(_) | Sought::Off => None,
        };
        let max_cost = self.0.most(max_cost, &mut spec.routing);
        let opening = Opening {
            kind: EntryKind::Run,
            object: id.to_string(),
            labels,
            limits: &limits,
            longest: limits.wall,
            max_cost,
            at: Timestamp::now(),
        };
        let account = self.0.spending.open(&self.0.store, caller, opening).await?;
        let Height { all, cpus, build, space } =
            self.0.runner.height(caller.tenant, &spec, &prepared, self.0.room(caller.tenant));
        let highest = Limits { memory: all, cpus, ..limits };
        let hold = Arc::new(tenant.hold_run(&highest, || self.0.promised(caller.tenant))?);
        let came = Instant::now();
        let height = self.0.admission.with_own(self.0.admission.with_space(all, space));
        let promise = self.0.admission.admit(height).instrument(debug_span!("admit")).await?;
        let promise = Arc::new(promise);
        let run = self.0.admission.with_own(self.0.admission.of(&limits, spec.space));
        prepared.reserve =
            Some(Reserve { promise: Arc::clone(&promise), hold: Arc::clone(&hold), height, build, run });
        let waited = came.elapsed();
        tracing::Span::current().record("run", tracing::field::display(id));
        let row = RunRow {
            id,
            tenant: caller.tenant,
            language: prepared.language.name.clone(),
            created_at: Timestamp::now(),
            ended_at: None,
            status: None,
            result: None,
            problem: None,
            request_hash: None,
            entry: Some(Box::new(account.entry().clone())),
        };
        let begun = body(&EventBodyView::ExecuteStart { exec: None, run: Some(id) });
        let firm = given.is_some() && self.0.store.is_shared();
        let beginning = Beginning { row, told: begun, audit: caller.audit("run.create", id), firm };
        if let Some(trace) = &caller.traceparent
            // What is given to others must not depend on who asked first.
            && !spec.cache
            && spec.env.get("TRACEPARENT").is_none()
        {
            let name = "TRACEPARENT".parse().expect("it is a good name");
            // An environment that is full goes without.
            let _ = spec.env.insert(name, trace.clone());
        }
        let caller = caller.clone();
        let shot =
            OneShot { id, caller, beginning, spec, prepared, promise, hold, waited, limits, lead, account };
        Ok(Admitted::New(Box::new(shot)))
    }

    pub async fn run_view(&self, caller: &Caller, id: RunId) -> Result<RunView> {
        caller.require(Scope::Run)?;
        let row = stored(self.0.store.run(caller.tenant, id).await)?.ok_or_else(|| not_found("run"))?;
        view(row)
    }

    pub async fn runs(&self, caller: &Caller, query: RunQuery) -> Result<Page<RunView>> {
        caller.require(Scope::Run)?;
        let RunQuery { running_only, limit, cursor } = query;
        let filters = format!("runs {running_only}");
        let list = List { tenant: caller.tenant, filters: &filters };
        let pepper = &self.0.settings.pepper;
        let before = match cursor {
            Some(cursor) => {
                let Place { at, id } = cursor::decode(pepper, list, &cursor)?;
                Some((at, RunId::from_bits(id)))
            }
            None => None,
        };
        let limit = limit.unwrap_or(PAGE).clamp(1, LARGEST_PAGE);
        let rows = self.0.store.list_runs(caller.tenant, running_only, before, limit + 1).await;
        let mut rows = stored(rows)?;
        let more = rows.len() as u64 > u64::from(limit);
        rows.truncate(limit as usize);
        let last = rows.last().filter(|_| more);
        let next_cursor =
            last.map(|row| cursor::encode(pepper, list, Place { at: row.created_at, id: row.id.bits() }));
        let items = rows.into_iter().map(view).collect::<Result<_>>()?;
        Ok(Page { items, next_cursor })
    }

    /// Ends a run of this tenant; its caller gets the result so far with `killed`. One that ended stays as it is.
    #[tracing::instrument(skip_all, fields(run = %id))]
    pub async fn cancel_run(&self, caller: &Caller, id: RunId) -> Result<RunView> {
        let seen = self.run_view(caller, id).await?;
        if seen.ended_at.is_some() {
            return Ok(seen);
        }
        if let Some(node) = stored(self.0.store.run_elsewhere(caller.tenant, id).await)? {
            return Err(elsewhere("run", &node));
        }
        stored(self.0.store.record_audit(&caller.audit("run.cancel", id)).await)?;
        if let Some(run) = self.0.runs.get(caller.tenant, id) {
            run.cancel.cancel();
            if tokio::time::timeout(CANCELLED, run.over.cancelled()).await.is_err() {
                return Err(conflict("the run has not ended yet").with_retry_after(Duration::from_secs(1)));
            }
        }
        self.run_view(caller, id).await
    }
}

fn patch(limits: Limits) -> LimitsPatch {
    LimitsPatch {
        wall: Some(limits.wall),
        cpu_time: limits.cpu_time,
        cpus: Some(limits.cpus),
        memory: Some(limits.memory),
        processes: Some(limits.processes),
        open_files: Some(limits.open_files),
        disk: Some(limits.disk),
        inodes: Some(limits.inodes),
        output: Some(limits.output),
    }
}

fn view(row: RunRow) -> Result<RunView> {
    let damaged = |_| Error::new(sandstorm_types::ErrorKind::Internal, "the record of a run is damaged");
    let problem = row.problem.and_then(|problem| serde_json::from_value::<Problem>(problem).ok());
    Ok(RunView {
        id: row.id,
        language: row.language.parse().map_err(damaged)?,
        status: row.status.as_deref().and_then(Status::named),
        problem: problem.map(|problem| problem.detail),
        result: row.result.and_then(|result| serde_json::from_value(result).ok()),
        created_at: row.created_at,
        ended_at: row.ended_at,
    })
}

#[cfg(test)]
mod tests {
    use sandstorm_language::Roots;
    use sandstorm_provider::Provider;
    use sandstorm_provider::memory::MemoryProvider;
    use sandstorm_store::{AuditKey, Store, StoreConfig};
    use sandstorm_types::{Enforcement, TenantId};

    use super::super::{Setup, testing};
    use super::*;
    use crate::{Runner, Tools};

    #[tokio::test]
    async fn what_compiling_takes_of_the_quota_is_given_back_once_it_is_done() {
        let state = tempfile::tempdir().unwrap();
        let config = StoreConfig::in_directory(state.path(), None, AuditKey::from_bytes([5; 32]));
        let store = Store::open(&config).await.unwrap();
        let provider: Arc<dyn Provider> = Arc::new(MemoryProvider::default());
        let settings = testing::settings();
        let runner = Runner::new(Tools {
            provider: Arc::clone(&provider),
            limits: settings.limits,
            roots: Roots::host(),
            cache: None,
            layers: None,
        });
        let control = Control::start(Setup { store, provider, runner, settings }).await.unwrap();
        let spec = RunSpec {
            enforcement: Some(Enforcement::BestEffort),
            ..RunSpec::new("c".parse().unwrap(), "int main(void) { return 0; }")
        };
        let admitted = control.admit_run(&control.developer(), spec, None).await.unwrap();
        let Admitted::New(shot) = admitted else { panic!("nothing was kept of earlier runs") };
        let held = || control.0.quotas.of(TenantId::LOCAL).held_by_runs();
        let (own_cpu, own_memory) = (u64::from(shot.limits.cpus.milli()), shot.limits.memory.as_u64());
        assert!(held().0 > own_cpu && held().1 > own_memory, "{:?}", held());
        let height = held();
        shot.prepared.built();
        assert_eq!(held(), (own_cpu, own_memory));
        // It goes to another place, where it may be built again.
        assert!(shot.prepared.reserve.as_ref().unwrap().take_again());
        assert_eq!(held(), height);
        drop(shot);
        assert_eq!(held(), (0, 0));
    }
}
