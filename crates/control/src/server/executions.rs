//! Execs in flight on this server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandstorm_provider::{Error, ExecInput};
use sandstorm_store::ExecRow;
use sandstorm_types::{ExecId, SandboxId, Timestamp};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::cell_log::CellLog;
use super::ended::Ended;
use super::living::{Busy, Living};

/// One exec in flight.
#[derive(Debug)]
pub(super) struct Execution {
    pub(super) row: ExecRow,
    pub(super) living: Arc<Living>,
    /// Where its events are.
    pub(super) stage: watch::Sender<Stage>,
    ended: watch::Sender<Option<Arc<Ended>>>,
    input: Mutex<Option<ExecInput>>,
    /// Set to end what is not a program yet: its compiling, or its turn in a context.
    pub(super) cancel: CancellationToken,
    /// Why nothing more will come of it, once its sandbox is gone. An empty reason: it was ended on purpose.
    pub(super) doomed: watch::Sender<Option<String>>,
    pub(super) cell: Option<Arc<CellLog>>,
    pub(super) began: std::time::Instant,
    /// How long it ran before this server knew of it.
    before: Duration,
    /// Processor time of its sandbox when it began, as far as it was seen.
    pub(super) cpu_before_ms: u64,
    /// Held while it runs, whoever still listens to what it said.
    busy: Mutex<Option<Busy>>,
}

/// Where the events of an exec come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is not started yet.
    Preparing,
    /// From the provider's log of this exec; of a compiler that refused, with `complaints`.
    Log { log: ExecId, complaints: bool },
    /// There are none: it never began.
    Nowhere,
}

impl Execution {
    pub(super) fn new(
        row: ExecRow,
        living: &Arc<Living>,
        stage: Stage,
        cell: Option<Arc<CellLog>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            before: Timestamp::now().since(row.started_at),
            row,
            living: Arc::clone(living),
            stage: watch::Sender::new(stage),
            ended: watch::Sender::new(None),
            input: Mutex::default(),
            cancel: CancellationToken::new(),
            doomed: watch::Sender::new(None),
            cell,
            began: std::time::Instant::now(),
            cpu_before_ms: living.seen_cpu_ms(),
            busy: Mutex::new(Some(living.busy())),
        })
    }

    pub(super) fn id(&self) -> ExecId {
        self.row.id
    }

    /// How long it has been running: by the steady clock, and by the other for as long as it ran under an earlier server.
    pub(super) fn ran_for(&self) -> Duration {
        self.before + self.began.elapsed()
    }

    pub(super) fn set_input(&self, input: ExecInput) {
        *self.input.lock().unwrap_or_else(PoisonError::into_inner) = Some(input);
    }

    pub(super) fn input(&self) -> Option<ExecInput> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells everybody who waits for the end. It is stored before.
    pub(super) fn tell_end(&self, ended: Ended) {
        drop(self.busy.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.stage.send_if_modified(|stage| {
            let never_began = *stage == Stage::Preparing;
            if never_began {
                *stage = Stage::Nowhere;
            }
            never_began
        });
        // The first end stands, as it does in the store.
        self.ended.send_if_modified(|known| {
            let first = known.is_none();
            if first {
                *known = Some(Arc::new(ended));
            }
            first
        });
    }

    pub(super) fn end(&self) -> Option<Arc<Ended>> {
        self.ended.borrow().clone()
    }

    /// What the platform failed in, once it has ended.
    pub(super) fn problem(&self) -> Option<Error> {
        let ended = self.end()?;
        let problem = ended.problem.as_ref()?;
        Some(Error::new(problem.code, problem.detail.clone()).with("exec", self.id()))
    }

    pub(super) async fn wait_end(&self) -> Arc<Ended> {
        let mut ended = self.ended.subscribe();
        loop {
            if let Some(ended) = ended.borrow_and_update().clone() {
                return ended;
            }
            // The sender is part of this value, so waiting cannot fail.
            let _ = ended.changed().await;
        }
    }

    /// Waits until it is known where its events are.
    pub(super) async fn wait_stage(&self) -> Stage {
        let mut stage = self.stage.subscribe();
        let known = stage.wait_for(|stage| *stage != Stage::Preparing).await;
        known.map_or(Stage::Nowhere, |stage| *stage)
    }
}

/// All execs in flight.
#[derive(Debug, Default)]
pub(super) struct Executions(Mutex<HashMap<ExecId, Arc<Execution>>>);

impl Executions {
    fn all(&self) -> MutexGuard<'_, HashMap<ExecId, Arc<Execution>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, execution: &Arc<Execution>) {
        let count = {
            let mut all = self.all();
            all.insert(execution.id(), Arc::clone(execution));
            all.len()
        };
        metrics::gauge!("sandstorm_execs_running").set(count as f64);
    }

    pub(super) fn remove(&self, id: ExecId) {
        let count = {
            let mut all = self.all();
            all.remove(&id);
            all.len()
        };
        metrics::gauge!("sandstorm_execs_running").set(count as f64);
    }

    /// Of one sandbox; who asks has looked that sandbox up by its tenant.
    pub(super) fn get(&self, sandbox: SandboxId, id: ExecId) -> Option<Arc<Execution>> {
        self.all().get(&id).filter(|execution| execution.row.sandbox == sandbox).cloned()
    }

    pub(super) fn of_sandbox(&self, sandbox: SandboxId) -> Vec<Arc<Execution>> {
        self.all().values().filter(|execution| execution.row.sandbox == sandbox).cloned().collect()
    }

    /// Those that end with who listens to them.
    pub(super) fn foreground(&self) -> Vec<Arc<Execution>> {
        self.all().values().filter(|execution| !execution.row.lasting).cloned().collect()
    }
}
