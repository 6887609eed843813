//! The task that owns a living interpreter: one cell at a time, in the order in which they came.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandstorm_provider::{Error, ExecInput, Result};
use sandstorm_store::{Audit, ContextChanges};
use sandstorm_types::{ContextId, ExecId, SandboxId, TenantId};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{Instrument, Span, debug_span};

use super::Inner;
use super::beginning::Beginning;
use super::events::body;
use super::executions::Execution;
use super::failure::{conflict, stored};
use super::{EventBodyView, cells::Work};
use crate::context::Context;

/// Cells that may wait for their turn.
pub(super) const LINE: usize = 64;

/// A hand on an interpreter that its task owns.
#[derive(Debug)]
pub(super) struct Interpreter {
    pub(super) id: ContextId,
    pub(super) tenant: TenantId,
    pub(super) sandbox: SandboxId,
    /// The name of its language.
    pub(super) language: String,
    pub(super) turns: mpsc::Sender<Coming>,
    /// Cells that wait or run.
    pub(super) cells: AtomicUsize,
    pub(super) execution_count: AtomicU64,
    pub(super) input: ExecInput,
    running: Mutex<Option<Arc<Execution>>>,
    /// Ends the interpreter, politely.
    pub(super) shut_down: CancellationToken,
    /// Lets go of an interpreter whose sandbox is gone.
    pub(super) abandon: CancellationToken,
    /// Set when its task is over.
    pub(super) over: CancellationToken,
}

/// What waits for its turn.
#[derive(Debug)]
pub(super) enum Coming {
    Cell(Box<Turn>),
    /// To stand still between two cells, for whoever gets this.
    Still(oneshot::Sender<Still>),
}

/// An interpreter that runs nothing until this is dropped.
#[derive(Debug)]
pub(super) struct Still {
    pub(super) exec: ExecId,
    pub(super) next_cell: u64,
    pub(super) execution_count: u64,
    _go_on: DropGuard,
}

/// A cell that waits for its turn.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) execution: Arc<Execution>,
    pub(super) code: String,
    pub(super) timeout: Duration,
    /// What its beginning is recorded with, unless that was done when it began to wait.
    pub(super) audit: Option<Audit>,
    /// Whether its beginning has to be in the database first: another server may look for it there.
    pub(super) firm: bool,
    pub(super) awaits: Awaits,
    /// Told once, when there is what is awaited, or why there will be none.
    pub(super) told: oneshot::Sender<Result<()>>,
    /// Of the request that brought it.
    pub(super) span: Span,
}

/// What whoever asked for a cell waits for. Who has no use for its beginning is not woken by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaits {
    Beginning,
    End,
}

/// A cell that an earlier server left running.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) execution: Arc<Execution>,
    pub(super) number: u64,
    pub(super) timeout: Duration,
}

impl Interpreter {
    pub(super) fn new(
        id: ContextId,
        tenant: TenantId,
        sandbox: SandboxId,
        language: String,
        input: ExecInput,
        execution_count: u64,
    ) -> (Arc<Self>, mpsc::Receiver<Coming>) {
        let (turns, coming) = mpsc::channel(LINE);
        let interpreter = Self {
            id,
            tenant,
            sandbox,
            language,
            turns,
            cells: AtomicUsize::new(0),
            execution_count: AtomicU64::new(execution_count),
            input,
            running: Mutex::default(),
            shut_down: CancellationToken::new(),
            abandon: CancellationToken::new(),
            over: CancellationToken::new(),
        };
        (Arc::new(interpreter), coming)
    }

