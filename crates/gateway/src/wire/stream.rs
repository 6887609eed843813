//! What the events of runs and execs look like. They are written by the types inside; these give them a schema.

#![expect(dead_code, reason = "these types are never made: they give a schema to what is written elsewhere")]

use utoipa::ToSchema;

use super::denied::DeniedBody;
use super::result::{Exception, Measured, Rich};
use super::shapes::{ErrorCode, LimitNameText, StatusName};

/// One event of a run or exec; the `data` of a server-sent event whose `event` is its `type` and whose `id` its `seq`.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum StreamEvent {
    Start(Started),
    Stdout(Output),
    Stderr(Output),
    /// A value that the code produced.
    Result(Produced),
    /// An exception of the program.
    Error(Raised),
    End(Ended),
}

#[derive(ToSchema)]
pub(crate) struct Started {
    seq: u64,
    exec: String,
}

/// A piece of output: `text`, or `base64` where the bytes are not UTF-8.
#[derive(ToSchema)]
pub(crate) struct Output {
    seq: u64,
    /// Place of the first byte in its stream.
    offset: u64,
    text: Option<String>,
    #[schema(content_encoding = "base64")]
    base64: Option<String>,
}

#[derive(ToSchema)]
pub(crate) struct Produced {
    seq: u64,
    #[serde(flatten)]
    value: Rich,
}

#[derive(ToSchema)]
pub(crate) struct Raised {
    seq: u64,
    #[serde(flatten)]
    exception: Exception,
}

/// How it ended.
#[derive(ToSchema)]
pub(crate) struct Ended {
    seq: u64,
    status: StatusName,
    success: bool,
    exit_code: Option<i32>,
    signal: Option<i32>,
    limits_hit: Vec<LimitNameText>,
    /// What programs of the sandbox wanted to reach on the network meanwhile and did not; absent when there is nothing.
    #[schema(required = false)]
    denied: Vec<DeniedBody>,
    metrics: Measured,
    /// Set when the platform failed, whatever the program did.
    problem: Option<StreamProblem>,
}

#[derive(ToSchema)]
pub(crate) struct StreamProblem {
    code: ErrorCode,
    detail: String,
}
