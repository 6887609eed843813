//! Sandboxes: made, listed, extended, paused, ended.

use std::collections::BTreeMap;

use axum::Json as Answer;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use sandstorm_control::server::{Caller, NewSandbox, OneSandbox, SandboxQuery};
use sandstorm_types::{Labels, Phase, SandboxId, Timestamp};

use crate::app::App;
use crate::idempotency::{self, Creation};
use crate::ids::Id;
use crate::json::Json;
use crate::problem::{ApiError, ApiResult};
use crate::query::Query;
use crate::wire::{
    CreateSandbox, Extend, SampleBody, SampleList, SandboxBody, SandboxList, SetNetwork, StateName,
};

/// Makes a sandbox; it is ready when this answers.
#[utoipa::path(post, path = "/v1/sandboxes", tag = "sandboxes", operation_id = "create_sandbox",
    request_body = CreateSandbox,
    params(("Idempotency-Key" = Option<String>, Header, description = "Answers a repeated request with the first answer", pattern = "^[!-~]{1,255}$")),
    responses((status = 201, description = "The sandbox", body = SandboxBody,
        headers(("Location" = String, description = "Its address")))))]
pub(crate) async fn create(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Json<CreateSandbox>,
) -> ApiResult<Response> {
    let Json { value, bytes, room: _room } = body;
    let new = NewSandbox::from(value);
    let creation = Creation {
        route: "/v1/sandboxes",
        status: StatusCode::CREATED,
        location: "/v1/sandboxes/",
        refused: ApiError::from,
    };
    let make = OneSandbox(new);
    idempotency::create(&app, &caller, &headers, &bytes, creation, make, SandboxBody::from).await
}

/// Sandboxes of the tenant, newest first.
#[utoipa::path(get, path = "/v1/sandboxes", tag = "sandboxes", operation_id = "list_sandboxes",
    params(
        ("state" = Option<Vec<StateName>>, Query, description = "Only those in one of these states"),
        ("label" = Option<Vec<String>>, Query, description = "Only those with this label, as `key=value`"),
        ("include_ended" = Option<bool>, Query, description = "Also those that ended, while they are kept"),
        ("limit" = Option<u32>, Query, description = "At most so many", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "From `next_cursor` of an earlier page")),
    responses((status = 200, description = "A page of sandboxes", body = SandboxList)))]
pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    mut query: Query,
) -> ApiResult<Answer<SandboxList>> {
    let wanted = SandboxQuery {
        phases: query.all("state").iter().map(|name| phase(name)).collect::<ApiResult<_>>()?,
        labels: labels(&query.all("label"))?,
        include_ended: query.flag("include_ended")?,
        limit: query.number("limit", 1, 1000)?.and_then(|limit| u32::try_from(limit).ok()),
        cursor: query.text("cursor")?,
    };
    query.finish()?;
    let page = app.control.sandboxes(&caller, wanted).await?;
    let items = page.items.into_iter().map(SandboxBody::from).collect();
    Ok(Answer(SandboxList { items, next_cursor: page.next_cursor }))
}

fn phase(name: &str) -> ApiResult<Phase> {
    let unknown = |_| ApiError::field("state", "there is no such state");
    serde_json::from_value(serde_json::Value::from(name)).map_err(unknown)
}

fn labels(pairs: &[String]) -> ApiResult<Labels> {
    let mut map = BTreeMap::new();
    for pair in pairs {
        let (key, value) =
            pair.split_once('=').ok_or_else(|| ApiError::field("label", "must be written as key=value"))?;
        if map.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(ApiError::field("label", format!("{key:?} is given more than once")));
        }
    }
    Labels::try_from(map).map_err(|error| ApiError::field("label", error.to_string()))
}

/// One sandbox.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}", tag = "sandboxes", operation_id = "get_sandbox",
    params(("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$")),
    responses((status = 200, description = "The sandbox", body = SandboxBody)))]
pub(crate) async fn get(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<SandboxId>,
) -> ApiResult<Answer<SandboxBody>> {
    Ok(Answer(app.control.sandbox(&caller, id).await?.into()))
}