    fn running(&self) -> MutexGuard<'_, Option<Arc<Execution>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_running(&self, execution: Option<&Arc<Execution>>) {
        *self.running() = execution.cloned();
    }

    /// Ends the cell that runs, if one does.
    pub(super) fn interrupt(&self) {
        if let Some(execution) = self.running().as_ref() {
            execution.cancel.cancel();
        }
    }

    /// Asks it to stand still when its turn comes; in line behind the cells that wait.
    pub(super) fn ask_for_stillness(&self) -> Result<oneshot::Receiver<Still>> {
        let (asked, still) = oneshot::channel();
        self.cells.fetch_add(1, Ordering::AcqRel);
        self.turns.try_send(Coming::Still(asked)).map_err(|refused| {
            self.cells.fetch_sub(1, Ordering::AcqRel);
            match refused {
                mpsc::error::TrySendError::Full(_) => conflict("too many cells wait in the context"),
                mpsc::error::TrySendError::Closed(_) => {
                    conflict("the context is lost: restart it or delete it")
                }
            }
        })?;
        Ok(still)
    }

    /// Does nothing until whoever asked for it is done, or its sandbox is gone.
    async fn stand_still(&self, exec: ExecId, next_cell: u64, asked: oneshot::Sender<Still>) {
        let go_on = CancellationToken::new();
        let still = Still {
            exec,
            next_cell,
            execution_count: self.execution_count.load(Ordering::Acquire),
            _go_on: go_on.clone().drop_guard(),
        };
        // Who asked may have given up: then what they would have got is dropped, and it goes on at once.
        drop(asked.send(still));
        tokio::select! {
            () = go_on.cancelled() => {}
            () = self.abandon.cancelled() => {}
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.cells.load(Ordering::Acquire) > 0
    }
}

/// Interpreters that this server holds.
#[derive(Debug, Default)]
pub(super) struct Interpreters(Mutex<HashMap<ContextId, Arc<Interpreter>>>);

impl Interpreters {
    fn all(&self) -> MutexGuard<'_, HashMap<ContextId, Arc<Interpreter>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, interpreter: &Arc<Interpreter>) {
        self.all().insert(interpreter.id, Arc::clone(interpreter));
    }

    /// Of a sandbox that who asks has looked up by its tenant.
    pub(super) fn get(&self, sandbox: SandboxId, id: ContextId) -> Option<Arc<Interpreter>> {
        self.all().get(&id).filter(|interpreter| interpreter.sandbox == sandbox).cloned()
    }

    pub(super) fn of_sandbox(&self, sandbox: SandboxId) -> Vec<Arc<Interpreter>> {
        self.all().values().filter(|interpreter| interpreter.sandbox == sandbox).cloned().collect()
    }

    /// Removes this very interpreter; its successor under the same id stays.
    fn remove(&self, interpreter: &Arc<Interpreter>) {
        let mut all = self.all();
        if all.get(&interpreter.id).is_some_and(|known| Arc::ptr_eq(known, interpreter)) {
            all.remove(&interpreter.id);
        }
    }
}

impl Inner {
    /// Makes a task the owner of an interpreter.
    pub(super) fn serve_context(
        self: &Arc<Self>,
        interpreter: Arc<Interpreter>,
        mut context: Context,
        coming: mpsc::Receiver<Coming>,
        left: Option<Left>,
    ) {
        context.keep_heads();
        // Counted before anybody can find the interpreter: who comes now has to wait.
        interpreter.cells.fetch_add(usize::from(left.is_some()), Ordering::AcqRel);
        self.interpreters.add(&interpreter);
        let inner = Arc::clone(self);
        self.tasks.start("serve a context", async move {
            inner.serve(&interpreter, context, coming, left).await;
            inner.interpreters.remove(&interpreter);
            interpreter.over.cancel();
        });
    }

    async fn serve(
        self: &Arc<Self>,
        interpreter: &Arc<Interpreter>,
        mut context: Context,
        mut coming: mpsc::Receiver<Coming>,
        left: Option<Left>,
    ) {
        let mut alive = true;
        if let Some(Left { execution, number, timeout }) = left {
            alive =
                self.run_cell(interpreter, &mut context, &execution, Work::Left(number), timeout, None).await;
            forget_ended(interpreter, &mut context, alive).await;
            interpreter.cells.fetch_sub(1, Ordering::AcqRel);
        }
        while alive {
            let turn = tokio::select! {
                biased;
                () = interpreter.abandon.cancelled() => break,
                () = interpreter.shut_down.cancelled() => break,
                turn = coming.recv() => turn,
            };
            // The sender is in the interpreter, which lives as long as this task.
            let Some(turn) = turn else { break };
            let counted = Counted(interpreter);
            match turn {
                Coming::Cell(turn) => {
                    let span = turn.span.clone();
                    alive = self.take_turn(counted, &mut context, *turn).instrument(span).await;
                }
                Coming::Still(asked) => {
                    // Its events cannot be shared, so what is told of it is taken out before the wait.
                    let (exec, next_cell) = (context.exec(), context.next_cell());
                    interpreter.stand_still(exec, next_cell, asked).await;
                }
            }
        }
        if alive && !interpreter.abandon.is_cancelled() {
            if let Err(error) = context.shut_down().await {
                tracing::debug!(context = %interpreter.id, %error, "an interpreter was gone before it was ended");
            }
        } else {
            tracing::info!(context = %interpreter.id, "a context is gone");
        }
        self.interpreters.remove(interpreter);
        coming.close();
        while let Some(turn) = coming.recv().await {
            // Whoever wants it to stand still hears by the dropped answer that it is gone.
            if let Coming::Cell(turn) = turn {
                self.refuse(*turn).await;
            }
        }
    }

