//! One cell in an interpreter: run, told as it goes, recorded.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use sandstorm_provider::{
    AttachFrom, EndCause, Error, ExecEnd as ProgramEnd, ExecEvent, ExecSignal, ExecStatus, OpContext, Result,
};
use sandstorm_store::ContextChanges;
use sandstorm_types::{ContextId, ErrorKind, ExecId, ProgramError, Status};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::DropGuard;
use tracing::{Instrument, Span, debug_span};

use super::beginning::Beginning;
use super::cell_log::CellLog;
use super::ended::{Ended, empty};
use super::events::body;
use super::execs::{Attached, ComingEnd, UNLIMITED, new_row};
use super::executions::{Execution, Stage};
use super::failure::{conflict, invalid, stored};
use super::follower::{CellEnd, walls};
use super::interpreter::{Awaits, Coming, Interpreter, Turn};
use super::listener;
use super::living::Living;
use super::{Caller, Claim, Control, EventBodyView, ExecWork, Inner, NewExec};
use crate::context::{Cell, CellStatus, Context, ContextEvent, Interrupter, Listener};
use crate::outcome::{self, Outcome};
use crate::prepare::unindented;
use crate::run::SANDBOX_ENDED;
use crate::spool::Collected;

/// How long an interpreter may take to come back from an interrupt.
const COME_BACK: Duration = Duration::from_secs(2);
/// How long a client may take what an interrupted cell had printed before it misses the rest.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long the end of a lost interpreter is looked for, to tell why it ended.
const AUTOPSY: Duration = Duration::from_millis(300);

/// What to do in an interpreter.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work<'a> {
    Code(&'a str),
    /// To follow the cell of this number, which an earlier server began.
    Left(u64),
}

/// How a cell's time in the interpreter went.
enum Course {
    Done(Cell),
    /// The kernel never got it.
    Never,
    /// It could not be sent.
    Refused(Error),
    /// The interpreter is gone.
    Gone(Error),
    /// It did not come back from an interrupt.
    Stuck,
}

/// Hands what a cell says to its log, and slows the cell down for its client.
struct Hearing<'a> {
    log: &'a CellLog,
    interrupter: &'a Interrupter,
    /// Until when an interrupted cell waits for its client.
    until: OnceLock<Instant>,
}

impl Listener for Hearing<'_> {
    fn hear(&self, event: ContextEvent) -> bool {
        match event {
            ContextEvent::Output { stream, bytes } => self.log.output(stream, &bytes),
            ContextEvent::Display(shown) => {
                self.log.result(shown);
                true
            }
        }
    }

    fn room(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let patience = async {
                self.interrupter.interrupted().await;
                tokio::time::sleep_until(*self.until.get_or_init(|| Instant::now() + LAST_WORDS)).await;
            };
            tokio::select! {
                biased;
                () = self.log.room() => {}
                () = patience => self.log.give_up(),
            }
        })
    }
}

/// A cell that begins, or waits in line.
struct Placed {
    execution: Arc<Execution>,
    log: Arc<CellLog>,
    told: oneshot::Receiver<Result<()>>,
    in_line: bool,
    /// Ends it with whoever asked for it, unless it is to be kept.
    guard: Option<DropGuard>,
}

impl Placed {
    async fn told(&mut self) -> Result<()> {
        (&mut self.told).await.map_err(|_| conflict("the server is stopping"))?
    }
}

impl Control {
    /// Begins a cell, or puts it in line behind others.
    pub(super) async fn start_cell(
        &self,
        caller: &Caller,
        living: &Arc<Living>,
        context: ContextId,
        new: NewExec,
    ) -> Result<Attached> {
        let mut placed = self.place_cell(caller, living, context, new, Awaits::Beginning).await?;
        if !placed.in_line {
            placed.told().await?;
        }
        let Placed { execution, log, guard, .. } = placed;
        let events = listener::of_clients_cell(log, guard);
        let view = self.0.exec_view_of(&execution.row, None);
        Ok(Attached { view, events, end: ComingEnd::Coming(execution) })
    }