/// Ends a sandbox, whatever its state; one that has ended stays ended.
#[utoipa::path(delete, path = "/v1/sandboxes/{sandbox}", tag = "sandboxes", operation_id = "delete_sandbox",
    params(("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$")),
    responses((status = 204, description = "It is gone")))]
pub(crate) async fn delete(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<SandboxId>,
) -> ApiResult<StatusCode> {
    app.control.delete_sandbox(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sets the end of its lifetime, counted from now.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/extend", tag = "sandboxes", operation_id = "extend_sandbox",
    params(("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$")),
    request_body = Extend,
    responses((status = 200, description = "The sandbox", body = SandboxBody)))]
pub(crate) async fn extend(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<SandboxId>,
    body: Json<Extend>,
) -> ApiResult<Answer<SandboxBody>> {
    Ok(Answer(app.control.extend_sandbox(&caller, id, body.value.by()?).await?.into()))
}

/// Freezes everything in it; a paused one stays as it is.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/pause", tag = "sandboxes", operation_id = "pause_sandbox",
    params(("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$")),
    responses((status = 200, description = "The sandbox", body = SandboxBody)))]
pub(crate) async fn pause(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<SandboxId>,
) -> ApiResult<Answer<SandboxBody>> {
    Ok(Answer(app.control.pause_sandbox(&caller, id).await?.into()))
}

/// Lets it go on; one that is not paused stays as it is.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/resume", tag = "sandboxes", operation_id = "resume_sandbox",
    params(("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$")),
    responses((status = 200, description = "The sandbox", body = SandboxBody)))]
pub(crate) async fn resume(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<SandboxId>,
) -> ApiResult<Answer<SandboxBody>> {
    Ok(Answer(app.control.resume_sandbox(&caller, id).await?.into()))
}

/// Replaces its network policy at once; connections that the new one forbids end.
#[utoipa::path(put, path = "/v1/sandboxes/{sandbox}/network", tag = "sandboxes", operation_id = "set_network",
    params(("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$")),
    request_body = SetNetwork,
    responses((status = 200, description = "The sandbox", body = SandboxBody)))]
pub(crate) async fn network(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<SandboxId>,
    body: Json<SetNetwork>,
) -> ApiResult<Answer<SandboxBody>> {
    Ok(Answer(app.control.set_network(&caller, id, body.value.network).await?.into()))
}

/// What it used over time.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/metrics", tag = "sandboxes", operation_id = "sandbox_metrics",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("from" = Option<String>, Query, description = "Not before, as `2026-11-15T12:00:00.000Z`", format = DateTime),
        ("to" = Option<String>, Query, description = "Not after", format = DateTime)),
    responses((status = 200, description = "Readings, oldest first", body = SampleList)))]
pub(crate) async fn metrics(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<SandboxId>,
    mut query: Query,
) -> ApiResult<Answer<SampleList>> {
    let (from, to) = (query.read::<Timestamp>("from")?, query.read::<Timestamp>("to")?);
    query.finish()?;
    Ok(Answer(app.control.metrics(&caller, id, from, to).await?.into()))
}

/// What it uses now.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/usage", tag = "sandboxes", operation_id = "sandbox_usage",
    params(("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$")),
    responses((status = 200, description = "A reading", body = SampleBody)))]
pub(crate) async fn usage(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<SandboxId>,
    query: Query,
) -> ApiResult<Answer<SampleBody>> {
    query.finish()?;
    Ok(Answer(app.control.sandbox_usage(&caller, id).await?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_strict() {
        assert_eq!(phase("running").unwrap(), Phase::Running);
        assert!(phase("Running").is_err() && phase("").is_err());
        assert_eq!(labels(&["a=b=c".to_owned()]).unwrap().get("a"), Some("b=c"));
        assert!(labels(&["a".to_owned()]).is_err());
        assert!(labels(&["a=1".to_owned(), "a=2".to_owned()]).is_err());
    }
}
