//! The one route of the first Sandstorm that its SDK cannot do without.

use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, header};
use sandstorm_control::server::Caller;

use crate::app::App;
use crate::idempotency;
use crate::json::{self, Json};
use crate::problem::ApiResult;
use crate::whole::Long;
use crate::wire::{OriginalResultBody, RunInSandbox};

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
