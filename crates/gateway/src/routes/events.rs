//! What happens, as a subscription.

use axum::extract::{Extension, State};
use axum::response::Response;
use futures_util::StreamExt;
use http::HeaderMap;
use sandstorm_control::server::{Caller, EventFilter};
use sandstorm_types::SandboxId;

use crate::app::App;
use crate::ids::Id;
use crate::problem::ApiResult;
use crate::query::Query;
use crate::sse::{self, Ends};
use crate::wire::ServerEvent;

/// Everything that happens to the tenant's sandboxes and runs, from now on or after `Last-Event-ID`.
#[utoipa::path(get, path = "/v1/events", tag = "events", operation_id = "tenant_events",
    params(
        ("after" = Option<u64>, Query, description = "Only events with a higher number"),
        ("Last-Event-ID" = Option<u64>, Header, description = "The same, as browsers send it")),
    responses((status = 200, description = "Events", body = String, content_type = "text/event-stream")))]
pub(crate) async fn of_tenant(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    query: Query,
) -> ApiResult<Response> {
    subscribe(&app, &caller, &headers, query, None).await
}

/// Everything that happens to one sandbox; ends after its last transition.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/events", tag = "events", operation_id = "sandbox_events",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("after" = Option<u64>, Query, description = "Only events with a higher number"),
        ("Last-Event-ID" = Option<u64>, Header, description = "The same, as browsers send it")),
    responses((status = 200, description = "Events", body = String, content_type = "text/event-stream")))]
pub(crate) async fn of_sandbox(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<SandboxId>,
    headers: HeaderMap,
    query: Query,
) -> ApiResult<Response> {
    subscribe(&app, &caller, &headers, query, Some(id)).await
}

async fn subscribe(
    app: &App,
    caller: &Caller,
    headers: &HeaderMap,
    mut query: Query,
    sandbox: Option<SandboxId>,
) -> ApiResult<Response> {
    let asked = query.number("after", 0, i64::MAX as u64)?;
    query.finish()?;
    // A client that reconnects sends what it saw last, which is newer than what its address says.
    let after = sse::last_event_id(headers)?.or(asked);
    let seat = app.control.open_stream(caller)?;
    let events = app.control.events(caller, EventFilter { sandbox, after }).await?;
    let events = events.map(|event| {
        let event = ServerEvent::from(event);
        sse::json_event(&event.name, Some(event.seq), &event)
    });
    Ok(sse::answer(app, caller, seat, Ends::WithServer, events))
}
