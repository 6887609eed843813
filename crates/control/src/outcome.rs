//! From how a program ended to the one result shape.

use std::io;

use sandstorm_provider::{EndCause, Error, ExecEnd, ExecStatus, Placement, ProviderInfo, Result, Sandbox};
use sandstorm_types::{
    Attempt, ErrorKind, LimitName, Metrics, PerStream, Route, RunId, RunResult, Status, Walls,
};

use crate::compile::limit;
use crate::execute::Executed;
use crate::spool::Whole;

/// Times of a run in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    pub(crate) create: f64,
    pub(crate) compile: Option<f64>,
    pub(crate) exec: f64,
    pub(crate) total: f64,
}

/// The result of a program, and all of its output where that is more than the result has.
#[derive(Debug)]
pub struct Outcome {
    /// With the beginning of the output, which is told to be truncated, where there is `whole`.
    pub result: RunResult,
    pub whole: Option<Whole>,
}

impl Outcome {
    /// The result with all of its output, in memory.
    pub fn into_result(self) -> Result<RunResult> {
        let Self { mut result, whole } = self;
        if let Some(whole) = whole {
            let lost = |error: io::Error| {
                Error::new(ErrorKind::Internal, "the output cannot be read any more").with_source(error)
            };
            result.set_output(whole.stdout.read().map_err(lost)?, whole.stderr.read().map_err(lost)?);
            result.truncated = whole.truncated;
        }
        Ok(result)
    }
}

impl From<RunResult> for Outcome {
    fn from(result: RunResult) -> Self {
        Self { result, whole: None }
    }
}

/// The result of a program that ran.
pub(crate) fn of_run(executed: Executed, sandbox: &Sandbox, info: &ProviderInfo, times: Times) -> RunResult {
    let walls = sandbox.stated_walls();
    let status = status(&executed);
    let mut result = result(executed, status, walls, info, times);
    if let Some(placement) = &sandbox.placement {
        result.route = route(info, Some(placement), times);
    }
    result
}

/// Where something ran.
pub(crate) fn route(info: &ProviderInfo, placement: Option<&Placement>, times: Times) -> Route {
    let own = |info: &ProviderInfo| Attempt {
        provider: info.name.clone(),
        outcome: "ok".to_owned(),
        ms: times.total,
        sandbox: None,
    };
    match placement {
        Some(placement) => Route {
            provider: placement.info.name.clone(),
            isolator: Some(placement.info.kind.clone()),
            region: placement.info.region.clone(),
            reason: placement.reason.clone(),
            attempts: placement.attempts.clone(),
            cost_usd: placement.cost.as_f64(),
        },
        None => Route {
            provider: info.name.clone(),
            isolator: Some(info.kind.clone()),
            region: info.region.clone(),
            reason: "the only provider".to_owned(),
            attempts: vec![own(info)],
            cost_usd: 0.0,
        },
    }
}

/// The result of a program in a sandbox that lives on.
pub(crate) fn of_exec(executed: Executed, walls: Walls, info: &ProviderInfo, times: Times) -> RunResult {
    let status = status(&executed);
    result(executed, status, walls, info, times)
}

/// The result of a compiler that refused: its messages are the program's errors.
pub(crate) fn of_refused_compile(
    mut executed: Executed,
    walls: Walls,
    info: &ProviderInfo,
    times: Times,
) -> RunResult {
    // Compilers differ in where they complain; the reader looks in one place.
    let mut messages = std::mem::take(&mut executed.stdout);
    messages.append(&mut executed.stderr);
    if let Some(limit) = limit(executed.end.cause) {
        messages.extend_from_slice(format!("the compiler was ended by its {limit} limit\n").as_bytes());
        executed.end.limits_hit = executed.end.limits_hit.with(limit);
    }
    executed.stderr = messages;
    let status = if executed.end.cause == EndCause::Caller { Status::Killed } else { Status::CompileError };
    result(executed, status, walls, info, times)
}

fn status(executed: &Executed) -> Status {
    status_of(&executed.end)
}

/// The verdict on a program, from how it ended.
pub(crate) fn status_of(end: &ExecEnd) -> Status {
    match (end.cause, end.status) {
        (EndCause::Limit(LimitName::Wall), _) => Status::Timeout,
        (EndCause::Limit(LimitName::CpuTime), _) => Status::Cpu,
        (EndCause::Limit(LimitName::Memory), _) => Status::Memory,
        (EndCause::Limit(LimitName::Output), _) => Status::Output,
        (EndCause::Caller, _) => Status::Killed,
        (EndCause::Compiler, _) => Status::CompileError,
        (EndCause::Program, ExecStatus::Code(0)) => Status::Ok,
        (EndCause::Program | EndCause::Sandbox | EndCause::Limit(_), _) => Status::Error,
    }
}

fn result(executed: Executed, status: Status, walls: Walls, info: &ProviderInfo, times: Times) -> RunResult {
    let end = executed.end;
    let (exit_code, signal) = match end.status {
        ExecStatus::Code(code) => (Some(code), None),
        ExecStatus::Signal(signal) => (None, Some(signal)),
    };
    let mut result = RunResult {
        id: RunId::random().to_string(),
        status,
        success: status == Status::Ok,
        exit_code,
        signal,
        stdout: String::new(),
        stderr: String::new(),
        truncated: PerStream {
            stdout: end.truncated.stdout || executed.cut.stdout,
            stderr: end.truncated.stderr || executed.cut.stderr,
        },
        base64: PerStream::default(),
        results: Vec::new(),
        error: None,
        limits_hit: end.limits_hit.iter().collect(),
        denied: end.denied,
        walls,
        metrics: Metrics {
            queue_ms: 0.0,
            create_ms: times.create,
            compile_ms: times.compile,
            exec_ms: times.exec,
            total_ms: times.total,
            cpu_ms: end.usage.cpu.as_secs_f64() * 1000.0,
            peak_memory_bytes: end.usage.peak_memory.as_u64(),
            stdout_bytes: end.written.stdout,
            stderr_bytes: end.written.stderr,
        },
        route: route(info, None, times),
        cached_from: None,
        stopped_by: None,
    };
    result.set_output(executed.stdout, executed.stderr);
    result
}
