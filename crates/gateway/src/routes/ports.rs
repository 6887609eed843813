//! HTTP and WebSocket to a port inside a sandbox.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::response::Response;
use http::{Method, StatusCode, Uri, Version, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use sandstorm_control::server::Caller;
use sandstorm_types::{ErrorKind, SandboxId};

use crate::app::App;
use crate::edge::Foreign;
use crate::ids::Ids;
use crate::problem::{ApiError, ApiResult};
use crate::proxy::headers::{self, Mount};
use crate::proxy::tunnel;
use crate::sse::revoked;

/// How long a program may take to begin its answer.
const ANSWER: Duration = Duration::from_secs(300);
const MAX_HEAD: usize = 64 << 10;

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
    mut request: Request,
) -> ApiResult<Response> {
    if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
        return Err(ApiError::invalid("this method is not forwarded").status(StatusCode::METHOD_NOT_ALLOWED));
    }
    let mount = Mount { sandbox, port };
    let upgrade = request.method() == Method::GET && wants_upgrade(&request, "websocket");
    let client = upgrade.then(|| hyper::upgrade::on(&mut request));
    // Held by the connection, and by the tunnel that it may become.
    let seat = Arc::new(app.control.open_stream(&caller)?);
    let tunnelled = Arc::clone(&seat);
    let connection =
        app.control.connect(&caller, sandbox, port).await.map_err(|error| match error.kind() {
            ErrorKind::FileSystem | ErrorKind::InvalidRequest => ApiError::new(
                ErrorKind::Provider,
                format!("nothing can be reached on port {port} of this sandbox"),
            ),
            _ => error.into(),
        })?;
    *request.uri_mut() = inner_uri(request.uri(), &mount.prefix())?;
    *request.version_mut() = Version::HTTP_11;
    headers::request(request.headers_mut(), mount, upgrade);
    let (mut sender, driver) = http1::Builder::new()
        .max_headers(headers::MAX_HEADERS)
        .max_buf_size(MAX_HEAD)
        .handshake(TokioIo::new(connection))
        .await
        .map_err(bad_answer)?;
    // The connection serves this one request, and ends with its answer or with the key.
    let gone = revoked(app.control.clone(), caller.clone());
    app.tasks.start("port connection", async move {
        tokio::select! {
            _ = driver.with_upgrades() => {}
            () = gone => {}
        }
        drop(seat);
    });
    let answer = tokio::time::timeout(ANSWER, sender.send_request(request)).await;
    let too_late = |_| ApiError::new(ErrorKind::Timeout, "the program did not answer in time");
    let mut answer = answer.map_err(too_late)?.map_err(bad_answer)?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(client) = client else { return Err(bad_answer("an upgrade that nobody asked for")) };
        let program = hyper::upgrade::on(&mut answer);
        let stop = revoked(app.control.clone(), caller);
        let idle = app.settings.idle;
        app.tasks.start("port tunnel", async move {
            let program = async { program.await.ok().map(TokioIo::new) };
            tunnel::carry(client, program, idle, stop).await;
            drop(tunnelled);
        });
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.headers_mut() = headers::upgraded(answer.headers());
        response.extensions_mut().insert(Foreign);
        return Ok(response);
    }
    headers::response(answer.headers_mut(), mount);
    // The sender must live until the body is read: hyper ends the connection when it is dropped.
    let mut response = answer.map(|body| Body::new(Kept { body, _sender: sender }));
    response.extensions_mut().insert(Foreign);
    Ok(response)
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

fn bad_answer(error: impl std::fmt::Display) -> ApiError {
    tracing::debug!(%error, "a program behind a port gave no usable answer");
    ApiError::new(ErrorKind::Provider, "the program on this port gave no usable HTTP answer")
}

/// Whether the connection is to become something else.
pub(super) fn wants_upgrade(request: &Request, protocol: &str) -> bool {
    let named = |name, word: &str| {
        let values = request.headers().get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(word))
    };
    named(header::UPGRADE, protocol) && named(header::CONNECTION, "upgrade")
}

/// The path and query behind the prefix, as they were written.
fn inner_uri(uri: &Uri, prefix: &str) -> ApiResult<Uri> {
    let path = uri.path().strip_prefix(prefix).ok_or_else(ApiError::not_found)?;
    let path = if path.is_empty() { "/" } else { path };
    let whole = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    whole.parse().map_err(|_| ApiError::invalid("the path cannot be forwarded"))
}

/// A body with what must live as long as it does.
struct Kept<S> {
    body: hyper::body::Incoming,
    _sender: S,
}

impl<S: Unpin> http_body::Body for Kept<S> {
    type Data = bytes::Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, hyper::Error>>> {
        std::pin::Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_sees_its_own_path() {
        let inner = |uri: &str| inner_uri(&uri.parse().unwrap(), "/p/80").map(|uri| uri.to_string()).ok();
        assert_eq!(inner("/p/80").as_deref(), Some("/"));
        assert_eq!(inner("/p/80/").as_deref(), Some("/"));
        assert_eq!(inner("/p/80/a%2Fb/../c?x=%20").as_deref(), Some("/a%2Fb/../c?x=%20"));
        assert_eq!(inner("http://h/p/80//x").as_deref(), Some("//x"));
        assert_eq!(inner("/q/80/"), None);
    }
}
