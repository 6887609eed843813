//! Files of a sandbox, other than their content.

use axum::Json as Answer;
use axum::extract::{Extension, State};
use axum::response::Response;
use futures_util::StreamExt;
use http::StatusCode;
use sandstorm_control::server::Caller;
use sandstorm_provider::{FileOp, FileReply, WatchOptions};
use sandstorm_types::{GuestPath, SandboxId};

use super::content::{about, stat as look, unexpected};
use crate::app::App;
use crate::ids::Id;
use crate::json::Json;
use crate::problem::{ApiError, ApiResult};
use crate::query::Query;
use crate::sse::{self, Ends};
use crate::wire::{Entries, ExistsBody, FileBody, FoundBody, MakeDir, MoveFile, SetMode, WatchEvent, octal};

const MAX_ENTRIES: u64 = 10_000;
const DEFAULT_ENTRIES: u64 = 1000;
const MAX_DEPTH: u64 = 32;

/// What lies below a folder, sorted by path.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/files/list", tag = "files", operation_id = "list_files",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("path" = Option<String>, Query, description = "The folder; the workspace unless given", min_length = 1, max_length = 4096),
        ("depth" = Option<u32>, Query, description = "So many levels", minimum = 1, maximum = 32),
        ("limit" = Option<u32>, Query, description = "At most so many", minimum = 1, maximum = 10000)),
    responses((status = 200, description = "Entries", body = Entries)))]
pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(sandbox): Id<SandboxId>,
    mut query: Query,
) -> ApiResult<Answer<Entries>> {
    let path = query.read("path")?.unwrap_or_else(GuestPath::workspace);
    let depth = query.number("depth", 1, MAX_DEPTH)?.unwrap_or(1) as u32;
    let limit = query.number("limit", 1, MAX_ENTRIES)?.unwrap_or(DEFAULT_ENTRIES) as usize;
    query.finish()?;
    let op = FileOp::List { path: path.clone(), depth, limit };
    match app.control.files(&caller, sandbox, op).await.map_err(about(&path))? {
        FileReply::List { entries, more } => {
            Ok(Answer(Entries { entries: entries.into_iter().map(FileBody::from).collect(), more }))
        }
        _ => Err(unexpected()),
    }
}

/// What is at a path; a link is described, not followed.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/files/stat", tag = "files", operation_id = "stat_file",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("path" = String, Query, description = "Path, relative to the workspace unless absolute", min_length = 1, max_length = 4096)),
    responses((status = 200, description = "What is there", body = FileBody)))]
pub(crate) async fn stat(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(sandbox): Id<SandboxId>,
    mut query: Query,
) -> ApiResult<Answer<FileBody>> {
    let path = query.path("path")?;
    query.finish()?;
    let missing = || ApiError::not_found().detail(format!("there is no file {path}"));
    Ok(Answer(look(&app, &caller, sandbox, &path).await?.ok_or_else(missing)?.into()))
}

/// Whether anything is at a path.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/files/exists", tag = "files", operation_id = "file_exists",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("path" = String, Query, description = "Path, relative to the workspace unless absolute", min_length = 1, max_length = 4096)),
    responses((status = 200, description = "Whether", body = ExistsBody)))]
pub(crate) async fn exists(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(sandbox): Id<SandboxId>,
    mut query: Query,
) -> ApiResult<Answer<ExistsBody>> {
    let path = query.path("path")?;
    query.finish()?;
    Ok(Answer(ExistsBody { exists: look(&app, &caller, sandbox, &path).await?.is_some() }))
}

/// Paths below a folder whose last part fits a pattern of `*` and `?`.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/files/search", tag = "files", operation_id = "search_files",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("path" = Option<String>, Query, description = "The folder; the workspace unless given", min_length = 1, max_length = 4096),
        ("pattern" = String, Query, description = "Such as `*.py`", min_length = 1, max_length = 255),
        ("limit" = Option<u32>, Query, description = "At most so many", minimum = 1, maximum = 10000)),
    responses((status = 200, description = "Paths", body = FoundBody)))]