    /// Runs a cell to its end, behind those before it.
    pub(super) async fn finish_cell(
        &self,
        caller: &Caller,
        living: &Arc<Living>,
        context: ContextId,
        new: NewExec,
        claim: Option<&Claim>,
    ) -> Result<Outcome> {
        let mut placed = self.place_cell(caller, living, context, new, Awaits::End).await?;
        Claim::while_wanted(claim, placed.told()).await?;
        let ended = placed.execution.end().ok_or_else(|| conflict("the server is stopping"))?;
        let mut result = ended.result.clone();
        if !result.truncated.stdout && !result.truncated.stderr {
            return Ok(result.into());
        }
        // The result has the beginning of what was printed, the log all of it up to the limit.
        let (said, truncated) = self.collect(listener::of_cell(Arc::clone(&placed.log))).await;
        let Collected { stdout, stderr, cut, whole } = said.finish(truncated);
        result.truncated.stdout = truncated.stdout || cut.stdout;
        result.truncated.stderr = truncated.stderr || cut.stderr;
        result.set_output(stdout, stderr);
        Ok(Outcome { result, whole })
    }

    async fn place_cell(
        &self,
        caller: &Caller,
        living: &Arc<Living>,
        context: ContextId,
        new: NewExec,
        awaits: Awaits,
    ) -> Result<Placed> {
        if new.stdin.is_some() || new.stdin_stream || new.tty.is_some() {
            return Err(invalid("a cell has no input and no terminal of its own"));
        }
        if !new.env.is_empty() || new.cwd.is_some() || new.user.is_some() {
            return Err(invalid("variables, folder and user are those of the context, not of a cell"));
        }
        let interpreter = match self.0.interpreters.get(living.id, context) {
            Some(interpreter) => interpreter,
            None => return Err(self.0.no_interpreter(caller.tenant, living.id, context).await?),
        };
        // No client gives one to a cell: it is known from an idempotency key.
        let firm = new.id.is_some() && self.0.store.is_shared();
        let id = new.id.unwrap_or_else(ExecId::random);
        let row = new_row(caller, living.id, id, &new);
        let limits = living.row().spec.limits;
        let usual = if new.background { UNLIMITED } else { limits.wall };
        let log = CellLog::new(id, limits.output.as_u64(), self.0.runner.spools.clone());
        if awaits == Awaits::Beginning && !new.background {
            log.attend();
        }
        let ExecWork::Cell { code, .. } = new.work else {
            return Err(invalid("only a cell runs in a context"));
        };
        let code = unindented(&interpreter.language, &code).into_owned();
        let execution = Execution::new(row, living, Stage::Nowhere, Some(Arc::clone(&log)));
        execution.set_input(interpreter.input.clone());
        let guard = (!execution.row.lasting).then(|| execution.cancel.clone().drop_guard());
        let in_line = interpreter.cells.fetch_add(1, Ordering::AcqRel) > 0;
        let (tell, told) = oneshot::channel();
        let turn = Turn {
            execution: Arc::clone(&execution),
            code,
            timeout: new.timeout.unwrap_or(usual),
            audit: Some(caller.audit("exec.cell", id)),
            firm,
            awaits,
            told: tell,
            span: Span::current(),
        };
        if in_line {
            let inner = Arc::clone(&self.0);
            // Whoever asked may leave at any moment: its place in line and its record are not left half made.
            self.0.tasks.complete(async move { inner.put_in_line(&interpreter, turn).await }).await?;
        } else {
            self.0.executions.add(&execution);
            if let Err((error, _)) = send(&interpreter, turn) {
                self.0.executions.remove(id);
                return Err(error);
            }
        }
        Ok(Placed { execution, log, told, in_line, guard })
    }
}

/// Hands a turn to the interpreter; one that is not taken is no longer counted.
fn send(interpreter: &Interpreter, turn: Turn) -> std::result::Result<(), (Error, Arc<Execution>)> {
    let execution = Arc::clone(&turn.execution);
    let error = match interpreter.turns.try_send(Coming::Cell(Box::new(turn))) {
        Ok(()) => return Ok(()),
        Err(mpsc::error::TrySendError::Full(_)) => {
            Error::new(ErrorKind::Capacity, "too many cells wait in this context")
                .with_retry_after(Duration::from_secs(1))
        }
        Err(mpsc::error::TrySendError::Closed(_)) => conflict("the context is lost: restart it or delete it"),
    };
    interpreter.cells.fetch_sub(1, Ordering::AcqRel);
    Err((error, execution))
}

