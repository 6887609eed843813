//! Bytes to and from a port inside a sandbox, whatever protocol they speak.

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use sandstorm_control::server::Caller;
use sandstorm_types::SandboxId;

use super::ports::Port;
use crate::app::App;
use crate::ids::Ids;
use crate::problem::{ApiError, ApiResult};
use crate::proxy::tunnel;

/// The protocol that the connection becomes: none of HTTP's.
const PROTOCOL: &str = "tcp";

/// Connects to a port inside the sandbox; the connection then carries its bytes. No browser asks for that.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/tunnel/{port}", tag = "ports", operation_id = "open_tunnel",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("port" = u16, Path, description = "Port inside", minimum = 1)),
    responses(
        (status = 101, description = "With `Upgrade: tcp`: the bytes of a connection to the port"),
        (status = 426, description = "The request asks for no upgrade")))]
pub(crate) async fn open(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Ids(sandbox, Port(port)): Ids<SandboxId, Port>,
    mut request: Request,
) -> ApiResult<Response> {
    app.control.sandbox(&caller, sandbox).await?;
    if !super::forwarding::wants_upgrade(&request, PROTOCOL) {
        let refusal = ApiError::invalid("a tunnel needs an upgrade to tcp");
        return Err(refusal.status(StatusCode::UPGRADE_REQUIRED));
    }
    let client = hyper::upgrade::on(&mut request);
    let seat = app.control.open_stream(&caller)?;
    let connection = app.control.connect(&caller, sandbox, port).await?;
    let (stop, idle) = (app.control.clone().revoked(caller), app.settings.idle);
    app.tasks.start("tunnel", async move {
        tunnel::carry(client, async { Some(connection) }, idle, stop).await;
        drop(seat);
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
    Ok(response)
}