pub(crate) async fn search(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(sandbox): Id<SandboxId>,
    mut query: Query,
) -> ApiResult<Answer<FoundBody>> {
    let root = query.read("path")?.unwrap_or_else(GuestPath::workspace);
    let pattern = query.text("pattern")?.ok_or_else(|| ApiError::field("pattern", "is missing"))?;
    let limit = query.number("limit", 1, MAX_ENTRIES)?.unwrap_or(DEFAULT_ENTRIES) as usize;
    query.finish()?;
    if pattern.is_empty() || pattern.len() > 255 || pattern.contains(['\0', '/']) {
        return Err(ApiError::field("pattern", "must be 1 to 255 bytes without `/` and NUL"));
    }
    let op = FileOp::Search { root: root.clone(), pattern, limit };
    match app.control.files(&caller, sandbox, op).await.map_err(about(&root))? {
        FileReply::Found { paths, more } => Ok(Answer(FoundBody { paths, more })),
        _ => Err(unexpected()),
    }
}

/// Changes below a folder, as they happen.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/files/watch", tag = "files", operation_id = "watch_files",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("path" = Option<String>, Query, description = "The folder; the workspace unless given", min_length = 1, max_length = 4096),
        ("recursive" = Option<bool>, Query, description = "Also folders below")),
    responses((status = 200, description = "Events", body = String, content_type = "text/event-stream")))]
pub(crate) async fn watch(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(sandbox): Id<SandboxId>,
    mut query: Query,
) -> ApiResult<Response> {
    let path = query.read("path")?.unwrap_or_else(GuestPath::workspace);
    let recursive = query.flag("recursive")?;
    query.finish()?;
    let seat = app.control.open_stream(&caller)?;
    let options = WatchOptions { recursive };
    let changes = app.control.watch(&caller, sandbox, &path, options).await.map_err(about(&path))?;
    let events = changes.map(|change| match change {
        Ok(change) => {
            let event = WatchEvent::from(change);
            sse::json_event(event.change, None, &event)
        }
        Err(error) => {
            let problem = serde_json::json!({ "code": error.kind().code(), "detail": error.message() });
            sse::json_event("problem", None, &problem)
        }
    });
    Ok(sse::answer(&app, &caller, seat, Ends::WithServer, events))
}

/// Makes a folder and those above it; an existing one is success.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/files/mkdir", tag = "files", operation_id = "make_directory",
    params(("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$")),
    request_body = MakeDir, responses((status = 204, description = "It is there")))]
pub(crate) async fn make_dir(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(sandbox): Id<SandboxId>,
    body: Json<MakeDir>,
) -> ApiResult<StatusCode> {
    let path = body.value.path;
    app.control
        .files(&caller, sandbox, FileOp::MakeDir { path: path.clone() })
        .await
        .map_err(about(&path))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Renames; a file in the way is replaced, folders above the target are made.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/files/move", tag = "files", operation_id = "move_file",
    params(("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$")),
    request_body = MoveFile, responses((status = 204, description = "It was moved")))]
pub(crate) async fn rename(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(sandbox): Id<SandboxId>,
    body: Json<MoveFile>,
) -> ApiResult<StatusCode> {
    let MoveFile { from, to } = body.value;
    let op = FileOp::Move { from: from.clone(), to };
    app.control.files(&caller, sandbox, op).await.map_err(about(&from))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sets permission bits.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/files/mode", tag = "files", operation_id = "set_file_mode",
    params(("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$")),
    request_body = SetMode, responses((status = 204, description = "They are set")))]
pub(crate) async fn set_mode(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(sandbox): Id<SandboxId>,
    body: Json<SetMode>,
) -> ApiResult<StatusCode> {
    let SetMode { path, mode } = body.value;
    let op = FileOp::SetMode { path: path.clone(), mode: octal("mode", &mode)? };
    app.control.files(&caller, sandbox, op).await.map_err(about(&path))?;
    Ok(StatusCode::NO_CONTENT)
}
