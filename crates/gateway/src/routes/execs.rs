//! Programs and pieces of code in a sandbox.

use axum::Json as Answer;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use sandstorm_control::server::{Attached, Caller, NewExec, OneExec, OneStart};
use sandstorm_provider::ExecSignal;
use sandstorm_types::{ExecId, SandboxId};

use crate::app::App;
use crate::body;
use crate::idempotency::{self, Creation};
use crate::ids::{Id, Ids};
use crate::json::Json;
use crate::problem::{ApiError, ApiResult};
use crate::query::Query;
use crate::sse::{self, Ends};
use crate::wire::{ExecBody, ExecList, ResultBody, SignalRequest, StartExec};

/// Starts a program or piece of code and answers with its result, its events, or at once when it is in the background.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/exec", tag = "execs", operation_id = "start_exec",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("Idempotency-Key" = Option<String>, Header, description = "Answers a repeated request with the first answer", pattern = "^[!-~]{1,255}$")),
    request_body = StartExec,
    responses(
        (status = 200, description = "The result; or events by `Accept`", content(
            (ResultBody = "application/json"), (String = "text/event-stream"))),
        (status = 202, description = "It runs in the background", body = ExecBody)))]
pub(crate) async fn start(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(sandbox): Id<SandboxId>,
    headers: HeaderMap,
    body: Json<StartExec>,
) -> ApiResult<Response> {
    let Json { value, bytes, room: _room } = body;
    let background = value.is_background();
    let new = value.into_new()?;
    let route = format!("/v1/sandboxes/{sandbox}/exec");
    if background {
        let location = format!("/v1/sandboxes/{sandbox}/execs/");
        let creation = Creation {
            route: &route,
            status: StatusCode::ACCEPTED,
            location: &location,
            refused: ApiError::from,
        };
        let begin = OneStart { sandbox, new };
        return idempotency::create(&app, &caller, &headers, &bytes, creation, begin, ExecBody::from).await;
    }
    if sse::wanted(&headers) {
        idempotency::refuse(&headers)?;
        return follow(&app, &caller, sandbox, new).await;
    }
    let creation = Creation { route: &route, status: StatusCode::OK, location: "", refused: ApiError::from };
    let run = OneExec { sandbox, new };
    idempotency::create_result(&app, &caller, &headers, &bytes, creation, run).await
}

/// Starts an exec and streams its events.
pub(crate) async fn follow(
    app: &App,
    caller: &Caller,
    sandbox: SandboxId,
    new: NewExec,
) -> ApiResult<Response> {
    let seat = app.control.open_stream(caller)?;
    let attached = app.control.exec(caller, sandbox, new).await?;
    Ok(stream(app, caller, seat, attached))
}

fn stream(app: &App, caller: &Caller, seat: impl Send + 'static, attached: Attached) -> Response {
    let place = format!("/v1/sandboxes/{}/execs/{}", attached.view.sandbox, attached.view.id);
    let events = attached.events.map(|event| sse::exec_event(&event));
    let mut response = sse::answer(app, caller, seat, Ends::Itself, events);
    if let Ok(place) = HeaderValue::from_str(&place) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

/// Execs of a sandbox, latest first.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/execs", tag = "execs", operation_id = "list_execs",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("running" = Option<bool>, Query, description = "Only those that run")),
    responses((status = 200, description = "Execs", body = ExecList)))]
pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(sandbox): Id<SandboxId>,
    mut query: Query,
) -> ApiResult<Answer<ExecList>> {
    let running = query.flag("running")?;
    query.finish()?;
    let execs = app.control.execs(&caller, sandbox, running).await?;
    Ok(Answer(ExecList { items: execs.into_iter().map(ExecBody::from).collect() }))
}

/// One exec.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/execs/{exec}", tag = "execs", operation_id = "get_exec",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("exec" = String, Path, description = "Id of the exec", pattern = "^exec_[a-z2-7]{26}$")),
    responses((status = 200, description = "The exec", body = ExecBody)))]
pub(crate) async fn get(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Ids(sandbox, exec): Ids<SandboxId, ExecId>,
) -> ApiResult<Answer<ExecBody>> {
    Ok(Answer(app.control.exec_view(&caller, sandbox, exec).await?.into()))
}

/// Kills it; one that has ended stays as it is.
#[utoipa::path(delete, path = "/v1/sandboxes/{sandbox}/execs/{exec}", tag = "execs", operation_id = "kill_exec",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("exec" = String, Path, description = "Id of the exec", pattern = "^exec_[a-z2-7]{26}$")),
    responses((status = 204, description = "It was killed")))]
