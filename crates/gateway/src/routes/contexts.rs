//! Living interpreters.

use axum::Json as Answer;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use sandstorm_control::server::{Caller, NewContext, OneContext, OneExec};
use sandstorm_types::{ContextId, SandboxId};

use super::execs;
use crate::app::App;
use crate::idempotency::{self, Creation};
use crate::ids::{Id, Ids};
use crate::json::Json;
use crate::problem::{ApiError, ApiResult};
use crate::sse;
use crate::wire::{ContextBody, ContextList, CreateContext, Execute, ResultBody};

/// Starts an interpreter.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/contexts", tag = "contexts", operation_id = "create_context",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("Idempotency-Key" = Option<String>, Header, description = "Answers a repeated request with the first answer", pattern = "^[!-~]{1,255}$")),
    request_body = CreateContext,
    responses((status = 201, description = "The context", body = ContextBody,
        headers(("Location" = String, description = "Its address")))))]
pub(crate) async fn create(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(sandbox): Id<SandboxId>,
    headers: HeaderMap,
    body: Json<CreateContext>,
) -> ApiResult<Response> {
    let Json { value, bytes, room: _room } = body;
    let new = NewContext::from(value);
    let route = format!("/v1/sandboxes/{sandbox}/contexts");
    let location = format!("{route}/");
    let creation =
        Creation { route: &route, status: StatusCode::CREATED, location: &location, refused: ApiError::from };
    let make = OneContext { sandbox, new };
    idempotency::create(&app, &caller, &headers, &bytes, creation, make, ContextBody::from).await
}

/// Interpreters of a sandbox.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/contexts", tag = "contexts", operation_id = "list_contexts",
    params(("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$")),
    responses((status = 200, description = "Contexts", body = ContextList)))]
pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(sandbox): Id<SandboxId>,
) -> ApiResult<Answer<ContextList>> {
    let contexts = app.control.contexts(&caller, sandbox).await?;
    Ok(Answer(ContextList { items: contexts.into_iter().map(ContextBody::from).collect() }))
}

/// One interpreter.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/contexts/{context}", tag = "contexts", operation_id = "get_context",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("context" = String, Path, description = "Id of the context", pattern = "^ctx_[a-z2-7]{26}$")),
    responses((status = 200, description = "The context", body = ContextBody)))]
pub(crate) async fn get(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Ids(sandbox, context): Ids<SandboxId, ContextId>,
) -> ApiResult<Answer<ContextBody>> {
    Ok(Answer(app.control.context(&caller, sandbox, context).await?.into()))
}

/// Ends an interpreter.
#[utoipa::path(delete, path = "/v1/sandboxes/{sandbox}/contexts/{context}", tag = "contexts",
    operation_id = "delete_context",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("context" = String, Path, description = "Id of the context", pattern = "^ctx_[a-z2-7]{26}$")),
    responses((status = 204, description = "It is gone")))]
pub(crate) async fn delete(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Ids(sandbox, context): Ids<SandboxId, ContextId>,
) -> ApiResult<StatusCode> {
    app.control.delete_context(&caller, sandbox, context).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Runs a piece of code in an interpreter; its variables stay. Answers with the result, or with events by `Accept`.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/contexts/{context}/execute", tag = "contexts",
    operation_id = "execute_in_context",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("context" = String, Path, description = "Id of the context", pattern = "^ctx_[a-z2-7]{26}$"),
        ("Idempotency-Key" = Option<String>, Header, description = "Answers a repeated request with the first answer", pattern = "^[!-~]{1,255}$")),
    request_body = Execute,
    responses((status = 200, description = "The result; or events by `Accept`", content(
        (ResultBody = "application/json"), (String = "text/event-stream")))))]
pub(crate) async fn execute(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Ids(sandbox, context): Ids<SandboxId, ContextId>,
    headers: HeaderMap,
    body: Json<Execute>,
) -> ApiResult<Response> {
    let Json { value, bytes, room: _room } = body;
    let new = value.in_context(context);
    if sse::wanted(&headers) {
        idempotency::refuse(&headers)?;
        return execs::follow(&app, &caller, sandbox, new).await;
    }
    let route = format!("/v1/sandboxes/{sandbox}/contexts/{context}/execute");
    let creation = Creation { route: &route, status: StatusCode::OK, location: "", refused: ApiError::from };
    let run = OneExec { sandbox, new };
    idempotency::create_result(&app, &caller, &headers, &bytes, creation, run).await
}

/// Ends the piece of code that runs and keeps the variables. Nothing running is success.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/contexts/{context}/interrupt", tag = "contexts",
    operation_id = "interrupt_context",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("context" = String, Path, description = "Id of the context", pattern = "^ctx_[a-z2-7]{26}$")),
    responses((status = 204, description = "Nothing runs any more, or will not for long")))]
pub(crate) async fn interrupt(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Ids(sandbox, context): Ids<SandboxId, ContextId>,
) -> ApiResult<StatusCode> {
    app.control.interrupt_context(&caller, sandbox, context).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A new interpreter under the same id; its variables are gone.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/contexts/{context}/restart", tag = "contexts",
    operation_id = "restart_context",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("context" = String, Path, description = "Id of the context", pattern = "^ctx_[a-z2-7]{26}$")),
    responses((status = 200, description = "The context", body = ContextBody)))]
pub(crate) async fn restart(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Ids(sandbox, context): Ids<SandboxId, ContextId>,
) -> ApiResult<Answer<ContextBody>> {
    Ok(Answer(app.control.restart_context(&caller, sandbox, context).await?.into()))
}
