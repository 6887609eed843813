//! Tools over plain HTTP: `POST /mcp/tools/{tool}` with the arguments as its body, for clients that speak no MCP.
//!
//! SandboxRunner's published client calls it so. Every tool that is switched on can be called. There is no session: a
//! call has no sandbox of its own, no progress and no task, and ends when its client goes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use axum::{Extension, Json};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use sandstorm_control::server::Caller;
use sandstorm_provider::Error;
use sandstorm_types::TenantId;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::bodies::{self, Counting};
use crate::call::Call;
use crate::refusal::Refusal;
use crate::server::{Server, base_url};

/// The route, with the seats of whoever calls it.
pub(crate) fn route(server: &Server) -> MethodRouter<Server> {
    let settings = &server.0.settings;
    let seats = Arc::new(Seats { most: settings.calls_at_once, taken: Mutex::default() });
    let with_seats: MethodRouter<Server> = post(call).layer(Extension(seats));
    let counting = Counting { control: server.0.control.clone(), written: no_room };
    with_seats
        .layer(DefaultBodyLimit::max(settings.largest_message))
        .layer(from_fn_with_state(counting, bodies::count))
}

/// What is answered, whatever came of it.
#[derive(Debug, Serialize)]
struct Reply {
    text: String,
    is_error: bool,
    metadata: Value,
}

impl From<CallToolResult> for Reply {
    fn from(result: CallToolResult) -> Self {
        let texts: Vec<&str> = result
            .content
            .iter()
            .filter_map(ContentBlock::as_text)
            .map(|block| block.text.as_str())
            .collect();
        Self {
            text: texts.join("\n"),
            is_error: result.is_error.unwrap_or(false),
            metadata: result.structured_content.unwrap_or_else(|| Value::Object(Map::new())),
        }
    }
}

/// A call that reached no tool.
fn refused(status: StatusCode, code: &str, text: impl Into<String>) -> Response {
    let metadata = serde_json::json!({ "error_code": code });
    (status, Json(Reply { text: text.into(), is_error: true, metadata })).into_response()
}

/// A call whose body has no room.
fn no_room(status: StatusCode, error: &Error) -> Response {
    refused(status, "TOO_MANY_BODIES", error.message())
}

/// Dropping the future, because its client is gone, ends what the tool does.
async fn call(
    State(server): State<Server>,
    Extension(caller): Extension<Caller>,
    Extension(seats): Extension<Arc<Seats>>,
    Path(tool): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let shared = &server.0;
    let Some(entry) = shared.tools.get(&tool) else {
        let name: String = tool.chars().take(64).collect();
        return refused(StatusCode::NOT_FOUND, "TOOL_NOT_FOUND", format!("there is no tool {name:?}"));
    };
    let arguments = match body {
        Ok(body) => match arguments(&body) {
            Ok(arguments) => arguments,
            Err(why) => return refused(StatusCode::BAD_REQUEST, "INVALID_JSON", why),
        },
        Err(rejection) => return refused(rejection.status(), "INVALID_BODY", rejection.body_text()),
    };
    let Some(_seat) = seats.take(caller.tenant()) else {
        let text = format!("{} calls are under way already; wait for some of them to end", seats.most);
        return refused(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_CALLS", text);
    };
    let base_url = base_url(&shared.settings, &headers);
    let call = Call { shared: Arc::clone(shared), caller, home: None, progress: None, base_url };
    let work = (entry.run)(call, arguments);
    tokio::select! {
        biased;
        result = work => Json(Reply::from(result.unwrap_or_else(Refusal::into_result))).into_response(),
        () = shared.settings.closing.cancelled() => {
            refused(StatusCode::SERVICE_UNAVAILABLE, "STOPPING", "the server is stopping")
        }
    }
}

/// No body means no arguments.
fn arguments(body: &[u8]) -> Result<JsonObject, String> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(JsonObject::new());
    }
    serde_json::from_slice(body)
        .map_err(|error| format!("the body has to be a JSON object with the arguments: {error}"))
}

/// Calls under way, by tenant.
#[derive(Debug)]
struct Seats {
    most: usize,
    taken: Mutex<HashMap<TenantId, usize>>,
}

impl Seats {
    fn take(self: &Arc<Self>, tenant: TenantId) -> Option<Seat> {
        let mut taken = self.taken();
        let count = taken.entry(tenant).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Seat { seats: Arc::clone(self), tenant })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<TenantId, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One call. Whoever drops it gives the place back.
#[derive(Debug)]
struct Seat {
    seats: Arc<Seats>,
    tenant: TenantId,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken();
        if let Some(count) = taken.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_an_object_or_nothing() {
        assert_eq!(arguments(b" \n").unwrap().len(), 0);
        assert_eq!(arguments(br#"{"a": 1}"#).unwrap()["a"], 1);
        for wrong in ["[1]", "1", "\"x\"", "{", "null"] {
            assert!(arguments(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn seats_are_counted_by_tenant_and_given_back() {
        let seats = Arc::new(Seats { most: 2, taken: Mutex::default() });
        let (one, other) = (TenantId::random(), TenantId::random());
        let (first, _second) = (seats.take(one), seats.take(one));
        assert!(seats.take(one).is_none() && seats.take(other).is_some());
        drop(first);
        assert!(seats.take(one).is_some());
        drop(_second);
        assert!(seats.taken().is_empty());
    }

    #[test]
    fn an_answer_is_text_and_metadata() {
        let mut result = CallToolResult::error(vec![ContentBlock::text("no"), ContentBlock::text("way")]);
        result.structured_content = Some(serde_json::json!({ "exit_code": 1 }));
        let reply = serde_json::to_value(Reply::from(result)).unwrap();
        assert_eq!(
            reply,
            serde_json::json!({ "text": "no\nway", "is_error": true, "metadata": { "exit_code": 1 } })
        );
    }
}
