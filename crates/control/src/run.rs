//! A one-shot run, from request to result.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sandstorm_fleet::Fleet;
use sandstorm_language::Roots;
use sandstorm_provider::{
    ByteStream, CreateOptions, EndCause, Error, ExecRequest, FileOp, FileReply, OpContext, Provider, Result,
    Stdin,
};
use sandstorm_types::{
    ByteSize, Enforcement, ErrorKind, GuestPath, Lifetime, Limits, OnEnd, RunResult, RunSpec, SandboxId,
    SandboxSpec, State, Stream,
};
use tokio::sync::mpsc;
use tracing::{Instrument, debug_span};

use crate::compile::{Compiled, environment};
use crate::compile_cache::CompileCache;
use crate::execute::{Executed, execute};
use crate::expect::expected;
use crate::layers::{Layer, Layers};
use crate::outcome::{self, Outcome, Times};
use crate::prepare::{Prepared, Reach};
use crate::spool::{Spools, Whole};
use crate::toolchains::Toolchains;

/// Sandboxes that a run is given in turn, as long as each is lost before its program begins.
const MOST_SANDBOXES: u32 = 3;

/// When another sandbox is to be had again where one was lost.
const SEND_AGAIN: Duration = Duration::from_secs(1);

/// What a runner works with.
#[derive(Debug)]
pub struct Tools {
    pub provider: Arc<dyn Provider>,
    /// Limits of runs that ask for nothing.
    pub limits: Limits,
    pub roots: Roots,
    pub cache: Option<CompileCache>,
    /// Without it, runs cannot require packages.
    pub layers: Option<Layers>,
}

/// Runs code once, each time in a fresh sandbox.
#[derive(Debug)]
pub struct Runner {
    pub(crate) provider: Arc<dyn Provider>,
    limits: Limits,
    pub(crate) toolchains: Toolchains,
    pub(crate) cache: Option<CompileCache>,
    pub(crate) layers: Option<Layers>,
    /// Where compilers and package managers run: an engine of this machine.
    pub(crate) workshop: Arc<dyn Provider>,
    /// Set where there is a choice of places.
    pub(crate) fleet: Option<Arc<Fleet>>,
    /// Where output goes that is more than a little.
    pub(crate) spools: Spools,
}

/// What happens on the way, as it happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEvent {
    Phase(Phase),
    Output { stream: Stream, bytes: Bytes },
}

/// Work that takes time and is not the program's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Names the packages.
    Installing(String),
    /// Names the language.
    Compiling(String),
    Running,
}

/// Where the program's standard input comes from.
#[derive(Debug)]
pub enum RunInput {
    Empty,
    Bytes(Bytes),
    /// Pieces as they come; the end of the channel is the end of input.
    Stream(mpsc::Receiver<Bytes>),
}

impl RunInput {
    /// The same once more; not of what comes as it goes.
    fn again(&self) -> Option<Self> {
        match self {
            Self::Empty => Some(Self::Empty),
            Self::Bytes(bytes) => Some(Self::Bytes(bytes.clone())),
            Self::Stream(_) => None,
        }
    }
}

/// A run that is over, with its sandbox still there to take files from. [`Finished::release`] ends it.
#[derive(Debug)]
pub struct Finished {
    pub result: RunResult,
    /// All of the output, where the result has only the beginning.
    pub(crate) whole: Option<Whole>,
    provider: Arc<dyn Provider>,
    sandbox: Option<SandboxId>,
    tenant: sandstorm_types::TenantId,
    /// Stays in place while the sandbox may read it.
    _layer: Option<Layer>,
}

impl Finished {
    /// The workspace as a tar archive, as hostile as the program that wrote it. `None`: there is no sandbox any more.
    pub async fn workspace(&self, cx: &OpContext) -> Result<Option<ByteStream>> {
        let Some(sandbox) = &self.sandbox else { return Ok(None) };
        let op = FileOp::Pack { path: GuestPath::workspace() };
        match self.provider.files(cx, sandbox, op).await? {
            FileReply::Archive(archive) => Ok(Some(archive)),
            _ => Err(Error::new(ErrorKind::Internal, "packing gave no archive")),
        }
    }

    /// Ends the sandbox. Nothing of it is left when this returns.
    pub async fn release(self) -> Result<RunResult> {
        let (outcome, remains) = self.part();
        remains.release().await?;
        outcome.into_result()
    }

    /// The result, and what is left to clear away.
    pub(crate) fn part(self) -> (Outcome, Remains) {
        let Self { result, whole, provider, sandbox, tenant, _layer } = self;
        (Outcome { result, whole }, Remains { provider, sandbox, tenant, _layer })
    }
}

/// The sandbox of a run that is over.
#[derive(Debug)]
pub(crate) struct Remains {
    provider: Arc<dyn Provider>,
    sandbox: Option<SandboxId>,
    tenant: sandstorm_types::TenantId,
    _layer: Option<Layer>,
}

