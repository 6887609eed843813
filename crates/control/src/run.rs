//! A one-shot run, from request to result.

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
    Enforcement, ErrorKind, GuestPath, Lifetime, Limits, OnEnd, RunResult, RunSpec, SandboxId, SandboxSpec,
    State, Stream,
};
use tokio::sync::mpsc;
use tracing::{Instrument, debug_span};

use crate::compile::{Compiled, environment};
use crate::compile_cache::CompileCache;
use crate::execute::execute;
use crate::expect::expected;
use crate::layers::{Layer, Layers};
use crate::outcome::{self, Times};
use crate::prepare::{Prepared, Reach};
use crate::toolchains::Toolchains;

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

/// A run that is over, with its sandbox still there to take files from. [`Finished::release`] ends it.
#[derive(Debug)]
pub struct Finished {
    pub result: RunResult,
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
        let (result, remains) = self.part();
        remains.release().await?;
        Ok(result)
    }

    /// The result, and what is left to clear away.
    pub(crate) fn part(self) -> (RunResult, Remains) {
        let Self { result, provider, sandbox, tenant, _layer } = self;
        (result, Remains { provider, sandbox, tenant, _layer })
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
        Self { provider, limits, toolchains: Toolchains::new(roots), cache, layers, workshop, fleet: None }
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
        if self.fleet.is_some() {
            return Box::pin(self.run_placed(cx, spec, prepared, input, events)).await;
        }
        let began = Instant::now();
        let enforcement = spec.enforcement.unwrap_or(Enforcement::Strict);
        let mut times = Times::default();
        let mut artifact = None;
        let layer = match prepared.recipe {
            None => None,
            Some(_) => Box::pin(self.require(cx, spec, &mut prepared, events.as_ref())).await?,
        };
        if let Some(plan) = &prepared.compile {
            let compile_began = Instant::now();
            let compiled = self.compiled(cx, &prepared, plan, enforcement, events.as_ref());
            let compiled = Box::pin(compiled).await?;
            times.compile = Some(milliseconds(compile_began));
            match compiled {
                Compiled::Artifact(bytes) => artifact = Some(bytes),
                Compiled::Refused(executed, walls) => {
                    times.total = milliseconds(began);
                    let result = outcome::of_refused_compile(executed, *walls, self.provider.info(), times);
                    return Ok(self.finished(cx, result, None, layer));
                }
            }
        }
        let options = CreateOptions {
            // A layer may be gone by the time that somebody takes a sandbox made ahead.
            pooled: prepared.layers.is_empty(),
            mounts: prepared.mounts(),
            ephemeral: true,
            expects: expected(&prepared),
            ..CreateOptions::default()
        };
        let id = options.id;
        let ran =
            self.run_in(cx, spec, &prepared, options, artifact, input, events.as_ref(), &mut times).await;
        times.total = milliseconds(began);
        match ran {
            Ok((executed, sandbox)) => {
                let result = outcome::of_run(executed, &sandbox, self.provider.info(), times);
                Ok(self.finished(cx, result, Some(id), layer))
            }
            Err(error) => {
                self.provider.destroy(&OpContext::new(cx.tenant()), &id).await?;
                Err(error)
            }
        }
    }

    pub(crate) fn finished(
        &self,
        cx: &OpContext,
        result: RunResult,
        sandbox: Option<SandboxId>,
        layer: Option<Layer>,
    ) -> Finished {
        Finished { result, provider: Arc::clone(&self.provider), sandbox, tenant: cx.tenant(), _layer: layer }
    }

    #[expect(clippy::too_many_arguments, reason = "the stages of one run, called from one place")]
    async fn run_in(
        &self,
        cx: &OpContext,
        spec: &RunSpec,
        prepared: &Prepared,
        options: CreateOptions,
        artifact: Option<Bytes>,
        input: RunInput,
        events: Option<&mpsc::Sender<RunEvent>>,
        times: &mut Times,
    ) -> Result<(crate::execute::Executed, sandstorm_provider::Sandbox)> {
        let provider = &*self.provider;
        let wanted = SandboxSpec {
            limits: prepared.limits,
            enforcement: spec.enforcement.unwrap_or(Enforcement::Strict),
            env: spec.env.clone(),
            network: spec.network.clone(),
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
        let executed = execute(provider, cx, &id, request, input, events).await?;
        times.exec = milliseconds(exec_began);
        if executed.end.cause == EndCause::Sandbox {
            return Err(ended_early(provider, cx, &id).await);
        }
        Ok((executed, sandbox))
    }
}

/// Why a program did not come to its end: that of its sandbox, for the reason that its place gives.
pub(crate) async fn ended_early(provider: &dyn Provider, cx: &OpContext, id: &SandboxId) -> Error {
    let error = Error::new(ErrorKind::Provider, "the sandbox ended before its program did");
    match provider.get(cx, id).await.map(|sandbox| sandbox.state) {
        Ok(State::Failed { reason }) => error.with("reason", reason),
        _ => error,
    }
}

pub(crate) fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}
