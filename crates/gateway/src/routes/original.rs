//! The one route of the first Sandstorm that its SDK cannot do without.

use axum::Json as Answer;
use axum::extract::{Extension, State};
use http::HeaderMap;
use sandstorm_control::server::Caller;

use crate::app::App;
use crate::idempotency;
use crate::json::Json;
use crate::problem::ApiResult;
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
) -> ApiResult<Answer<OriginalResultBody>> {
    let Json { value, bytes: _, room: _room } = body;
    idempotency::refuse(&headers)?;
    let spec = value.into_spec(&app.control.places())?;
    let result = Box::pin(app.control.run(&caller, spec)).await?;
    Ok(Answer(result.into()))
}
