//! One-shot runs.

use axum::Json as Answer;
use axum::extract::{Extension, State};
use axum::response::Response;
use futures_util::StreamExt;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sandstorm_control::server::{Caller, OneRun, RunQuery};
use sandstorm_types::RunId;

use crate::app::App;
use crate::idempotency::{self, Creation};
use crate::ids::Id;
use crate::json::Json;
use crate::problem::{ApiError, ApiResult};
use crate::query::Query;
use crate::sse::{self, Ends};
use crate::wire::{ResultBody, RunBody, RunList, StartRun};

/// Runs code in a fresh sandbox and answers with the result, or with events as they happen.
///
/// With `Accept: text/event-stream` the answer is a stream of `start`, `stdout`, `stderr`, `result`, `error` and `end`;
/// closing the connection cancels the run.
#[utoipa::path(post, path = "/v1/runs", tag = "runs", operation_id = "start_run", request_body = StartRun,
    params(("Idempotency-Key" = Option<String>, Header, description = "Answers a repeated request with the first answer", pattern = "^[!-~]{1,255}$")),
    responses(
        (status = 200, description = "The result; or events by `Accept`", content(
            (ResultBody = "application/json"), (String = "text/event-stream")))))]
pub(crate) async fn start(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Json<StartRun>,
) -> ApiResult<Response> {
    let Json { value, bytes, room: _room } = body;
    let spec = value.into_spec(&app.control.places())?;
    if !sse::wanted(&headers) {
        let creation = Creation {
            route: "/v1/runs",
            status: StatusCode::OK,
            location: "/v1/runs/",
            refused: ApiError::from,
        };
        return idempotency::create_result(&app, &caller, &headers, &bytes, creation, OneRun(spec)).await;
    }
    idempotency::refuse(&headers)?;
    let seat = app.control.open_stream(&caller)?;
    let running = app.control.start_run(&caller, spec).await?;
    let place = HeaderValue::from_str(&format!("/v1/runs/{}", running.id)).ok();
    let events = running.events.map(|event| sse::exec_event(&event));
    let mut response = sse::answer(&app, &caller, seat, Ends::Itself, events);
    if let Some(place) = place {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

/// Runs of the tenant, newest first.
#[utoipa::path(get, path = "/v1/runs", tag = "runs", operation_id = "list_runs",
    params(
        ("running" = Option<bool>, Query, description = "Only those that run"),
        ("limit" = Option<u32>, Query, description = "At most so many", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "From `next_cursor` of an earlier page")),
    responses((status = 200, description = "A page of runs", body = RunList)))]
pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    mut query: Query,
) -> ApiResult<Answer<RunList>> {
    let wanted = RunQuery {
        running_only: query.flag("running")?,
        limit: query.number("limit", 1, 1000)?.and_then(|limit| u32::try_from(limit).ok()),
        cursor: query.text("cursor")?,
    };
    query.finish()?;
    let page = app.control.runs(&caller, wanted).await?;
    let items = page.items.into_iter().map(RunBody::from).collect();
    Ok(Answer(RunList { items, next_cursor: page.next_cursor }))
}

/// One run.
#[utoipa::path(get, path = "/v1/runs/{run}", tag = "runs", operation_id = "get_run",
    params(("run" = String, Path, description = "Id of the run", pattern = "^run_[a-z2-7]{26}$")),
    responses((status = 200, description = "The run", body = RunBody)))]
pub(crate) async fn get(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<RunId>,
) -> ApiResult<Answer<RunBody>> {
    Ok(Answer(app.control.run_view(&caller, id).await?.into()))
}

/// Ends a run; one that has ended stays as it is.
#[utoipa::path(post, path = "/v1/runs/{run}/cancel", tag = "runs", operation_id = "cancel_run",
    params(("run" = String, Path, description = "Id of the run", pattern = "^run_[a-z2-7]{26}$")),
    responses((status = 200, description = "The run", body = RunBody)))]
pub(crate) async fn cancel(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<RunId>,
) -> ApiResult<Answer<RunBody>> {
    Ok(Answer(app.control.cancel_run(&caller, id).await?.into()))
}
