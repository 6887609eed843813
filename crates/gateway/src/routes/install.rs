//! Packages for a sandbox that lives.

use axum::extract::{Extension, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use sandstorm_control::server::{Caller, OneInstall};
use sandstorm_provider::Error;
use sandstorm_types::SandboxId;

use crate::app::App;
use crate::idempotency::{self, Creation};
use crate::ids::Id;
use crate::json::Json;
use crate::problem::{ApiError, ApiResult};
use crate::wire::{Install, InstalledBody};

/// Installs packages into a living sandbox, whatever its network. Programs and contexts that run there find them at once.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox}/install", tag = "sandboxes", operation_id = "install_packages",
    request_body = Install,
    params(("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("Idempotency-Key" = Option<String>, Header, description = "Answers a repeated request with the first answer", pattern = "^[!-~]{1,255}$")),
    responses((status = 200, description = "What was installed, and where", body = InstalledBody)))]
pub(crate) async fn install(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<SandboxId>,
    headers: HeaderMap,
    body: Json<Install>,
) -> ApiResult<Response> {
    let Json { value, bytes, room: _room } = body;
    let route = format!("/v1/sandboxes/{id}/install");
    let creation = Creation { route: &route, status: StatusCode::OK, location: "", refused };
    let make = OneInstall { sandbox: id, new: value.into() };
    idempotency::create(&app, &caller, &headers, &bytes, creation, make, InstalledBody::from).await
}

/// A refusal to install. Where no request would help, since the sandbox is not on this machine, it is 501.
fn refused(error: Error) -> ApiError {
    let unable = error.reasons().iter().any(|unmet| unmet.feature == "install");
    let refused = ApiError::from(error);
    if unable { refused.status(StatusCode::NOT_IMPLEMENTED) } else { refused }
}
