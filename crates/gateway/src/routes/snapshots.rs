//! Saved sandboxes: made, listed, removed. One is restored by making a sandbox with it as the template.

use axum::Json as Answer;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use sandstorm_control::server::{Caller, OneSnapshot, SnapshotQuery};
use sandstorm_provider::Error;
use sandstorm_types::{SandboxId, SnapshotId};

use super::original;
use crate::app::App;
use crate::front::AsOriginal;
use crate::idempotency::{self, Creation};
use crate::ids::Id;
use crate::json::Json;
use crate::problem::{ApiError, ApiResult};
use crate::query::Query;
use crate::wire::{CreateSnapshot, SnapshotBody, SnapshotList};

/// Saves the files of a ready sandbox, which goes on.
///
/// A sandbox with them is made by `POST /v1/sandboxes` with `{"template": {"snapshot": "snap_…"}}`.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/snapshots", tag = "snapshots", operation_id = "create_snapshot",
    request_body = CreateSnapshot,
    params(("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("Idempotency-Key" = Option<String>, Header, description = "Answers a repeated request with the first answer", pattern = "^[!-~]{1,255}$")),
    responses((status = 201, description = "The snapshot", body = SnapshotBody,
        headers(("Location" = String, description = "Its address")))))]
pub(crate) async fn create(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<SandboxId>,
    headers: HeaderMap,
    body: Json<CreateSnapshot>,
) -> ApiResult<Response> {
    let Json { value, bytes, room: _room } = body;
    let route = format!("/v1/sandboxes/{id}/snapshots");
    let creation =
        Creation { route: &route, status: StatusCode::CREATED, location: "/v1/snapshots/", refused };
    let make = OneSnapshot { sandbox: id, new: value.into() };
    idempotency::create(&app, &caller, &headers, &bytes, creation, make, SnapshotBody::made).await
}

/// A refusal to save. Where no request would help, since the sandbox's place cannot save, it is 501.
pub(super) fn refused(error: Error) -> ApiError {
    let unable = error.reasons().iter().any(|unmet| unmet.feature == "snapshot_files");
    let refused = ApiError::from(error);
    if unable { refused.status(StatusCode::NOT_IMPLEMENTED) } else { refused }
}

/// Snapshots of the tenant, newest first.
///
/// With `sandboxId` or `provider`, the words of the first Sandstorm's SDK, the answer is the list that it reads.
#[utoipa::path(get, path = "/v1/snapshots", tag = "snapshots", operation_id = "list_snapshots",
    params(
        ("sandbox" = Option<String>, Query, description = "Only those of this sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("name" = Option<String>, Query, description = "Only the one of this name"),
        ("limit" = Option<u32>, Query, description = "At most so many", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "From `next_cursor` of an earlier page")),
    responses((status = 200, description = "A page of snapshots", body = SnapshotList)))]
pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    as_original: Option<Extension<AsOriginal>>,
    mut query: Query,
) -> ApiResult<Response> {
    if as_original.is_some() || original::lists(&query) {
        return original::list(&app, &caller, query).await;
    }
    let wanted = SnapshotQuery {
        sandbox: query.read("sandbox")?,
        name: query.text("name")?,
        limit: query.number("limit", 1, 1000)?.and_then(|limit| u32::try_from(limit).ok()),
        cursor: query.text("cursor")?,
        ..SnapshotQuery::default()
    };
    query.finish()?;
    let page = app.control.snapshots(&caller, wanted).await?;
    let items = page.items.into_iter().map(SnapshotBody::from).collect();
    Ok(Answer(SnapshotList { items, next_cursor: page.next_cursor }).into_response())
}

/// One snapshot.
#[utoipa::path(get, path = "/v1/snapshots/{snapshot}", tag = "snapshots", operation_id = "get_snapshot",
    params(("snapshot" = String, Path, description = "Id of the snapshot", pattern = "^snap_[a-z2-7]{26}$")),
    responses((status = 200, description = "The snapshot", body = SnapshotBody)))]
pub(crate) async fn get(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<SnapshotId>,
) -> ApiResult<Answer<SnapshotBody>> {
    Ok(Answer(app.control.snapshot(&caller, id).await?.into()))
}

/// Removes a snapshot. Sandboxes that were made from it live on.
#[utoipa::path(delete, path = "/v1/snapshots/{snapshot}", tag = "snapshots", operation_id = "delete_snapshot",
    params(("snapshot" = String, Path, description = "Id of the snapshot", pattern = "^snap_[a-z2-7]{26}$")),
    responses((status = 204, description = "It is gone")))]
pub(crate) async fn delete(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<SnapshotId>,
) -> ApiResult<StatusCode> {
    app.control.delete_snapshot(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}