impl Inner {
    /// A cell that waits is known by its record before its turn comes.
    async fn put_in_line(self: &Arc<Self>, interpreter: &Interpreter, mut turn: Turn) -> Result<()> {
        let row = &turn.execution.row;
        if let Some(audit) = turn.audit.take() {
            let started = body(&EventBodyView::ExecuteStart { exec: Some(row.id), run: None });
            if let Err(error) = stored(self.store.insert_exec(row, &[started], &audit).await) {
                interpreter.cells.fetch_sub(1, Ordering::AcqRel);
                return Err(error);
            }
            self.events.wake(row.tenant);
        }
        self.executions.add(&turn.execution);
        match send(interpreter, turn) {
            Ok(()) => Ok(()),
            Err((error, execution)) => {
                let ended = self.lost(&execution, &error);
                self.record_cell(&execution, ended, None).await;
                Err(error)
            }
        }
    }

    /// Runs a cell to its end and records it, with its beginning unless that is on record. `false`: the interpreter is gone.
    pub(super) async fn run_cell(
        self: &Arc<Self>,
        interpreter: &Arc<Interpreter>,
        context: &mut Context,
        execution: &Arc<Execution>,
        work: Work<'_>,
        timeout: Duration,
        mut beginning: Option<Beginning<'_>>,
    ) -> bool {
        interpreter.set_running(Some(execution));
        let began = std::time::Instant::now();
        let log = execution.cell.as_ref().expect("a cell has a log");
        log.start(execution.id());
        let network = self.provider.refusals(&execution.living.id);
        let course = self.course(interpreter, context, execution, work, timeout);
        let course = course.instrument(debug_span!("program"));
        let (course, timed_out) = self.beside_beginning(course, execution, &mut beginning).await;
        interpreter.set_running(None);
        let mut result = empty(execution.id(), Status::Killed, self.provider.info(), walls(execution));
        let (mut problem, mut alive) = (None, true);
        match course {
            Course::Done(cell) => {
                result.status = match cell.status {
                    CellStatus::Ok => Status::Ok,
                    CellStatus::Error => Status::Error,
                    CellStatus::Interrupted if timed_out => Status::Timeout,
                    CellStatus::Interrupted => Status::Killed,
                };
                interpreter.execution_count.store(cell.execution_count, Ordering::Release);
                result.truncated = cell.truncated;
                result.metrics.stdout_bytes = cell.written.stdout;
                result.metrics.stderr_bytes = cell.written.stderr;
                result.set_output(cell.stdout, cell.stderr);
                result.results = cell.results;
                result.error = cell.error;
            }
            Course::Never => {
                let error = Error::new(ErrorKind::Provider, "the server ended before the cell was begun");
                problem = self.lost(execution, &error).problem;
            }
            Course::Refused(error) => problem = self.lost(execution, &error).problem,
            Course::Stuck => {
                alive = false;
                result.status = Status::Timeout;
                result.error =
                    Some(gone("the interpreter did not come back from an interrupt and was ended"));
                let cx = OpContext::new(interpreter.tenant);
                if let Err(error) = self.provider.signal(&cx, &context.exec(), ExecSignal::Kill).await {
                    tracing::warn!(context = %interpreter.id, %error, "a stuck interpreter could not be ended");
                }
            }
            Course::Gone(error) => {
                alive = false;
                match self.autopsy(interpreter, context.exec()).await {
                    Some(end) if end.cause != EndCause::Sandbox && execution.doomed.borrow().is_none() => {
                        result.status = match outcome::status_of(&end) {
                            // An interpreter that exits of its own accord has not done what it was asked.
                            Status::Ok => Status::Error,
                            status => status,
                        };
                        match end.status {
                            ExecStatus::Code(code) => result.exit_code = Some(code),
                            ExecStatus::Signal(signal) => result.signal = Some(signal),
                        }
                        result.error = Some(gone("the interpreter ended"));
                    }
                    _ => problem = self.lost(execution, &error).problem,
                }
            }
        }
        result.denied = network.map(|network| network.seen()).unwrap_or_default();
        result.success = result.status == Status::Ok;
        result.metrics.exec_ms = began.elapsed().as_secs_f64() * 1000.0;
        result.metrics.total_ms = execution.ran_for().as_secs_f64() * 1000.0;
        result.metrics.queue_ms = (result.metrics.total_ms - result.metrics.exec_ms).max(0.0);
        if let Some(error) = &result.error {
            log.error(error.clone());
        }
        let changes = ContextChanges {
            position: Some(context.position() as i64),
            next_cell: Some(context.next_cell() as i64),
            cell_exec: Some(None),
            execution_count: Some(interpreter.execution_count.load(Ordering::Acquire) as i64),
            ..ContextChanges::default()
        };
        let end = CellEnd { changes, beginning };
        let recording = self.record_cell(execution, Ended::new(result, problem), Some(end));
        recording.instrument(debug_span!("record_end")).await;
        alive
    }

