//! The routes: `/mcp` for streamable HTTP, `/mcp/ws` for WebSocket, and where clients read how keys are sent.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any_service, get};
use axum::{Json, Router};
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, StatusCode};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::json;

use crate::bodies::{self, Counting};
use crate::server::{Client, Server, base_url};
use crate::sessions::{Owners, check_owner};
use crate::{rest_tools, websocket};

/// Where clients read how keys are sent.
pub const METADATA: &str = "/.well-known/oauth-protected-resource/mcp";

/// What needs a key: each request finds its caller as `Extension<Caller>`, and its `Host` was looked at before.
pub fn router(server: &Server) -> Router {
    let sessions = Arc::clone(&server.0.sessions);
    let owners = Owners::new(Arc::clone(&sessions), server.0.control.clone());
    let settings = &server.0.settings;
    let config = StreamableHttpServerConfig::default()
        // Looked at already, here and before.
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_max_request_body_bytes(settings.largest_message)
        .with_cancellation_token(settings.closing.child_token());
    let each = server.clone();
    let service: StreamableHttpService<Client, LocalSessionManager> =
        StreamableHttpService::new(move || Ok(each.client()), sessions, config);
    let counting = Counting { control: server.0.control.clone(), written: bodies::plain };
    Router::new()
        .route("/mcp", any_service(service))
        .route_layer(from_fn_with_state(counting, bodies::count))
        .route_layer(from_fn_with_state(owners, check_owner))
        .route("/mcp/ws", get(websocket::upgrade))
        .route("/mcp/tools/{tool}", rest_tools::route(server))
        .route_layer(from_fn_with_state(server.clone(), check_page))
        .with_state(server.clone())
}

/// What needs none.
pub fn open_router(server: &Server) -> Router {
    Router::new()
        .route("/.well-known/oauth-protected-resource", get(protected_resource))
        .route(METADATA, get(protected_resource))
        .with_state(server.clone())
}

/// Web pages call this server only if it is their own or the operator allowed them: a browser would send the key for them.
async fn check_page(State(server): State<Server>, request: Request, next: Next) -> Response {
    match is_known_page(&server.0.settings.allowed_origins, request.headers()) {
        true => next.run(request).await,
        false => (StatusCode::FORBIDDEN, "Forbidden: pages of that origin may not call this server")
            .into_response(),
    }
}

fn is_known_page(allowed: &[String], headers: &HeaderMap) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    let Some(origin) = origins.next() else { return true };
    let (Ok(origin), None) = (origin.to_str(), origins.next()) else { return false };
    let host = headers.get(HOST).and_then(|value| value.to_str().ok());
    let own = origin.split_once("://").is_some_and(|(_, authority)| Some(authority) == host);
    own || allowed.iter().any(|allowed| allowed == origin)
}

/// How a client gets in, as RFC 9728 has it: keys are bearer tokens in the header, nowhere else.
async fn protected_resource(State(server): State<Server>, headers: HeaderMap) -> Response {
    let Some(base) = base_url(&server.0.settings, &headers) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let metadata = json!({
        "resource": format!("{base}/mcp"),
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["run", "sandbox", "files"],
        "resource_name": "Sandstorm",
    });
    Json(metadata).into_response()
}
