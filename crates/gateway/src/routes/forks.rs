//! Living sandboxes that go on in others.

use axum::extract::{Extension, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use sandstorm_control::server::{Caller, NewFork, OneFork};
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
    let creation = Creation { route: &route, status: StatusCode::CREATED, location: "", refused };
    let make = OneFork { source: id, new };
    idempotency::create(&app, &caller, &headers, &bytes, creation, make, ForkList::from).await
}

fn refused(error: Error) -> ApiError {
    let unable = lacks_ability(&error);
    let refused = ApiError::from(error);
    if unable { refused.status(StatusCode::NOT_IMPLEMENTED) } else { refused }
}

/// Whether nothing about the request would help: this server cannot fork at all.
fn lacks_ability(error: &Error) -> bool {
    error.reasons().iter().any(|unmet| unmet.feature == "live_fork")
}
