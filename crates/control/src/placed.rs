//! A run where there is a choice of places: the sandbox comes first, since what it can be given depends on where it is.
//!
//! On this machine it goes on as every run does. Elsewhere the program goes by language and code: paths, layers and what
//! was compiled here mean nothing there.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sandstorm_fleet::Fleet;
use sandstorm_provider::{
    CreateOptions, EndCause, Error, ExecRequest, OpContext, Provider, Result, Sandbox, Stdin,
};
use sandstorm_types::{
    Attempt, Enforcement, ErrorKind, Lifetime, OnEnd, Retry, Routing, RunSpec, SandboxId, SandboxSpec, Walls,
};
use tokio::sync::mpsc;

use crate::compile::{Compiled, environment};
use crate::execute::{Executed, execute};
use crate::expect::expected;
use crate::layers::Layer;
use crate::outcome::{self, Outcome, Times};
use crate::prepare::Prepared;
use crate::require::LateLayer;
use crate::reserve::Reserve;
use crate::run::{Finished, Phase, RunEvent, RunInput, Runner, ended_early, milliseconds};
use crate::spool::Whole;

/// Places that a run is begun at, one after the other, where none of them began it.
const MOST_PLACES: usize = 4;

/// What came of a program.
enum Ran {
    Program(Executed),
    /// The compiler said no, behind these walls.
    Refused(Executed, Box<Walls>),
}

impl Ran {
    fn take_whole(&mut self) -> Option<Whole> {
        match self {
            Self::Program(executed) | Self::Refused(executed, _) => executed.whole.take(),
        }
    }
}

impl Runner {
    pub(crate) async fn run_placed(
        &self,
        fleet: &Fleet,
        cx: &OpContext,
        spec: &RunSpec,
        mut prepared: Prepared,
        input: RunInput,
        events: Option<mpsc::Sender<RunEvent>>,
    ) -> Result<Finished> {
        let began = Instant::now();
        let mut times = Times::default();
        let mut layer: Option<Layer> = None;
        let mut routing = spec.routing.clone();
        let mut tried: Vec<Attempt> = Vec::new();
        let mut failure: Option<Error> = None;
        let mut input = Some(input);
        for turn in 1.. {
            let (create_began, earlier) = (Instant::now(), tried.len());
            let (wanted, mut options) = wanted(spec, &prepared, routing.clone());
            let id = options.id;
            // It may come here after all, and what it needs here was given back when it went elsewhere.
            let reserve = prepared.reserve.as_ref();
            let taken = reserve.is_none_or(Reserve::take_again);
            if !taken {
                let why = "there is no memory left for it here";
                options.not_here.get_or_insert_with(|| why.to_owned());
            }
            let created = match prepared.recipe {
                Some(_) if layer.is_none() => {
                    // Packages are installed here once it comes here.
                    options.pooled = false;
                    let (made, events) = (tokio::sync::Mutex::default(), events.as_ref());
                    let late = LateLayer { runner: self, spec, prepared: &prepared, events, made };
                    let created = fleet.create_with(cx, &wanted, &options, &late).await;
                    layer = late.made.into_inner();
                    if let Some(layer) = &layer {
                        prepared.show(layer);
                    }
                    created
                }
                _ => fleet.create(cx, &wanted, options).await,
            };
            let mut sandbox = match created {
                Ok(sandbox) => sandbox,
                Err(error) => {
                    tried.extend_from_slice(error.attempts());
                    // That nobody else can take it is less of an answer than why the first one failed.
                    // Where it was begun it is not begun elsewhere, so there is no program of it.
                    return Err(told(failure.unwrap_or(error), tried, earlier).with_not_started());
                }
            };
            times.create = milliseconds(create_began);
            let elsewhere = sandbox.placement.as_ref().is_some_and(|placement| placement.elsewhere);
            if let Some(reserve) = prepared.reserve.as_ref().filter(|_| elsewhere) {
                reserve.promise.give_back();
            }
            let given = input.take().unwrap_or(RunInput::Empty);
            input = again(&given);
            let ran = self.run_there(cx, spec, &prepared, &sandbox, given, events.as_ref(), &mut times).await;
            let error = match ran {
                Ok(mut ran) => {
                    let whole = ran.take_whole();
                    times.total = milliseconds(began);
                    if let Some(placement) = &mut sandbox.placement {
                        tried.append(&mut placement.attempts);
                        placement.attempts = tried;
                    }
                    let result = self.told_run(ran, &sandbox, &prepared, times);
                    return Ok(self.finished(cx, Outcome { result, whole }, Some(id), layer));
                }
                Err(error) => error,
            };
            self.let_go(cx, id).await;
            let place = sandbox.placement.take();
            tried.extend(place.iter().flat_map(|place| place.attempts.iter().cloned()));
            if let Some(last) = tried.last_mut() {
                error.kind().code().clone_into(&mut last.outcome);
                last.ms = milliseconds(create_began);
            }
            // Nothing runs twice: only what provably never began may be begun elsewhere.
            let place = place.filter(|_| error.is_not_started() && turn < MOST_PLACES);
            let Some(place) = place.filter(|_| error.retry() != Retry::Never && input.is_some()) else {
                return Err(told(error, tried, earlier));
            };
            routing.get_or_insert_default().exclude_providers.push(place.info.name);
            failure = Some(error);
        }
        Err(Error::new(ErrorKind::Internal, "a run had no place"))
    }

