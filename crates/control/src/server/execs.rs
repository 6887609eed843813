//! Programs and pieces of code in a sandbox.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt};
use sandstorm_provider::{AttachFrom, Command, Error, ExecSignal, Result, TtySize};
use sandstorm_store::{Audit, ExecRow};
use sandstorm_types::{
    ByteSize, ContextId, EnvMap, EnvName, ErrorKind, Event, EventBody, ExecId, GuestPath, LanguageName,
    PerStream, RunResult, SandboxId, Status, Stream, Timestamp, User,
};
use tokio::sync::oneshot;

use super::ended::Ended;
use super::events::body;
use super::executions::{Execution, Stage};
use super::failure::{conflict, invalid, not_found, stored};
use super::listener;
use super::living::Living;
use super::program::{Job, compiler_of};
use super::{Caller, Claim, Control, EventBodyView, Inner, Verb};
use crate::outcome::Outcome;
use crate::run::SANDBOX_ENDED;
use crate::spool::{Collected, Collector};

/// The time limit of background work that was given none: its sandbox ends first.
pub(super) const UNLIMITED: Duration = Duration::from_secs(365 * 86_400);
/// The most that a list of execs holds.
const MOST: u32 = 1000;
/// How long the ends of a gone sandbox's execs are waited for.
const FOLLOWED: Duration = Duration::from_secs(2);
/// Longest title that is kept.
const TITLE: usize = 200;
/// Kinds of execs, as they are stored.
pub(super) const COMMAND: &str = "command";
pub(super) const CODE: &str = "code";
pub(super) const CELL: &str = "cell";
/// A command whose output is not kept once its listener has it.
pub(super) const STREAM: &str = "stream";

/// What to run.
#[derive(Debug, Clone)]
pub enum ExecWork {
    Command(Command),
    /// A one-off program in the sandbox: compiled languages are compiled first, as a run does it.
    Code {
        language: LanguageName,
        code: String,
        args: Vec<String>,
    },
    /// A cell in a living interpreter.
    Cell {
        context: ContextId,
        code: String,
    },
}

/// An exec to start.
#[derive(Debug, Clone)]
pub struct NewExec {
    pub work: ExecWork,
    pub env: EnvMap,
    pub cwd: Option<GuestPath>,
    pub user: Option<User>,
    pub tty: Option<TtySize>,
    /// All of its input, or `None` with `stdin_stream` to write it later.
    pub stdin: Option<Bytes>,
    pub stdin_stream: bool,
    /// The sandbox's limit of time by the clock unless given; in the background none but the sandbox's own end.
    pub timeout: Option<Duration>,
    /// Returns at once; the program runs on whoever listens.
    pub background: bool,
    /// A foreground program that outlives its listener.
    pub keep_on_disconnect: bool,
    /// Chosen by the caller, so that it is known before the answer comes; one that exists already is a conflict. Not for
    /// cells.
    pub id: Option<ExecId>,
    /// Bytes of a program's output that are kept; the sandbox's limit unless given, and at most that.
    pub output: Option<ByteSize>,
    /// Whether output is kept for those who attach later. Without it, output has no limit, waits for its listener and stays
    /// until [`ExecSignal::Forget`]: for a command in the background that lives long and writes much.
    pub replay: bool,
}

impl NewExec {
    /// With nothing else said: in the foreground, without input, as the sandbox has it.
    pub fn of(work: ExecWork) -> Self {
        Self {
            work,
            env: EnvMap::new(),
            cwd: None,
            user: None,
            tty: None,
            stdin: None,
            stdin_stream: false,
            timeout: None,
            background: false,
            keep_on_disconnect: false,
            id: None,
            output: None,
            replay: true,
        }
    }
}

/// An exec as its owner sees it.
#[derive(Debug, Clone)]
pub struct ExecView {
    pub id: ExecId,
    pub sandbox: SandboxId,
    pub context: Option<ContextId>,
    /// What was asked for, for people: the command line or the language.
    pub title: String,
    pub background: bool,
    pub tty: bool,
    /// Whether its output is kept for those who attach later.
    pub replay: bool,
    /// `None` while it runs.
    pub status: Option<Status>,
    /// Once it ended and while it is kept.
    pub result: Option<RunResult>,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

/// An exec that was started or attached to.
pub struct Attached {
    pub view: ExecView,
    /// From `start` to `end`. Dropping it ends a foreground exec that this call started, unless it asked to be kept;
    /// dropping one from [`Control::attach`] ends nothing.
    pub events: BoxStream<'static, Event>,
    pub(super) end: ComingEnd,
}

/// Where the end of an exec will be known.
pub(super) enum ComingEnd {
    Known(Box<Ended>),
    Coming(Arc<Execution>),
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attached").field("view", &self.view).finish_non_exhaustive()
    }
}

