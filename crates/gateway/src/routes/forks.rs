//! Living sandboxes that go on in others.

use axum::extract::{Extension, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use sandstorm_control::server::{Caller, NewFork};
use sandstorm_provider::Error;
use sandstorm_types::SandboxId;

use crate::app::App;
use crate::idempotency::{self, Creation};
use crate::ids::Id;
use crate::json::Json;
use crate::problem::{ApiError, ApiResult};
use crate::wire::{ForkList, ForkSandbox};

/// Makes sandboxes that go on from where this one is: same files, and its Python contexts with their memory.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/fork", tag = "sandboxes", operation_id = "fork_sandbox",
    request_body = ForkSandbox,
    params(("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("Idempotency-Key" = Option<String>, Header, description = "Answers a repeated request with the first answer", pattern = "^[!-~]{1,255}$")),
    responses((status = 201, description = "The forks, the first of which could be made", body = ForkList)))]
pub(crate) async fn fork(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<SandboxId>,
    headers: HeaderMap,
    body: Json<ForkSandbox>,
) -> ApiResult<Response> {
    let Json { value, bytes, room: _room } = body;
    let new = NewFork::from(value);
    let route = format!("/v1/sandboxes/{id}/fork");
    let creation = Creation { route: &route, status: StatusCode::CREATED, location: "" };
    let mut unable = false;
    let make = Box::pin(async {
        let forks = app.control.fork_sandbox(&caller, id, new).await;
        forks.map(ForkList::from).inspect_err(|error| unable = lacks_ability(error))
    });
    let answer = idempotency::create(&app, &caller, &headers, &bytes, creation, make).await;
    let status = |error: ApiError| if unable { error.status(StatusCode::NOT_IMPLEMENTED) } else { error };
    answer.map_err(status)
}

/// Whether nothing about the request would help: this server cannot fork at all.
fn lacks_ability(error: &Error) -> bool {
    error.reasons().iter().any(|unmet| unmet.feature == "live_fork")
}