    /// Runs one cell. `false`: the interpreter is gone.
    async fn take_turn(self: &Arc<Self>, counted: Counted<'_>, context: &mut Context, turn: Turn) -> bool {
        let interpreter = counted.0;
        let Turn { execution, code, timeout, audit, firm, awaits, told, .. } = turn;
        let changes = ContextChanges {
            position: Some(context.position() as i64),
            next_cell: Some(context.next_cell() as i64),
            cell_exec: Some(Some(execution.id())),
            ..ContextChanges::default()
        };
        if execution.cancel.is_cancelled() && audit.is_none() {
            let ended = self.killed(&execution);
            self.record_cell(&execution, ended, None).await;
            let _ = told.send(Ok(()));
            return true;
        }
        let row = &execution.row;
        let started = [body(&EventBodyView::ExecuteStart { exec: Some(row.id), run: None })];
        let announced = debug_span!("record_begin").in_scope(|| {
            audit
                .as_ref()
                .filter(|_| !firm)
                .and_then(|audit| Some((audit, self.store.announce_cell(row, &changes, &started, audit)?)))
        });
        let (began, ended) = match awaits {
            Awaits::Beginning => (Some(told), None),
            Awaits::End => (None, Some(told)),
        };
        let beginning = match announced {
            Some((audit, announced)) => {
                let (changes, started, tried) = (&changes, &started[..], false);
                Some(Beginning { changes, started, audit, announced, tried, told: began })
            }
            None => {
                let recorded = match &audit {
                    Some(audit) => self.store.begin_cell(row, &changes, &started, audit).await.map(drop),
                    None => {
                        let (tenant, id) = (interpreter.tenant, interpreter.id);
                        self.store.update_context(tenant, id, &changes).await.map(drop)
                    }
                };
                self.events.wake(interpreter.tenant);
                if let Err(error) = stored(recorded) {
                    self.not_begun(&execution, audit.is_some(), &error).await;
                    let _ = began.or(ended).map(|told| told.send(Err(error)));
                    return true;
                }
                let _ = began.map(|told| told.send(Ok(())));
                None
            }
        };
        let alive =
            self.run_cell(interpreter, context, &execution, Work::Code(&code), timeout, beginning).await;
        // Who hears of the end may ask again at once, and is not to find a line.
        drop(counted);
        if let Some(told) = ended {
            let _ = told.send(execution.problem().map_or(Ok(()), Err));
            // Whoever waits answers first, then what is left here is tidied up.
            tokio::task::yield_now().await;
        }
        forget_ended(interpreter, context, alive).await;
        self.settle_soon();
        alive
    }

    /// Ends a cell that was not begun. One that waited in line has a record, which gets an end.
    async fn not_begun(self: &Arc<Self>, execution: &Arc<Execution>, is_new: bool, error: &Error) {
        let ended = self.lost(execution, error);
        if is_new {
            self.executions.remove(execution.id());
            execution.tell_end(ended);
        } else {
            self.record_cell(execution, ended, None).await;
        }
    }

    /// Ends a cell whose turn never comes.
    async fn refuse(self: &Arc<Self>, turn: Turn) {
        let error = conflict("the context is lost: restart it or delete it");
        self.not_begun(&turn.execution, turn.audit.is_some(), &error).await;
        let _ = turn.told.send(Err(error));
    }
}

/// One of the cells that wait or run; ends the count when it is dropped.
struct Counted<'a>(&'a Arc<Interpreter>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.cells.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What came of the cells so far is stored, so nobody will ask the interpreter's log for it.
async fn forget_ended(interpreter: &Interpreter, context: &mut Context, alive: bool) {
    if alive && let Err(error) = context.commit().await {
        tracing::debug!(context = %interpreter.id, %error, "the log of a context could not be cut");
    }
}