impl Control {
    #[tracing::instrument(skip_all, fields(%sandbox))]
    pub async fn exec(&self, caller: &Caller, sandbox: SandboxId, new: NewExec) -> Result<Attached> {
        let living = self.ready_for(caller, sandbox, &new).await?;
        let _working = living.work().await?;
        match new.work {
            ExecWork::Cell { context, .. } => self.start_cell(caller, &living, context, new).await,
            _ => self.start_program(caller, &living, new, true).await,
        }
    }

    /// Runs to the end and gives the result, for callers that do not stream. Dropping the future ends what it began, as
    /// dropping the events of [`Control::exec`] does.
    #[tracing::instrument(skip_all, fields(%sandbox))]
    pub async fn exec_to_end(&self, caller: &Caller, sandbox: SandboxId, new: NewExec) -> Result<RunResult> {
        self.exec_to_end_whole(caller, sandbox, new).await?.into_result()
    }

    /// The same, with long output where it takes no memory.
    #[tracing::instrument(skip_all, fields(%sandbox))]
    pub async fn exec_to_end_whole(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        new: NewExec,
    ) -> Result<Outcome> {
        self.exec_wanted(caller, sandbox, new, None).await
    }

    /// The same; with a claim it is begun in any case, and ends when nobody waits for the answer any more.
    pub(super) async fn exec_wanted(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        new: NewExec,
        claim: Option<&Claim>,
    ) -> Result<Outcome> {
        let living = self.ready_for(caller, sandbox, &new).await?;
        let _working = living.work().await?;
        match new.work {
            ExecWork::Cell { context, .. } => self.finish_cell(caller, &living, context, new, claim).await,
            _ => {
                let attached = self.start_program(caller, &living, new, false).await?;
                Claim::while_wanted(claim, self.finish_whole(attached)).await
            }
        }
    }

    /// The sandbox, if something may begin in it now.
    async fn ready_for(&self, caller: &Caller, sandbox: SandboxId, new: &NewExec) -> Result<Arc<Living>> {
        caller.require_inside(sandbox, Verb::Run)?;
        self.0.accepts_work()?;
        let living = self.0.ready(caller.tenant, sandbox).await?;
        if let Some(timeout) = new.timeout
            && (timeout.is_zero() || timeout > self.0.settings.longest_lifetime)
        {
            return Err(invalid("a timeout is longer than nothing and not longer than a sandbox may live"));
        }
        Ok(living)
    }

    /// `streamed`: whoever asked hears all of the output.
    async fn start_program(
        &self,
        caller: &Caller,
        living: &Arc<Living>,
        new: NewExec,
        streamed: bool,
    ) -> Result<Attached> {
        let (id, lasting) = (new.id.unwrap_or_else(ExecId::random), new.background || new.keep_on_disconnect);
        let most = living.row().spec.limits.output;
        if new.output.is_some_and(|output| output > most) {
            return Err(invalid("more output is to be kept than the sandbox's limit").with("limit", most));
        }
        let streams = new.background && matches!(new.work, ExecWork::Command(_)) && new.output.is_none();
        if !new.replay && !streams {
            return Err(invalid("only a command in the background, without `output`, does without replay"));
        }
        let row = new_row(caller, living.id, id, &new);
        let (mut job, action) = match new.work {
            ExecWork::Command(command) => (Job::command(command)?, "exec.command"),
            ExecWork::Code { language, code, args } => {
                let row = living.row();
                let elsewhere = self.0.is_elsewhere(&row);
                (Job::code(&self.0, &row.spec, id, language, code, args, elsewhere)?, "exec.code")
            }
            ExecWork::Cell { .. } => return Err(invalid("a cell runs in a context")),
        };
        job.set_stdin(new.stdin, new.stdin_stream)?;
        job.add_env(&new.env)?;
        if let Some(trace) = &caller.traceparent {
            let mut env = EnvMap::new();
            let name: EnvName = "TRACEPARENT".parse().expect("it is a good name");
            if new.env.get(name.as_str()).is_none() && env.insert(name, trace.clone()).is_ok() {
                job.add_env(&env)?;
            }
        }
        let request = &mut job.request;
        request.id = id;
        request.cwd = new.cwd;
        request.user = new.user;
        request.tty = new.tty;
        request.timeout = new.timeout.or(new.background.then_some(UNLIMITED));
        request.output = new.output;
        request.replay = new.replay;
        request.streamed = streamed && new.output.is_none();
        request.background = lasting;
        request.lasting = lasting;
        let (inner, living, caller) = (Arc::clone(&self.0), Arc::clone(living), caller.clone());
        let audit = caller.audit(action, id);
        // Whoever asked may leave at any moment; what is on record as begun is followed to its end all the same.
        let beginning = async move { inner.begin_program(&caller, &living, row, job, audit).await };
        self.0.tasks.complete(beginning).await
    }