impl Remains {
    pub(crate) async fn release(self) -> Result<()> {
        match self.sandbox {
            Some(sandbox) => self.provider.destroy(&OpContext::new(self.tenant), &sandbox).await,
            None => Ok(()),
        }
    }
}

impl Runner {
    pub fn new(tools: Tools) -> Self {
        let Tools { provider, limits, roots, cache, layers } = tools;
        let workshop = Arc::clone(&provider);
        let (toolchains, spools) = (Toolchains::new(roots), Spools::Memory);
        Self { provider, limits, toolchains, cache, layers, workshop, fleet: None, spools }
    }

    /// For many callers at once: output that is more than a little, and what compilers make, goes to files of this directory,
    /// not to memory.
    pub fn spooling_in(self, dir: PathBuf) -> Self {
        Self { spools: Spools::in_dir(dir), ..self }
    }

    /// Runs go wherever the fleet puts them; what has to be on this machine is done by `workshop`.
    pub fn over(self, fleet: Arc<Fleet>, workshop: Arc<dyn Provider>) -> Self {
        Self { provider: Arc::clone(&fleet) as Arc<dyn Provider>, fleet: Some(fleet), workshop, ..self }
    }

    /// Decides everything about a run without starting anything. `main` names the main file, where the caller has one.
    pub fn prepare(&self, spec: &RunSpec, main: Option<&str>) -> Result<Prepared> {
        let reach = if self.fleet.is_some() { Reach::Anywhere } else { Reach::Here };
        Prepared::new(spec, main, &self.limits, &self.toolchains, reach)
    }

    /// Runs to the end. Cancelling the context ends the program and gives its result so far; dropping the future leaves
    /// sandboxes for the provider's own clean-up.
    pub async fn run(
        &self,
        cx: &OpContext,
        spec: &RunSpec,
        mut prepared: Prepared,
        input: RunInput,
        events: Option<mpsc::Sender<RunEvent>>,
    ) -> Result<Finished> {
        if let Some(fleet) = &self.fleet {
            return Box::pin(self.run_placed(fleet, cx, spec, prepared, input, events)).await;
        }
        let began = Instant::now();
        let enforcement = spec.enforcement.unwrap_or(Enforcement::Strict);
        let mut times = Times::default();
        let mut artifact = None;
        let layer = match prepared.recipe {
            None => None,
            Some(_) => {
                let required = Box::pin(self.require(cx, spec, &mut prepared, events.as_ref())).await;
                required.map_err(Error::with_not_started)?
            }
        };
        if let Some(plan) = &prepared.compile {
            let compile_began = Instant::now();
            let compiled = self.compiled(cx, &prepared, plan, enforcement, events.as_ref());
            let compiled = Box::pin(compiled).await.map_err(Error::with_not_started)?;
            times.compile = Some(milliseconds(compile_began));
            match compiled {
                Compiled::Artifact(bytes) => artifact = Some(bytes),
                Compiled::Refused(executed, walls) => {
                    times.total = milliseconds(began);
                    let result = outcome::of_refused_compile(*executed, *walls, self.provider.info(), times);
                    return Ok(self.finished(cx, result.into(), None, layer));
                }
            }
        }
        prepared.built();
        let (mut input, mut turn) = (input, 1);
        loop {
            let options = CreateOptions {
                // A layer may be gone by the time that somebody takes a sandbox made ahead. And if two of those were dead,
                // the others may be too: the last one is made for this run.
                pooled: prepared.layers.is_empty() && turn < MOST_SANDBOXES,
                mounts: prepared.mounts(),
                ephemeral: true,
                expects: expected(&prepared),
                ..CreateOptions::default()
            };
            let id = options.id;
            let again = input.again().filter(|_| turn < MOST_SANDBOXES);
            let (artifact, events) = (artifact.clone(), events.as_ref());
            let mut begins = false;
            let ran =
                self.run_in(cx, spec, &prepared, options, artifact, input, events, &mut times, &mut begins);
            let ran = ran.await;
            times.total = milliseconds(began);
            let error = match ran {
                Ok((mut executed, sandbox)) => {
                    let whole = executed.whole.take();
                    let result = outcome::of_run(executed, &sandbox, self.provider.info(), times);
                    return Ok(self.finished(cx, Outcome { result, whole }, Some(id), layer));
                }
                Err(error) => error,
            };
            let destroyed = self.provider.destroy(&OpContext::new(cx.tenant()), &id).await;
            match again.filter(|_| is_for_another(&error)) {
                Some(same) => {
                    tracing::warn!(sandbox = %id, %error, "a sandbox was lost before its program; another one is taken");
                    (input, turn) = (same, turn + 1);
                }
                // Its program was never asked for.
                None if !begins => return destroyed.and(Err(error.with_not_started())),
                None => return destroyed.and(Err(error)),
            }
        }
    }