    /// Goes through a cell's course, and records its beginning when that is due before its end.
    async fn beside_beginning<T>(
        self: &Arc<Self>,
        course: impl Future<Output = T>,
        execution: &Execution,
        beginning: &mut Option<Beginning<'_>>,
    ) -> T {
        let mut course = std::pin::pin!(course);
        let is_due = async {
            match beginning.as_ref() {
                Some(beginning) => beginning.is_due().await,
                None => std::future::pending().await,
            }
        };
        // In this order: the interpreter has the code before anything is waited for.
        tokio::select! {
            biased;
            ended = &mut course => ended,
            () = is_due => {
                tokio::join!(biased; course, self.record_beginning_of_cell(execution, beginning)).0
            }
        }
    }

    /// The cell's time in the interpreter, and whether it was too long.
    async fn course(
        &self,
        interpreter: &Interpreter,
        context: &mut Context,
        execution: &Execution,
        work: Work<'_>,
        timeout: Duration,
    ) -> (Course, bool) {
        let log = execution.cell.as_ref().expect("a cell has a log");
        let interrupter = Context::interrupter();
        let hearing = Hearing { log, interrupter: &interrupter, until: OnceLock::new() };
        let running = async {
            match work {
                Work::Code(code) => context.execute_for(code, &interrupter, &hearing).await.map(Some),
                Work::Left(number) => context.resume_cell_for(number, &interrupter, &hearing).await,
            }
        };
        tokio::pin!(running);
        let mut deadline = Instant::now().checked_add(timeout);
        let (mut timed_out, mut interrupted) = (false, false);
        let course = loop {
            let time_up = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // First what is seldom ready: a cell that talks without end would leave it no turn.
                biased;
                () = execution.cancel.cancelled(), if !interrupted => {
                    interrupted = true;
                    interrupter.interrupt();
                }
                () = interpreter.shut_down.cancelled(), if !interrupted => {
                    interrupted = true;
                    interrupter.interrupt();
                    deadline = Some(Instant::now() + COME_BACK);
                    timed_out = true;
                }
                () = time_up => {
                    if timed_out {
                        break Course::Stuck;
                    }
                    timed_out = true;
                    interrupter.interrupt();
                    deadline = Some(Instant::now() + COME_BACK);
                }
                done = &mut running => break match done {
                    Ok(Some(cell)) => Course::Done(cell),
                    Ok(None) => Course::Never,
                    Err(error) if error.kind() == ErrorKind::InvalidRequest => Course::Refused(error),
                    Err(error) => Course::Gone(error),
                },
                () = interpreter.abandon.cancelled() => {
                    break Course::Gone(Error::new(ErrorKind::Provider, SANDBOX_ENDED));
                }
            }
        };
        // Asked to end before its time was over: that is no timeout.
        let timed_out = timed_out && !interpreter.shut_down.is_cancelled();
        (course, timed_out)
    }

    /// How a lost interpreter ended, where the provider can tell.
    async fn autopsy(&self, interpreter: &Interpreter, exec: ExecId) -> Option<ProgramEnd> {
        let cx = OpContext::new(interpreter.tenant).with_timeout(AUTOPSY);
        let look = async {
            let mut exec = self.provider.attach(&cx, &exec, AttachFrom::End).await.ok()?;
            while let Some(Ok(event)) = exec.events.next().await {
                if let ExecEvent::Exited(end) = event {
                    return Some(end);
                }
            }
            None
        };
        tokio::time::timeout(AUTOPSY, look).await.ok().flatten()
    }

    /// Stores the end of a cell, then tells it.
    pub(super) async fn record_cell(
        self: &Arc<Self>,
        execution: &Arc<Execution>,
        mut ended: Ended,
        cell: Option<CellEnd<'_>>,
    ) {
        let log = execution.cell.as_ref().expect("a cell has a log");
        let (last, number) = log.with_end(&ended);
        ended.events = log.few(&last);
        ended.last = Some(number);
        self.record(execution, ended, cell).await;
        log.close(last);
        self.ended_cells.keep(execution.id(), Arc::clone(log));
    }
}

fn gone(why: &str) -> ProgramError {
    ProgramError { name: "ContextLost".to_owned(), value: why.to_owned(), traceback: Vec::new() }
}
