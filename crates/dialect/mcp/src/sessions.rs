//! Whose each session is, and whether its client is still there. Its id is no credential: whoever presents another's is
//! told that there is none.

mod presence;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::RETRY_AFTER;
use http::{Method, StatusCode};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use sandstorm_control::server::{Caller, Control};
use sandstorm_types::TenantId;

pub(crate) use presence::{Presence, kept};

pub(crate) const SESSION: &str = "mcp-session-id";
/// Sessions that one tenant may have at once.
const MOST: usize = 256;

/// Tenant and key of each session.
#[derive(Debug, Clone)]
pub(crate) struct Owners {
    owners: Arc<Mutex<HashMap<String, Known>>>,
    sessions: Arc<LocalSessionManager>,
    control: Control,
}

#[derive(Debug)]
struct Known {
    owner: Owner,
    presence: Presence,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner {
    tenant: TenantId,
    key: String,
}

impl From<&Caller> for Owner {
    fn from(caller: &Caller) -> Self {
        Self { tenant: caller.tenant(), key: caller.key_id().to_owned() }
    }
}

impl Owners {
    pub(crate) fn new(sessions: Arc<LocalSessionManager>, control: Control) -> Self {
        Self { owners: Arc::default(), sessions, control }
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets sessions that have ended.
    async fn sweep(&self) {
        let living = self.sessions.sessions.read().await;
        self.owners().retain(|id, _| living.contains_key(id.as_str()));
    }

    async fn is_full(&self, owner: &Owner) -> bool {
        let count = |owners: &HashMap<String, Known>| {
            owners.values().filter(|one| one.owner.tenant == owner.tenant).count()
        };
        if count(&self.owners()) < MOST {
            return false;
        }
        self.sweep().await;
        count(&self.owners()) >= MOST
    }
}

/// Lets a request through that begins a session or has one of its own. Calls in a session find its [`Presence`].
pub(crate) async fn check_owner(State(owners): State<Owners>, mut request: Request, next: Next) -> Response {
    let Some(owner) = request.extensions().get::<Caller>().map(Owner::from) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let presented = request.headers().get(SESSION).and_then(|value| value.to_str().ok());
    let presence = match presented {
        Some(id) => {
            let known = owners.owners();
            match known.get(id).filter(|known| known.owner == owner) {
                Some(known) => Some(known.presence.clone()),
                None => return (StatusCode::NOT_FOUND, "Not Found: Session not found").into_response(),
            }
        }
        None if owners.is_full(&owner).await => {
            return (StatusCode::TOO_MANY_REQUESTS, "too many sessions: end some of them").into_response();
        }
        None => None,
    };
    let here = presence.map(|presence| {
        request.extensions_mut().insert(presence.clone());
        presence.enter()
    });
    // A stream that only listens counts among those of its tenant; an answer to a call counts among its client's calls.
    let seat = match (request.method() == Method::GET, request.extensions().get::<Caller>()) {
        (true, Some(caller)) => match owners.control.open_stream(caller) {
            Ok(seat) => Some(seat),
            Err(_) => return too_many_streams(),
        },
        _ => None,
    };
    let ends = request.method() == Method::DELETE;
    let mut response = next.run(request).await;
    // It is gone by now: clients take "accepted" for a failure.
    if ends && response.status() == StatusCode::ACCEPTED {
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    if let Some(made) = response.headers().get(SESSION).and_then(|value| value.to_str().ok()) {
        let known = Known { owner, presence: Presence::default() };
        owners.owners().entry(made.to_owned()).or_insert(known);
    }
    // The client is there for as long as it takes an answer.
    kept(response, (here, seat))
}

pub(crate) fn too_many_streams() -> Response {
    (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "1")], "too many streams: end some of them")
        .into_response()
}
