//! What the first Sandstorm's SDK calls: runs, snapshots, usage.
//!
//! Two of its calls have the path of a native route and another answer: the list of snapshots, and usage. They are told
//! apart by their parameters, or by `/original` before the path, which an SDK gets by its `baseUrl`.

use axum::Json as Answer;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, header};
use sandstorm_control::server::{Caller, CostQuery, GroupBy, NewSandbox, NewSnapshot, SnapshotQuery};
use sandstorm_types::{SandboxId, SnapshotId, Template};

use super::snapshots::refused;
use super::usage::moment;
use crate::app::App;
use crate::idempotency;
use crate::ids::Id;
use crate::json::{self, Json};
use crate::problem::{ApiError, ApiResult};
use crate::query::Query;
use crate::whole::Long;
use crate::wire::{OriginalResultBody, OriginalSnapshot, OriginalUsage, RestoredBody, RunInSandbox};

/// The most snapshots of one answer, which has no pages.
const MOST: u32 = 1000;

/// Runs code in a fresh sandbox, asked and answered as the first Sandstorm's SDK does it. `POST /v1/runs` can do more.
#[utoipa::path(post, path = "/v1/sandboxes/run", tag = "runs", operation_id = "run_in_sandbox",
    request_body = RunInSandbox,
    responses((status = 200, description = "The result", body = OriginalResultBody)))]
pub(crate) async fn run(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Json<RunInSandbox>,
) -> ApiResult<Response> {
    let Json { value, bytes: _, room: _room } = body;
    idempotency::refuse(&headers)?;
    let spec = value.into_spec(&app.control.places())?;
    let outcome = Box::pin(app.control.run_whole(&caller, spec)).await?;
    let write = |result| json::written(&OriginalResultBody::from(result));
    let (result, long) = Long::of(outcome, write);
    let content_type = [(header::CONTENT_TYPE, "application/json")];
    // As for `POST /v1/runs`: without a place among the tenant's streams the answer has the beginning.
    let long = long.and_then(|long| Some((long, app.control.open_stream(&caller).ok()?)));
    Ok(match long {
        Some((long, seat)) => (content_type, long.into_body(seat)).into_response(),
        None => (content_type, write(result)).into_response(),
    })
}

/// Saves the files of a sandbox, asked and answered as the first Sandstorm's SDK does it.
///
/// `POST /v1/sandboxes/{sandbox}/snapshots` can do more.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/snapshot", tag = "snapshots", operation_id = "snapshot_sandbox",
    params(("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$")),
    responses((status = 200, description = "The snapshot", body = OriginalSnapshot)))]
pub(crate) async fn snapshot(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<SandboxId>,
    headers: HeaderMap,
) -> ApiResult<Answer<OriginalSnapshot>> {
    idempotency::refuse(&headers)?;
    let saved = app.control.create_snapshot(&caller, id, NewSnapshot::default()).await;
    Ok(Answer(saved.map_err(refused)?.into()))
}

/// Makes a sandbox from a snapshot, asked and answered as the first Sandstorm's SDK does it.
///
/// `POST /v1/sandboxes` with the snapshot as its template can do more.
#[utoipa::path(post, path = "/v1/snapshots/{snapshot}/restore", tag = "snapshots", operation_id = "restore_snapshot",
    params(("snapshot" = String, Path, description = "Id of the snapshot", pattern = "^snap_[a-z2-7]{26}$")),
    responses((status = 200, description = "The sandbox", body = RestoredBody)))]
pub(crate) async fn restore(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<SnapshotId>,
    headers: HeaderMap,
) -> ApiResult<Answer<RestoredBody>> {
    idempotency::refuse(&headers)?;
    let new = NewSandbox { template: Template::Snapshot(id), ..NewSandbox::default() };
    let made = Box::pin(app.control.create_sandbox(&caller, new)).await?;
    Ok(Answer(RestoredBody { sandbox_id: made.id }))
}

/// Whether a list of snapshots is asked for in the first Sandstorm's words.
pub(super) fn lists(query: &Query) -> bool {
    query.has("sandboxId") || query.has("provider")
}

/// All snapshots as one list. More than fit into one are refused, never cut in silence.
pub(super) async fn list(app: &App, caller: &Caller, mut query: Query) -> ApiResult<Response> {
    let (sandbox, provider) = (query.text("sandboxId")?, query.text("provider")?);
    query.finish()?;
    let none = || Ok(Answer(Vec::<OriginalSnapshot>::new()).into_response());
    let sandbox = match sandbox.map(|id| id.parse::<SandboxId>()) {
        Some(Err(_)) => return none(),
        sandbox => sandbox.and_then(Result::ok),
    };
    let wanted = SnapshotQuery { sandbox, provider, limit: Some(MOST), ..SnapshotQuery::default() };
    let page = app.control.snapshots(caller, wanted).await?;
    if page.next_cursor.is_some() {
        let why = format!("there are more than {MOST} snapshots: list them in pages by `GET /v1/snapshots`");
        return Err(ApiError::invalid(why));
    }
    let items: Vec<_> = page.items.into_iter().map(OriginalSnapshot::from).collect();
    Ok(Answer(items).into_response())
}

/// Whether usage is asked for in the first Sandstorm's words.
pub(super) fn asks_usage(query: &Query) -> bool {
    query.has("start") || query.has("end")
}

pub(super) async fn usage(app: &App, caller: &Caller, mut query: Query) -> ApiResult<Response> {
    let (from, to) = (moment(&mut query, "start")?, moment(&mut query, "end")?);
    query.finish()?;
    let group_by = vec![GroupBy::Provider, GroupBy::Kind];
    let wanted = CostQuery { from, to, group_by, limit: Some(MOST), ..CostQuery::default() };
    let report = app.control.costs(caller, wanted).await?;
    Ok(Answer(OriginalUsage::new(&report)).into_response())
}
