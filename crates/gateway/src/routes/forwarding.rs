//! The way of a request to what listens on a port, whichever address it came by.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, StatusCode, Uri, Version, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use sandstorm_control::server::{Caller, Control};
use sandstorm_provider::Tasks;
use sandstorm_types::{ErrorKind, SandboxId};

use crate::app::{App, Shared};
use crate::edge::Foreign;
use crate::problem::{ApiError, ApiResult};
use crate::proxy::headers::{self, Mount};
use crate::proxy::tunnel;
use crate::settings::GatewaySettings;

/// How long a program may take to begin its answer.
const ANSWER: Duration = Duration::from_secs(300);
const MAX_HEAD: usize = 64 << 10;

/// Where clients see a port.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    /// Below a path of the API's own host, with which the program must not get mixed up.
    Path(Mount),
    /// Named by headers, on the API's own host.
    Named,
    /// On a host of its own.
    OwnHost,
}

impl Place {
    fn prefix(self) -> String {
        match self {
            Self::Path(mount) => mount.prefix(),
            Self::Named | Self::OwnHost => String::new(),
        }
    }
}

/// The host under which a client of a foreign API sees a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortHost {
    /// It belongs to this port alone.
    Own,
    /// It is the API's, and the request names the port by headers.
    Api,
}

/// Carries requests to ports for foreign APIs that name ports by hosts or headers.
#[derive(Debug, Clone)]
pub struct PortForwarder(App);

impl PortForwarder {
    pub fn new(control: Control, settings: GatewaySettings) -> Self {
        let tasks = Tasks::until(&settings.closing);
        let (metrics, languages) = (Box::new(String::new), Box::new(Vec::new));
        Self(App::new(Shared { control, settings, metrics, languages, tasks }))
    }

    /// The program's answer, or `None` when nothing can be reached there. With `seen` that is the host that the program sees.
    pub async fn forward(
        &self,
        caller: Caller,
        sandbox: SandboxId,
        port: u16,
        host: PortHost,
        seen: Option<HeaderValue>,
        request: Request,
    ) -> Option<Response> {
        let place = match host {
            PortHost::Own => Place::OwnHost,
            PortHost::Api => Place::Named,
        };
        match forward_as(&self.0, caller, sandbox, (port, seen), place, request).await {
            Ok(response) => Some(response),
            Err(error) if error.is_unreachable() => None,
            Err(error) => Some(error.into_response()),
        }
    }
}

/// Carries one request, or a WebSocket, to a port and its answer back.
pub(crate) async fn forward(
    app: &App,
    caller: Caller,
    sandbox: SandboxId,
    port: u16,
    place: Place,
    request: Request,
) -> ApiResult<Response> {
    forward_as(app, caller, sandbox, (port, None), place, request).await
}

async fn forward_as(
    app: &App,
    caller: Caller,
    sandbox: SandboxId,
    (port, seen): (u16, Option<HeaderValue>),
    place: Place,
    mut request: Request,
) -> ApiResult<Response> {
    if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
        return Err(ApiError::invalid("this method is not forwarded").status(StatusCode::METHOD_NOT_ALLOWED));
    }
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
    *request.uri_mut() = inner_uri(request.uri(), &place.prefix())?;
    *request.version_mut() = Version::HTTP_11;
    match place {
        Place::Path(mount) => headers::request(request.headers_mut(), mount, upgrade),
        Place::Named => headers::named_request(request.headers_mut(), port, upgrade),
        Place::OwnHost => headers::own_host_request(request.headers_mut(), upgrade),
    }
    if let Some(seen) = seen {
        request.headers_mut().insert(header::HOST, seen);
    }
    let (mut sender, driver) = http1::Builder::new()
        .max_headers(headers::MAX_HEADERS)
        .max_buf_size(MAX_HEAD)
        .handshake(TokioIo::new(connection))
        .await
        .map_err(bad_answer)?;
    // The connection serves this one request, and ends with its answer or with the key.
    let gone = app.control.clone().revoked(caller.clone());
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
        let stop = app.control.clone().revoked(caller);
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
    match place {
        Place::Path(mount) => headers::response(answer.headers_mut(), mount),
        Place::Named => headers::named_response(answer.headers_mut()),
        Place::OwnHost => headers::own_host_response(answer.headers_mut()),
    }
    // The sender must live until the body is read: hyper ends the connection when it is dropped.
    let mut response = answer.map(|body| Body::new(Kept { body, _sender: sender }));
    response.extensions_mut().insert(Foreign);
    Ok(response)
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
