//! What happens on the server and to files, as streams tell it.

use sandstorm_control::server::{ControlEvent, EventBodyView};
use sandstorm_provider::{FileChange, FileEvent};
use sandstorm_types::{ExecId, GuestPath, RunId, SandboxId, Status, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

use super::shapes::StatusName;

/// One event of the server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ServerEvent {
    pub(crate) seq: u64,
    /// `sandbox:<state>`, `execute:start`, `execute:success`, `execute:error`, `execute:complete`, `network:denied`.
    #[serde(rename = "type")]
    pub(crate) name: String,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    #[schema(value_type = Option<String>)]
    sandbox: Option<SandboxId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    exec: Option<ExecId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    run: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<StatusName>)]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl From<ControlEvent> for ServerEvent {
    fn from(event: ControlEvent) -> Self {
        let mut this = Self {
            seq: event.seq,
            name: String::new(),
            at: event.at,
            sandbox: event.sandbox,
            exec: None,
            run: None,
            status: None,
            destination: None,
            reason: None,
        };
        let mut execute = |name: &str, exec, run| {
            (this.name, this.exec, this.run) = (format!("execute:{name}"), exec, run);
        };
        match event.body {
            EventBodyView::ExecuteStart { exec, run } => execute("start", exec, run),
            EventBodyView::ExecuteSuccess { exec, run } => execute("success", exec, run),
            EventBodyView::ExecuteComplete { exec, run } => execute("complete", exec, run),
            EventBodyView::ExecuteError { exec, run, status } => {
                execute("error", exec, run);
                this.status = status;
            }
            EventBodyView::State { to, reason } => {
                this.name = format!("sandbox:{to}");
                this.reason = reason;
            }
            EventBodyView::Denied { destination, reason } => {
                "network:denied".clone_into(&mut this.name);
                (this.destination, this.reason) = (Some(destination), Some(reason));
            }
        }
        this
    }
}

/// A change to a file.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WatchEvent {
    #[schema(value_type = String)]
    path: GuestPath,
    /// `created`, `modified`, `removed`, `moved`, or `lost` when changes came faster than they could be told.
    pub(crate) change: &'static str,
    /// Where a moved one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    from: Option<GuestPath>,
}

impl From<FileEvent> for WatchEvent {
    fn from(event: FileEvent) -> Self {
        let (change, from) = match event.change {
            FileChange::Created => ("created", None),
            FileChange::Modified | FileChange::Attributes => ("modified", None),
            FileChange::Removed => ("removed", None),
            FileChange::MovedFrom(from) => ("moved", Some(from)),
            FileChange::Lost => ("lost", None),
        };
        Self { path: event.path, change, from }
    }
}
