//! What came of a run or exec.

use std::collections::BTreeMap;

use sandstorm_types::{LimitName, PerStream, RunResult, Status};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::denied::DeniedBody;
use super::shapes::{LimitNameText, StatusName};
use super::walls::WallsBody;

/// The result. A program that fails is a result; only a platform failure is an error.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunResult)]
pub(crate) struct ResultBody {
    /// The id of the run or exec.
    id: String,
    #[schema(value_type = StatusName)]
    status: Status,
    success: bool,
    exit_code: Option<i32>,
    signal: Option<i32>,
    /// Text, or base64 where `base64.stdout` says so.
    stdout: String,
    stderr: String,
    /// Which streams were longer than what was kept.
    truncated: Streams,
    /// Which streams were not UTF-8 and are given in base64.
    base64: Streams,
    /// Values that the code produced, the main one first.
    results: Vec<Rich>,
    error: Option<Exception>,
    /// Limits that were touched without ending it.
    #[schema(value_type = Vec<LimitNameText>)]
    limits_hit: Vec<LimitName>,
    /// What programs of the sandbox wanted to reach on the network meanwhile and did not; absent when there is nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    denied: Vec<DeniedBody>,
    walls: WallsBody,
    metrics: Measured,
    route: Routed,
    /// Whether it is the result of an earlier run, given again because the request allowed it with `cache`. Absent
    /// otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    cached: Option<bool>,
    /// The run that made it, where it is `cached`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^run_[a-z2-7]{26}$")]
    cached_from: Option<String>,
    /// The budget that ended it, where one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped_by: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct Streams {
    stdout: bool,
    stderr: bool,
}

impl From<PerStream<bool>> for Streams {
    fn from(streams: PerStream<bool>) -> Self {
        Self { stdout: streams.stdout, stderr: streams.stderr }
    }
}

/// One value by MIME type: `text/plain` as text, images in base64, `application/json` as it is.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RichResult)]
pub(crate) struct Rich {
    data: BTreeMap<String, Value>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    metadata: BTreeMap<String, Value>,
    /// Whether it is the value of the last expression.
    main: bool,
}

/// An exception of the program.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProgramError)]
pub(crate) struct Exception {
    name: String,
    value: String,
    traceback: Vec<String>,
}

/// What was measured; times in milliseconds.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Metrics)]
pub(crate) struct Measured {
    queue_ms: f64,
    create_ms: f64,
    compile_ms: Option<f64>,
    exec_ms: f64,
    total_ms: f64,
    cpu_ms: f64,
    peak_memory_bytes: u64,
    stdout_bytes: u64,
    stderr_bytes: u64,
}

/// Where it ran and why there.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Route)]
struct Routed {
    provider: String,
    isolator: Option<String>,
    region: Option<String>,
    reason: String,
    attempts: Vec<Tried>,
    cost_usd: f64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Attempt)]
struct Tried {
    provider: String,
    outcome: String,
    ms: f64,
}

impl From<RunResult> for ResultBody {
    fn from(result: RunResult) -> Self {
        let (metrics, route) = (result.metrics, result.route);
        let rich = |one: sandstorm_types::RichResult| Rich {
            data: one.data,
            metadata: one.metadata,
            main: one.main,
        };
        let exception = |one: sandstorm_types::ProgramError| Exception {
            name: one.name,
            value: one.value,
            traceback: one.traceback,
        };
        let tried = |one: sandstorm_types::Attempt| Tried {
            provider: one.provider,
            outcome: one.outcome,
            ms: one.ms,
        };
        Self {
            id: result.id,
            status: result.status,
            success: result.success,
            exit_code: result.exit_code,
            signal: result.signal,
            stdout: result.stdout,
            stderr: result.stderr,
            truncated: result.truncated.into(),
            base64: result.base64.into(),
            results: result.results.into_iter().map(rich).collect(),
            error: result.error.map(exception),
            limits_hit: result.limits_hit,
            denied: result.denied.into_iter().map(DeniedBody::from).collect(),
            walls: result.walls.into(),
            metrics: Measured {
                queue_ms: metrics.queue_ms,
                create_ms: metrics.create_ms,
                compile_ms: metrics.compile_ms,
                exec_ms: metrics.exec_ms,
                total_ms: metrics.total_ms,
                cpu_ms: metrics.cpu_ms,
                peak_memory_bytes: metrics.peak_memory_bytes,
                stdout_bytes: metrics.stdout_bytes,
                stderr_bytes: metrics.stderr_bytes,
            },
            route: Routed {
                provider: route.provider,
                isolator: route.isolator,
                region: route.region,
                reason: route.reason,
                attempts: route.attempts.into_iter().map(tried).collect(),
                cost_usd: route.cost_usd,
            },
            cached: result.cached_from.is_some().then_some(true),
            cached_from: result.cached_from,
            stopped_by: result.stopped_by,
        }
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_types::{Denied, DeniedProtocol, Metrics, Route, Timestamp, Walls};

    use super::*;

    #[test]
    fn no_field_is_lost() {
        let result = RunResult {
            id: "run_x".into(),
            status: Status::Ok,
            success: true,
            exit_code: Some(0),
            signal: None,
            stdout: "1\n".into(),
            stderr: String::new(),
            truncated: PerStream::default(),
            base64: PerStream { stdout: true, stderr: false },
            results: vec![sandstorm_types::RichResult::default()],
            error: Some(sandstorm_types::ProgramError::default()),
            limits_hit: vec![LimitName::Disk],
            denied: vec![Denied {
                host: Some("a.test".into()),
                port: None,
                protocol: DeniedProtocol::Dns,
                reason: "not_allowed".into(),
                message: "why".into(),
                count: 2,
                at: Timestamp::from_millis(7),
            }],
            walls: Walls::default(),
            metrics: Metrics { compile_ms: Some(1.5), ..Metrics::default() },
            route: Route::default(),
            cached_from: None,
            stopped_by: Some("the budget `x`".into()),
        };
        assert_eq!(
            serde_json::to_value(&result).unwrap(),
            serde_json::to_value(ResultBody::from(result)).unwrap()
        );
    }
}