    /// Waits for the end and gives the result, for callers that do not stream. Dropping the future ends it as dropping
    /// the events does.
    pub async fn finish(&self, attached: Attached) -> Result<RunResult> {
        self.finish_whole(attached).await?.into_result()
    }

    async fn finish_whole(&self, attached: Attached) -> Result<Outcome> {
        let Attached { events, end, view } = attached;
        let (said, missed) = self.collect(events).await;
        let ended = match end {
            ComingEnd::Known(ended) => *ended,
            ComingEnd::Coming(execution) => {
                let ended = execution.end().ok_or_else(|| conflict("the server is stopping"))?;
                Ended::clone(&ended)
            }
        };
        if let Some(problem) = ended.problem {
            return Err(Error::new(problem.code, problem.detail).with("exec", view.id));
        }
        let mut result = ended.result;
        // What was heard is whole up to the limit; what is stored may have been cut shorter.
        if view.context.is_none() {
            let (metrics, came) = (&result.metrics, said.came());
            result.truncated.stdout = metrics.stdout_bytes > came.stdout;
            result.truncated.stderr = metrics.stderr_bytes > came.stderr;
            if result.status == Status::CompileError {
                result.truncated = Default::default();
            }
        } else {
            result.truncated = missed;
        }
        let Collected { stdout, stderr, cut, whole } = said.finish(result.truncated);
        result.truncated.stdout |= cut.stdout;
        result.truncated.stderr |= cut.stderr;
        result.set_output(stdout, stderr);
        Ok(Outcome { result, whole })
    }

    /// Takes all output in, and what the last event says was missing of it.
    pub(super) async fn collect(
        &self,
        mut events: BoxStream<'static, Event>,
    ) -> (Collector, PerStream<bool>) {
        let mut said = Collector::new(self.0.runner.spools.clone());
        let mut missed = PerStream::default();
        let unwanted = self.0.tasks.stopping();
        while let Some(event) = events.next().await {
            match event.body {
                EventBody::Stdout(chunk) => said.add(Stream::Stdout, chunk.data.as_bytes(), unwanted).await,
                EventBody::Stderr(chunk) => said.add(Stream::Stderr, chunk.data.as_bytes(), unwanted).await,
                EventBody::End(end) => missed = end.truncated,
                _ => {}
            }
        }
        (said, missed)
    }

    /// Events after number `after` (all of them with `None`), also of an exec that has ended, while it is kept.
    #[tracing::instrument(skip_all, fields(%sandbox, %exec))]
    pub async fn attach(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        exec: ExecId,
        after: Option<u64>,
    ) -> Result<Attached> {
        let (row, execution) = self.find(caller, sandbox, exec).await?;
        let (events, end, view) = match execution {
            Some(execution) => {
                let events = match &execution.cell {
                    Some(log) => listener::of_cell(Arc::clone(log)),
                    None => listener::of_program(&self.0, &execution, None, false, after),
                };
                (events, ComingEnd::Coming(execution), self.0.exec_view_of(&row, None))
            }
            None => {
                let ended = row.result.clone().and_then(Ended::from_json);
                if ended.is_none() {
                    self.0.keep_off(sandbox).await?;
                }
                let ended = ended.ok_or_else(|| conflict("this exec is not in the hands of this server"))?;
                let view = self.0.exec_view_of(&row, Some(&ended));
                let events = match self.0.ended_cells.get(exec) {
                    Some(log) => listener::of_cell(log),
                    None if row.kind == STREAM => {
                        listener::of_ended_stream(&self.0, &caller.operation(), exec, ended.clone(), after)
                            .await
                    }
                    None => {
                        let stage = stage_of_ended(&row, &ended);
                        listener::of_ended(&self.0, &caller.operation(), exec, stage, ended.clone()).await
                    }
                };
                (events, ComingEnd::Known(Box::new(ended)), view)
            }
        };
        Ok(Attached { view, events: listener::after(events, after), end })
    }

    pub async fn exec_view(&self, caller: &Caller, sandbox: SandboxId, exec: ExecId) -> Result<ExecView> {
        let (row, _) = self.find(caller, sandbox, exec).await?;
        let ended = row.result.clone().and_then(Ended::from_json);
        Ok(self.0.exec_view_of(&row, ended.as_ref()))
    }