    pub(crate) fn finished(
        &self,
        cx: &OpContext,
        outcome: Outcome,
        sandbox: Option<SandboxId>,
        layer: Option<Layer>,
    ) -> Finished {
        let (Outcome { result, whole }, provider) = (outcome, Arc::clone(&self.provider));
        Finished { result, whole, provider, sandbox, tenant: cx.tenant(), _layer: layer }
    }

    /// Where the output of a run goes. `events` hears all of it, which has no limit; then only a beginning within `limit` is
    /// kept.
    pub(crate) fn spools(&self, events: Option<&mpsc::Sender<RunEvent>>, limit: ByteSize) -> Spools {
        if events.is_some() { Spools::Heads(limit) } else { self.spools.clone() }
    }

    #[expect(clippy::too_many_arguments, reason = "the stages of one run, called from one place")]
    async fn run_in(
        &self,
        cx: &OpContext,
        spec: &RunSpec,
        prepared: &Prepared,
        options: CreateOptions,
        artifact: Option<crate::artifact::Artifact>,
        input: RunInput,
        events: Option<&mpsc::Sender<RunEvent>>,
        times: &mut Times,
        begins: &mut bool,
    ) -> Result<(Executed, sandstorm_provider::Sandbox)> {
        let provider = &*self.provider;
        let wanted = SandboxSpec {
            limits: prepared.limits,
            enforcement: spec.enforcement.unwrap_or(Enforcement::Strict),
            env: spec.env.clone(),
            network: spec.network.clone(),
            space: spec.space,
            lifetime: Lifetime { after: prepared.limits.wall + Duration::from_secs(60), then: OnEnd::Delete },
            ..SandboxSpec::default()
        };
        let id = options.id;
        let create_began = Instant::now();
        let sandbox = provider.create(cx, &wanted, options).instrument(debug_span!("create_sandbox")).await?;
        if let Some(artifact) = artifact {
            Box::pin(self.place_artifact(cx, &id, artifact)).await?;
        }
        times.create = milliseconds(create_began);
        if let Some(events) = events {
            let _ = events.send(RunEvent::Phase(Phase::Running)).await;
        }
        let mut request = ExecRequest::program(prepared.run.argv.clone());
        request.files = prepared.user_files();
        request.last = true;
        request.env = environment(&prepared.run.env)?;
        request.env.extend(&spec.env).map_err(|e| {
            Error::new(ErrorKind::InvalidRequest, "the environment is too large").with_source(e)
        })?;
        let input = match input {
            RunInput::Bytes(bytes) => {
                request.stdin = Stdin::Given(bytes);
                RunInput::Empty
            }
            RunInput::Stream(pieces) => {
                request.stdin = Stdin::Stream;
                RunInput::Stream(pieces)
            }
            RunInput::Empty => RunInput::Empty,
        };
        let exec_began = Instant::now();
        let spools = self.spools(events, prepared.limits.output);
        *begins = true;
        let executed = execute(provider, cx, &id, request, input, events, spools).await?;
        times.exec = milliseconds(exec_began);
        if executed.end.cause == EndCause::Sandbox {
            return Err(ended_early(provider, cx, &id).await);
        }
        Ok((executed, sandbox))
    }
}

/// Whether a run may go to another sandbox: this one is lost, and nothing was begun in it.
fn is_for_another(error: &Error) -> bool {
    error.is_not_started() && matches!(error.kind(), ErrorKind::Provider | ErrorKind::Conflict)
}

/// What happened to a program whose sandbox is gone, and what its caller can do.
pub(crate) const SANDBOX_ENDED: &str = "the sandbox ended, and another one has to be made";

/// Why a run did not come to its end: its sandbox ended, for the reason that its provider gives.
pub(crate) async fn ended_early(provider: &dyn Provider, cx: &OpContext, id: &SandboxId) -> Error {
    let what = "the sandbox ended before its program did; what the program did is lost with it, and it can be sent again";
    let error = Error::new(ErrorKind::Provider, what).with_retry_after(SEND_AGAIN);
    with_reason(provider, cx, id, error).await
}

/// The same for a program in a sandbox of its caller, which does not come back.
pub(crate) async fn lost_with_sandbox(provider: &dyn Provider, cx: &OpContext, id: &SandboxId) -> Error {
    let what =
        "the sandbox ended before its program did: what ran in it is lost, and another one has to be made";
    with_reason(provider, cx, id, Error::new(ErrorKind::Provider, what)).await
}

async fn with_reason(provider: &dyn Provider, cx: &OpContext, id: &SandboxId, error: Error) -> Error {
    match provider.get(cx, id).await.map(|sandbox| sandbox.state) {
        Ok(State::Failed { reason }) => error.with("reason", reason),
        _ => error,
    }
}

pub(crate) fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}
