//! A run on its way: carried out by a task of its own, recorded before it is answered.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use sandstorm_provider::{Error, Result};
use sandstorm_store::UsageDelta;
use sandstorm_types::{
    Event, EventBody, ExecId, Limits, RunId, RunResult, RunSpec, Status, Stream, TenantId, Walls,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{Instrument, debug_span};

use super::admission::Promise;
use super::costs::{Account, Part, Used};
use super::ended::Ended;
use super::failure::conflict;
use super::numbering::Numbering;
use super::quotas::RunGuard;
use super::run_cache::Lead;
use super::run_record::{Beginning, RunCost};
use super::{Caller, Inner, Running};
use crate::outcome::Outcome;
use crate::prepare::Prepared;
use crate::run::{Finished, Phase, Remains, RunEvent, RunInput};
use crate::spool::Whole;

/// Events that wait for who listens; past it the program waits. One may be 64 KiB long, and there are two such lines.
const LINE: usize = 8;

/// How long the remains of a run are left alone.
const AFTER_THE_ANSWER: Duration = Duration::from_millis(1);

/// Everything about a run that is about to begin.
#[derive(Debug)]
pub(super) struct OneShot {
    pub(super) id: RunId,
    pub(super) caller: Caller,
    pub(super) beginning: Beginning,
    pub(super) spec: RunSpec,
    pub(super) prepared: Prepared,
    pub(super) promise: Arc<Promise>,
    pub(super) hold: Arc<RunGuard>,
    pub(super) waited: Duration,
    pub(super) limits: Limits,
    /// Others may wait for its result.
    pub(super) lead: Option<Lead>,
    /// What it costs.
    pub(super) account: Arc<Account>,
}

/// What is held until nothing of a run is left.
struct Clearing {
    id: RunId,
    run: InFlightRun,
    promise: Arc<Promise>,
    hold: Arc<RunGuard>,
}

/// A run in flight.
#[derive(Debug, Clone)]
pub(super) struct InFlightRun {
    tenant: TenantId,
    pub(super) cancel: CancellationToken,
    pub(super) over: CancellationToken,
}

/// Runs in flight on this server.
#[derive(Debug, Default)]
pub(super) struct Runs(Mutex<HashMap<RunId, InFlightRun>>);

impl Runs {
    pub(super) fn get(&self, tenant: TenantId, id: RunId) -> Option<InFlightRun> {
        let runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        runs.get(&id).filter(|run| run.tenant == tenant).cloned()
    }

    pub(super) fn list(&self) -> Vec<InFlightRun> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// A run that is in flight from now on, and what cancels it when it is dropped.
    fn begin(&self, shot: &OneShot) -> (InFlightRun, DropGuard) {
        let run = InFlightRun {
            tenant: shot.caller.tenant,
            cancel: CancellationToken::new(),
            over: CancellationToken::new(),
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(shot.id, run.clone());
        let guard = run.cancel.clone().drop_guard();
        (run, guard)
    }

    fn remove(&self, id: RunId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }
}

/// Carries a run out and gives its result. Dropping the future cancels it; its end is recorded all the same.
pub(super) async fn run(inner: &Arc<Inner>, shot: Box<OneShot>) -> Result<Outcome> {
    let (run, _guard) = inner.runs.begin(&shot);
    let work = Arc::clone(inner);
    inner.tasks.complete(Box::pin(async move { work.carry_out_run(*shot, run, None).await })).await
}

/// Starts a run, which is on record by then. Dropping the events, or the future before it gives them, cancels it.
pub(super) async fn start(inner: &Arc<Inner>, shot: OneShot) -> Result<Running> {
    let id = shot.id;
    let (answer, result) = oneshot::channel();
    let (run, guard) = inner.runs.begin(&shot);
    let work = Arc::clone(inner);
    let (told, events) = mpsc::channel(LINE);
    let telling = Telling::new(id, told, run.cancel.clone());
    let (recorded, on_record) = oneshot::channel();
    // Whoever asked may leave at any moment; a record that was begun is always followed by its end, so one task does both.
    inner.tasks.finish("carry out a run", async move {
        let done = work.carry_out_run(shot, run, Some((telling, recorded))).await;
        let _ = answer.send(done.map(|outcome| outcome.result));
    });
    if on_record.await.is_err() {
        let refused = result.await.map_err(|_| conflict("the server is stopping"))?;
        return Err(refused.err().unwrap_or_else(|| conflict("the run is not on record")));
    }
    let events = stream::unfold((events, guard), |(mut events, guard)| async move {
        let event = events.recv().await?;
        Some((event, (events, guard)))
    });
    Ok(Running { id, events: events.boxed(), result })
}

/// Tells the events of a run to whoever listens.
struct Telling {
    exec: ExecId,
    numbering: Numbering,
    ready: VecDeque<Event>,
    to: mpsc::Sender<Event>,
    cancel: CancellationToken,
    started: bool,
}

impl Telling {
    fn new(id: RunId, to: mpsc::Sender<Event>, cancel: CancellationToken) -> Self {
        // A run has one program, which goes by the run's own number.
        let exec = ExecId::from_bits(id.bits());
        let numbering = Numbering::new(exec, false);
        Self { exec, numbering, ready: VecDeque::new(), to, cancel, started: false }
    }

    fn start(&mut self) {
        if !self.started {
            self.started = true;
            self.numbering.push(EventBody::Start { exec: self.exec }, &mut self.ready);
        }
    }

    async fn tell(&mut self, event: RunEvent) {
        match event {
            RunEvent::Phase(Phase::Running) => self.start(),
            RunEvent::Phase(_) => {}
            RunEvent::Output { stream, bytes } => {
                self.start();
                self.numbering.output(stream, &bytes, &mut self.ready);
            }
        }
        self.send().await;
    }

    /// Waits for room, but not once the run is cancelled: a listener that does not read may be why.
    async fn send(&mut self) {
        while let Some(event) = self.ready.pop_front() {
            tokio::select! {
                biased;
                sent = self.to.send(event) => {
                    if sent.is_err() {
                        self.cancel.cancel();
                        self.ready.clear();
                    }
                }
                () = self.cancel.cancelled() => {}
            }
        }
    }

    async fn end(mut self, ended: &Ended) {
        self.start();
        if ended.result.status == Status::CompileError {
            // What the compiler said is heard only now.
            let complaints = ended.result.stderr_bytes().unwrap_or_default();
            self.numbering.output(Stream::Stderr, &complaints, &mut self.ready);
        }
        self.numbering.end(ended, &mut self.ready);
        // The end is told for as long as somebody may read it: its listener, cancelled or not, is the only one.
        while let Some(event) = self.ready.pop_front() {
            let sent = tokio::time::timeout(Duration::from_secs(30), self.to.send(event)).await;
            if !matches!(sent, Ok(Ok(()))) {
                return;
            }
        }
    }
}

/// Tells whoever listens what happens, until it is over.
async fn tell_of<T>(
    mut running: impl Future<Output = T> + Unpin,
    telling: &mut Telling,
    events: &mut mpsc::Receiver<RunEvent>,
) -> T {
    let finished = loop {
        tokio::select! {
            biased;
            Some(event) = events.recv() => telling.tell(event).await,
            finished = &mut running => break finished,
        }
    };
    while let Ok(event) = events.try_recv() {
        telling.tell(event).await;
    }
    finished
}

/// What a run cost, as its result tells and its record keeps it, and what only providers know of that.
fn settled(
    account: &Account,
    result: &mut RunResult,
    elapsed: Duration,
    nowhere: bool,
) -> (RunCost, Vec<Part>) {
    let route = &mut result.route;
    let (tried, bill) = if nowhere {
        (account.gave_up(&route.attempts), account.close_nowhere())
    } else {
        let used = Used {
            wall: elapsed,
            cpu: Duration::try_from_secs_f64(result.metrics.cpu_ms / 1000.0).unwrap_or_default(),
            peak_memory: result.metrics.peak_memory_bytes,
        };
        let tried = account.placed(&route.provider, route.region.clone(), &route.attempts);
        (tried, account.close(&used))
    };
    route.cost_usd = bill.total().as_f64();
    result.stopped_by = account.stopped_by().map(str::to_owned);
    let here = route.attempts.last().filter(|_| !nowhere).and_then(|attempt| attempt.sandbox);
    let own = here.and_then(|sandbox| Part::own(sandbox, &bill));
    let unsettled = own.into_iter().chain(Part::attempts(&tried)).collect();
    let attempts = tried.into_iter().map(|tried| tried.entry).collect();
    (RunCost { bill, attempts }, unsettled)
}

impl Inner {
    #[tracing::instrument(level = "debug", skip_all)]
    async fn carry_out_run(
        self: &Arc<Self>,
        shot: OneShot,
        run: InFlightRun,
        listener: Option<(Telling, oneshot::Sender<()>)>,
    ) -> Result<Outcome> {
        let OneShot {
            id,
            caller,
            beginning,
            mut spec,
            prepared,
            promise,
            hold,
            waited,
            limits,
            lead,
            account,
        } = shot;
        account.stops(run.cancel.clone());
        let (mut telling, recorded) = listener.unzip();
        let clearing = Clearing { id, run: run.clone(), promise, hold };
        let mut beginning = match self.begin_run(beginning, recorded).await {
            Ok(beginning) => beginning,
            Err(error) => {
                self.clear_away(clearing, None, None);
                return Err(error);
            }
        };
        let cx = caller.operation().with_cancellation(run.cancel.clone());
        let began = Instant::now();
        let language = prepared.language.name.clone();
        let stdin = Bytes::from(std::mem::take(&mut spec.stdin).into_bytes());
        let input = if stdin.is_empty() { RunInput::Empty } else { RunInput::Bytes(stdin) };
        let (sender, mut events) = telling.is_some().then(|| mpsc::channel(LINE)).unzip();
        let running = Box::pin(self.runner.run(&cx, &spec, prepared, input, sender));
        let running = async {
            match (&mut telling, &mut events) {
                (Some(telling), Some(events)) => Box::pin(tell_of(running, telling, events)).await,
                _ => running.await,
            }
        };
        let finished = self.beside_beginning_of_run(running, &mut beginning).await;
        let (mut ended, whole, failure, remains) = self.ended_run(id, finished, waited);
        let elapsed = began.elapsed();
        let nowhere = failure.is_some() && self.runner.fleet.is_some();
        let (cost, unsettled) = settled(&account, &mut ended.result, elapsed, nowhere);
        let recording = self.record_run(caller.tenant, id, &ended, failure.is_some(), beginning, cost);
        if let Err(error) = recording.instrument(debug_span!("record_end")).await {
            self.clear_away(clearing, remains, None);
            return Err(failure.unwrap_or(error));
        }
        if let (Some(lead), None) = (lead, &failure) {
            lead.finish(&ended.result);
        }
        let status = if failure.is_some() { "problem" } else { ended.result.status.name() };
        metrics::counter!("sandstorm_runs_total", "status" => status, "language" => language).increment(1);
        metrics::histogram!("sandstorm_run_seconds").record(elapsed.as_secs_f64());
        let memory_mib_seconds = (limits.memory.as_u64() >> 20)
            .saturating_mul(u64::try_from(elapsed.as_millis()).unwrap_or(0))
            / 1000;
        let cpu_ms = ended.result.metrics.cpu_ms as u64;
        self.add_usage(
            caller.tenant,
            UsageDelta { runs: 1, cpu_ms, memory_mib_seconds, ..UsageDelta::default() },
        );
        // Nobody has to wait for the clean-up to have the answer.
        let unsettled = (!unsettled.is_empty()).then_some((account, unsettled));
        self.clear_away(clearing, remains, unsettled);
        if let Some(telling) = telling {
            Box::pin(telling.end(&ended)).await;
        }
        failure.map_or(Ok(Outcome { result: ended.result, whole }), Err)
    }

    /// Ends the sandbox of a run that is over; its memory is free again then. Of the tenant's quota it has nothing any more:
    /// whoever has the answer may ask for the next one.
    fn clear_away(
        self: &Arc<Self>,
        clearing: Clearing,
        remains: Option<Remains>,
        unsettled: Option<(Arc<Account>, Vec<Part>)>,
    ) {
        let Clearing { id, run, promise, hold } = clearing;
        drop(hold);
        let inner = Arc::clone(self);
        self.tasks.finish("clear a run away", async move {
            // The answer goes first, all the way to who waits for it: this keeps the same processors busy.
            tokio::time::sleep(AFTER_THE_ANSWER).await;
            inner.settle_soon();
            if let Some(remains) = remains
                && let Err(error) = remains.release().await
            {
                tracing::error!(run = %id, %error, "the sandbox of a run could not be ended");
            }
            promise.give_back();
            if let Some((account, parts)) = unsettled {
                inner.settle_costs(&account, parts);
            }
            inner.runs.remove(id);
            run.over.cancel();
        });
    }

    /// What a run came to: its end, all of its output if that is long, why the platform failed if it did, and what is left to
    /// release.
    fn ended_run(
        &self,
        id: RunId,
        finished: Result<Finished>,
        waited: Duration,
    ) -> (Ended, Option<Whole>, Option<Error>, Option<Remains>) {
        match finished {
            Ok(finished) => {
                let (Outcome { mut result, whole }, remains) = finished.part();
                result.id = id.to_string();
                result.metrics.queue_ms = waited.as_secs_f64() * 1000.0;
                result.metrics.total_ms += result.metrics.queue_ms;
                (Ended::new(result, None), whole, None, Some(remains))
            }
            Err(error) => {
                let exec = ExecId::from_bits(id.bits());
                let mut ended = Ended::by_problem(exec, self.provider.info(), Walls::default(), &error);
                ended.result.id = id.to_string();
                error.attempts().clone_into(&mut ended.result.route.attempts);
                (ended, None, Some(error), None)
            }
        }
    }
}