    /// The latest ones first, at most 1,000.
    pub async fn execs(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        running_only: bool,
    ) -> Result<Vec<ExecView>> {
        caller.require_inside(sandbox, Verb::Run)?;
        self.0.row(caller.tenant, sandbox).await?.ok_or_else(|| not_found("sandbox"))?;
        let rows = stored(self.0.store.list_execs(caller.tenant, sandbox, running_only, MOST).await)?;
        let view = |row: ExecRow| {
            let ended = row.result.clone().and_then(Ended::from_json);
            self.0.exec_view_of(&row, ended.as_ref())
        };
        Ok(rows.into_iter().map(view).collect())
    }

    /// Kill, interrupt, resize, close stdin. One that has ended takes it in silence.
    #[tracing::instrument(skip_all, fields(%sandbox, %exec))]
    pub async fn signal(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        exec: ExecId,
        signal: ExecSignal,
    ) -> Result<()> {
        let (row, execution) = self.find(caller, sandbox, exec).await?;
        if matches!(signal, ExecSignal::Forget { .. }) && row.kind != STREAM {
            return Err(invalid("only what is not kept for replay can be forgotten"));
        }
        let Some(execution) = execution else {
            return if row.ended_at.is_none() { self.0.keep_off(sandbox).await } else { Ok(()) };
        };
        execution.living.touch();
        let ends = matches!(signal, ExecSignal::Kill | ExecSignal::Terminate | ExecSignal::Interrupt);
        if execution.cell.is_some() {
            return match signal {
                // The interpreter stays, whatever is said to one of its cells.
                _ if ends => {
                    execution.cancel.cancel();
                    Ok(())
                }
                ExecSignal::CloseStdin => Ok(()),
                _ => Err(invalid("a cell can only be interrupted")),
            };
        }
        let stage = *execution.stage.borrow();
        match stage {
            Stage::Log { log, .. } => self.0.provider.signal(&caller.operation(), &log, signal).await,
            Stage::Preparing if ends => {
                execution.cancel.cancel();
                Ok(())
            }
            Stage::Preparing => Err(conflict("the program is still being compiled")),
            Stage::Nowhere => Ok(()),
        }
    }

    /// Resolves when the sandbox has the bytes, so that the program gets them whatever becomes of this server; waits while the
    /// program does not read.
    pub async fn write_stdin(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        exec: ExecId,
        bytes: Bytes,
    ) -> Result<()> {
        self.write_stdin_at(caller, sandbox, exec, bytes, None).await.map(drop)
    }

    /// The same with the place of the first byte in the program's input: what the program has had already is left out, and
    /// a gap is a conflict. Gives how many bytes it has had in all, where that is counted; the cells of a context have one
    /// input.
    #[tracing::instrument(skip_all, fields(%sandbox, %exec))]
    pub async fn write_stdin_at(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        exec: ExecId,
        bytes: Bytes,
        at: Option<u64>,
    ) -> Result<Option<u64>> {
        let (row, execution) = self.find(caller, sandbox, exec).await?;
        if execution.is_none() && row.ended_at.is_none() {
            self.0.keep_off(sandbox).await?;
        }
        let execution = execution.ok_or_else(|| conflict("the program takes no more input"))?;
        self.0.ready(caller.tenant, sandbox).await?;
        if execution.cell.is_none() {
            execution.wait_stage().await;
        }
        let stage = *execution.stage.borrow();
        let input = match (execution.input(), stage) {
            (Some(input), _) => input,
            // Taken over from an earlier server, and whoever follows it is still on the way to it.
            (None, Stage::Log { log, complaints: false }) => {
                self.0.provider.attach(&caller.operation(), &log, AttachFrom::End).await?.input
            }
            (None, _) => return Err(conflict("the program takes no input")),
        };
        input.deliver(bytes, at).await
    }

    /// An exec of the caller's sandbox: its row, and itself while it is in flight.
    async fn find(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        exec: ExecId,
    ) -> Result<(ExecRow, Option<Arc<Execution>>)> {
        caller.require_inside(sandbox, Verb::Run)?;
        let in_flight = self.0.executions.get(sandbox, exec);
        if let Some(execution) = in_flight.filter(|execution| execution.row.tenant == caller.tenant) {
            return Ok((execution.row.clone(), Some(execution)));
        }
        let row = stored(self.0.store.exec(caller.tenant, sandbox, exec).await)?;
        Ok((row.ok_or_else(|| not_found("exec"))?, None))
    }
}