pub(crate) async fn kill(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Ids(sandbox, exec): Ids<SandboxId, ExecId>,
) -> ApiResult<StatusCode> {
    app.control.signal(&caller, sandbox, exec, ExecSignal::Kill).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Its events from the start or after one of them, also when it has ended, while it is kept.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/execs/{exec}/events", tag = "execs", operation_id = "exec_events",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("exec" = String, Path, description = "Id of the exec", pattern = "^exec_[a-z2-7]{26}$"),
        ("after" = Option<u64>, Query, description = "Only events with a higher number"),
        ("Last-Event-ID" = Option<u64>, Header, description = "The same, as browsers send it")),
    responses((status = 200, description = "Events", body = String, content_type = "text/event-stream")))]
pub(crate) async fn events(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Ids(sandbox, exec): Ids<SandboxId, ExecId>,
    headers: HeaderMap,
    mut query: Query,
) -> ApiResult<Response> {
    let asked = query.number("after", 0, i64::MAX as u64)?;
    query.finish()?;
    let after = sse::last_event_id(&headers)?.or(asked);
    let seat = app.control.open_stream(&caller)?;
    let attached = app.control.attach(&caller, sandbox, exec, after).await?;
    Ok(stream(&app, &caller, seat, attached))
}

/// How many bytes of input a program has had in all.
pub(crate) const STDIN_OFFSET: HeaderName = HeaderName::from_static("stdin-offset");

/// Writes to its standard input, as the bytes come; `close=true` ends the input after them.
///
/// The answer comes when the sandbox has the bytes: the program gets them even if the server is killed then. Without an
/// answer it may have a prefix of them. `offset` says at which byte of the input they begin, so that they can be sent
/// again: what the program has had already is left out, and a gap is refused with 409. An empty body asks where the input
/// ends.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/execs/{exec}/stdin", tag = "execs", operation_id = "write_stdin",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("exec" = String, Path, description = "Id of the exec", pattern = "^exec_[a-z2-7]{26}$"),
        ("close" = Option<bool>, Query, description = "Whether the input ends with these bytes"),
        ("offset" = Option<u64>, Query, description = "Place of the first byte in the program's input")),
    request_body(content = String, content_type = "application/octet-stream"),
    responses((status = 204, description = "The sandbox has the bytes", headers(
        ("Stdin-Offset" = Option<u64>, description = "Bytes of input that the program has had in all, where its provider counts them")))))]
pub(crate) async fn stdin(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Ids(sandbox, exec): Ids<SandboxId, ExecId>,
    mut query: Query,
    headers: HeaderMap,
    content: Body,
) -> ApiResult<Response> {
    body::expect_bytes(&headers, &[])?;
    let close = query.flag("close")?;
    let mut place = query.number("offset", 0, i64::MAX as u64)?;
    query.finish()?;
    // Also an empty body must find out whether the exec is there.
    app.control.exec_view(&caller, sandbox, exec).await?;
    // Such a body may last for as long as the program does.
    let _seat = body::is_stream(&content).then(|| app.control.open_stream(&caller)).transpose()?;
    let take = async {
        let mut pieces = body::stream(content);
        let (mut count, mut written) = (None, false);
        while let Some(piece) = pieces.try_next().await? {
            if !piece.is_empty() {
                let next = place.map(|place| place.saturating_add(piece.len() as u64));
                count = app.control.write_stdin_at(&caller, sandbox, exec, piece, place).await?;
                (place, written) = (next, true);
            }
        }
        if !written && (place.is_some() || !close) {
            count = app.control.write_stdin_at(&caller, sandbox, exec, Bytes::new(), place).await?;
        }
        Ok::<_, ApiError>(count)
    };
    let count = tokio::select! {
        count = take => count?,
        () = app.control.clone().revoked(caller.clone()) => return Err(ApiError::unauthenticated()),
    };
    if close {
        app.control.signal(&caller, sandbox, exec, ExecSignal::CloseStdin).await?;
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Some(count) = count {
        response.headers_mut().insert(STDIN_OFFSET, HeaderValue::from(count));
    }
    Ok(response)
}

/// Sends it a signal; one that has ended takes it in silence.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/execs/{exec}/signal", tag = "execs", operation_id = "signal_exec",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("exec" = String, Path, description = "Id of the exec", pattern = "^exec_[a-z2-7]{26}$")),
    request_body = SignalRequest,
    responses((status = 204, description = "The signal was sent")))]
pub(crate) async fn signal(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Ids(sandbox, exec): Ids<SandboxId, ExecId>,
    body: Json<SignalRequest>,
) -> ApiResult<StatusCode> {
    app.control.signal(&caller, sandbox, exec, body.value.signal()?).await?;
    Ok(StatusCode::NO_CONTENT)
}