    #[expect(clippy::too_many_arguments, reason = "the stages of one run, called from one place")]
    async fn run_there(
        &self,
        cx: &OpContext,
        spec: &RunSpec,
        prepared: &Prepared,
        sandbox: &Sandbox,
        input: RunInput,
        events: Option<&mpsc::Sender<RunEvent>>,
        times: &mut Times,
    ) -> Result<Ran> {
        let elsewhere = sandbox.placement.as_ref().is_some_and(|placement| placement.elsewhere);
        let mut request = ExecRequest::program(prepared.run.argv.clone());
        request.last = true;
        request.env = environment(&prepared.run.env)?;
        request.env.extend(&spec.env).map_err(|e| {
            Error::new(ErrorKind::InvalidRequest, "the environment is too large").with_source(e)
        })?;
        if elsewhere {
            request.portable = Some(Box::new(prepared.portable(spec)?));
        } else {
            request.files = prepared.user_files();
            if let Some(plan) = &prepared.compile {
                let compile_began = Instant::now();
                let enforcement = spec.enforcement.unwrap_or(Enforcement::Strict);
                let compiled = self.compiled(cx, prepared, plan, enforcement, events).await?;
                times.compile = Some(milliseconds(compile_began));
                match compiled {
                    Compiled::Artifact(artifact) => self.place_artifact(cx, &sandbox.id, artifact).await?,
                    Compiled::Refused(executed, walls) => return Ok(Ran::Refused(*executed, walls)),
                }
            }
        }
        prepared.built();
        if let Some(events) = events {
            let _ = events.send(RunEvent::Phase(Phase::Running)).await;
        }
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
        let executed = execute(&*self.provider, cx, &sandbox.id, request, input, events, spools).await?;
        times.exec = milliseconds(exec_began);
        if executed.end.cause == EndCause::Sandbox {
            return Err(ended_early(&*self.provider, cx, &sandbox.id).await);
        }
        Ok(Ran::Program(executed))
    }

    fn told_run(
        &self,
        ran: Ran,
        sandbox: &Sandbox,
        prepared: &Prepared,
        times: Times,
    ) -> sandstorm_types::RunResult {
        let info = self.provider.info();
        let mut result = match ran {
            Ran::Program(executed) => outcome::of_run(executed, sandbox, info, times),
            Ran::Refused(executed, walls) => {
                let mut result = outcome::of_refused_compile(executed, *walls, info, times);
                result.route = outcome::route(info, sandbox.placement.as_ref(), times);
                result
            }
        };
        let spent = Duration::try_from_secs_f64((times.total - times.compile.unwrap_or(0.0)) / 1000.0);
        let cpu = Duration::try_from_secs_f64(result.metrics.cpu_ms / 1000.0);
        if let (Some(fleet), Ok(spent), Ok(cpu)) = (&self.fleet, spent, cpu)
            && let Some(cost) = fleet.charge(&result.route.provider, &prepared.limits, spent, cpu)
        {
            result.route.cost_usd = cost.as_f64();
        }
        result
    }

    /// Ends the sandbox of a run that was not begun there. What cannot be reached now is ended later.
    async fn let_go(&self, cx: &OpContext, id: SandboxId) {
        let last = OpContext::new(cx.tenant()).with_timeout(Duration::from_secs(30));
        if let Err(error) = self.provider.destroy(&last, &id).await {
            tracing::warn!(sandbox = %id, %error, "the sandbox of a run that was not begun is ended later");
        }
    }
}

/// The sandbox of a run, for this machine and for elsewhere.
fn wanted(
    spec: &RunSpec,
    prepared: &Prepared,
    routing: Option<Box<Routing>>,
) -> (SandboxSpec, CreateOptions) {
    let wanted = SandboxSpec {
        limits: prepared.limits,
        enforcement: spec.enforcement.unwrap_or(Enforcement::Strict),
        env: spec.env.clone(),
        network: spec.network.clone(),
        space: spec.space,
        lifetime: Lifetime { after: prepared.limits.wall + Duration::from_secs(60), then: OnEnd::Delete },
        ..SandboxSpec::default()
    };
    let mut elsewhere = wanted.clone();
    if !spec.requirements.is_empty() {
        elsewhere.requirements.insert(spec.language.clone(), spec.requirements.clone());
    }
    let options = CreateOptions {
        pooled: prepared.layers.is_empty(),
        mounts: prepared.mounts(),
        ephemeral: true,
        expects: expected(prepared),
        routing,
        elsewhere: Some(Box::new(elsewhere)),
        not_here: prepared.not_here.clone(),
        ..CreateOptions::default()
    };
    (wanted, options)
}

/// The same input for another attempt, where it can be given again.
fn again(input: &RunInput) -> Option<RunInput> {
    match input {
        RunInput::Empty => Some(RunInput::Empty),
        RunInput::Bytes(bytes) => Some(RunInput::Bytes(Bytes::clone(bytes))),
        RunInput::Stream(_) => None,
    }
}

/// An error with the places that were tried, and in words those of earlier turns.
fn told(error: Error, tried: Vec<Attempt>, earlier: usize) -> Error {
    let before: Vec<_> =
        tried.iter().take(earlier).map(|one| format!("{}: {}", one.provider, one.outcome)).collect();
    let error = if before.is_empty() { error } else { error.with("before", before.join(", ")) };
    error.with_attempts(tried)
}