/// Where an ended exec's events are, by what came of it.
pub(super) fn stage_of_ended(row: &ExecRow, ended: &Ended) -> Stage {
    match (row.kind.as_str(), ended.result.status) {
        (CELL, _) => Stage::Nowhere,
        (CODE, Status::CompileError) => Stage::Log { log: compiler_of(row.id), complaints: true },
        _ => Stage::Log { log: row.id, complaints: false },
    }
}

/// The record of an exec that is about to start.
pub(super) fn new_row(caller: &Caller, sandbox: SandboxId, id: ExecId, new: &NewExec) -> ExecRow {
    let command = if new.replay { COMMAND } else { STREAM };
    let (title, kind, context) = match &new.work {
        ExecWork::Command(Command::Program(argv)) => (argv.join(" "), command, None),
        ExecWork::Command(Command::Shell(line)) => (line.clone(), command, None),
        ExecWork::Code { language, .. } => (language.to_string(), CODE, None),
        ExecWork::Cell { context, .. } => (context.to_string(), CELL, Some(*context)),
    };
    ExecRow {
        id,
        tenant: caller.tenant,
        sandbox,
        context,
        title: title.chars().filter(|c| !c.is_control()).take(TITLE).collect(),
        kind: kind.to_owned(),
        background: new.background,
        tty: new.tty.is_some(),
        lasting: new.background || new.keep_on_disconnect,
        timeout_ms: new.timeout.map(|span| i64::try_from(span.as_millis()).unwrap_or(i64::MAX)),
        started_at: Timestamp::now(),
        ended_at: None,
        status: None,
        result: None,
        detail: None,
    }
}

impl Inner {
    /// Records a program and has a task carry it out. Dropping what this gives ends a program that is not lasting.
    async fn begin_program(
        self: &Arc<Self>,
        caller: &Caller,
        living: &Arc<Living>,
        row: ExecRow,
        job: Job,
        audit: Audit,
    ) -> Result<Attached> {
        let lasting = row.lasting;
        let begun = body(&EventBodyView::ExecuteStart { exec: Some(row.id), run: None });
        stored(self.store.insert_exec(&row, &[begun], &audit).await)?;
        self.events.wake(caller.tenant);
        let execution = Execution::new(row, living, Stage::Preparing, None);
        self.executions.add(&execution);
        let (own, heard) = oneshot::channel();
        let (started, start) = oneshot::channel();
        let compiles = job.compile.is_some();
        let events = listener::of_program(self, &execution, Some(heard), !lasting, None);
        let work = Arc::clone(self).carry_out(Arc::clone(&execution), job, caller.operation(), own, started);
        self.tasks.start("carry out an exec", work);
        // A compiler takes its time, which whoever listens spends listening.
        if !compiles {
            start.await.map_err(|_| conflict("the server is stopping"))??;
        }
        let view = self.exec_view_of(&execution.row, None);
        Ok(Attached { view, events, end: ComingEnd::Coming(execution) })
    }

    pub(super) fn exec_view_of(&self, row: &ExecRow, ended: Option<&Ended>) -> ExecView {
        ExecView {
            id: row.id,
            sandbox: row.sandbox,
            context: row.context,
            title: row.title.clone(),
            background: row.background,
            tty: row.tty,
            replay: row.kind != STREAM,
            status: row.status.as_deref().and_then(Status::named),
            result: ended.map(|ended| ended.result.clone()),
            started_at: row.started_at,
            ended_at: row.ended_at,
        }
    }

    /// Ends what is left of a sandbox that is gone: execs that were in flight, and contexts. With a reason it ended by
    /// itself.
    pub(super) async fn settle_contents(
        self: &Arc<Self>,
        tenant: sandstorm_types::TenantId,
        id: SandboxId,
        reason: Option<&str>,
    ) {
        self.end_contexts(tenant, id).await;
        let left = self.executions.of_sandbox(id);
        for execution in &left {
            execution.doomed.send_replace(Some(reason.unwrap_or_default().to_owned()));
            execution.cancel.cancel();
        }
        // Who follows them sees their end, unless the server has stopped following.
        if !self.tasks.stopping().is_cancelled() {
            let all = futures_util::future::join_all(left.iter().map(|execution| execution.wait_end()));
            let _ = tokio::time::timeout(FOLLOWED, all).await;
        }
        for execution in left.iter().filter(|execution| execution.end().is_none()) {
            let ended = self.lost(execution, &Error::new(ErrorKind::Provider, SANDBOX_ENDED));
            match execution.cell {
                Some(_) => self.record_cell(execution, ended, None).await,
                None => self.record(execution, ended, None).await,
            }
        }
    }
}
