//! HTTP and WebSocket to a port inside a sandbox.

use std::str::FromStr;

use axum::extract::{Extension, Request, State};
use axum::response::Response;
use sandstorm_control::server::Caller;
use sandstorm_types::SandboxId;

use super::forwarding::{self, Place};
use crate::app::App;
use crate::ids::Ids;
use crate::problem::ApiResult;
use crate::proxy::headers::Mount;

/// Forwards to a port; see `…/ports/{port}/{path}`.
#[utoipa::path(method(get, head, post, put, patch, delete, options), path = "/v1/sandboxes/{sandbox}/ports/{port}",
    tag = "ports", operation_id = "port",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("port" = u16, Path, description = "Port inside", minimum = 1)),
    responses((status = "default", description = "Whatever the program answers")))]
pub(crate) async fn root(
    state: State<App>,
    caller: Extension<Caller>,
    ids: Ids<SandboxId, Port>,
    request: Request,
) -> ApiResult<Response> {
    forward(state, caller, ids, request).await
}

/// Forwards to a port; see `…/ports/{port}/{path}`.
#[utoipa::path(method(get, head, post, put, patch, delete, options), path = "/v1/sandboxes/{sandbox}/ports/{port}/",
    tag = "ports", operation_id = "port_root",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("port" = u16, Path, description = "Port inside", minimum = 1)),
    responses((status = "default", description = "Whatever the program answers")))]
pub(crate) async fn slash(
    state: State<App>,
    caller: Extension<Caller>,
    ids: Ids<SandboxId, Port>,
    request: Request,
) -> ApiResult<Response> {
    forward(state, caller, ids, request).await
}

/// Forwards a request, or a WebSocket, to what listens on a port inside the sandbox.
///
/// Keys and foreign cookies do not reach it; its answer gets an origin of its own in browsers.
#[utoipa::path(method(get, head, post, put, patch, delete, options),
    path = "/v1/sandboxes/{sandbox}/ports/{port}/{*path}", tag = "ports", operation_id = "port_path",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("port" = u16, Path, description = "Port inside", minimum = 1),
        ("path" = String, Path, description = "Path that the program sees")),
    responses((status = "default", description = "Whatever the program answers")))]
pub(crate) async fn below(
    state: State<App>,
    caller: Extension<Caller>,
    ids: Ids<SandboxId, Port>,
    request: Request,
) -> ApiResult<Response> {
    forward(state, caller, ids, request).await
}

async fn forward(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Ids(sandbox, Port(port)): Ids<SandboxId, Port>,
    request: Request,
) -> ApiResult<Response> {
    let place = Place::Path(Mount { sandbox, port });
    forwarding::forward(&app, caller, sandbox, port, place, request).await
}

/// A port in the one way to write it.
#[derive(Debug)]
pub(crate) struct Port(pub(super) u16);

impl FromStr for Port {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        text.parse().ok().filter(|_| plain).map(Self).ok_or(())
    }
}
