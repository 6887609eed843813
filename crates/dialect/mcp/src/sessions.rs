//! Whose each session is. Its id is no credential: whoever presents another's is told that there is none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use sandstorm_control::server::Caller;
use sandstorm_types::TenantId;

pub(crate) const SESSION: &str = "mcp-session-id";
/// Sessions that one tenant may have at once.
const MOST: usize = 256;

/// Tenant and key of each session.
#[derive(Debug, Clone)]
pub(crate) struct Owners {
    owners: Arc<Mutex<HashMap<String, Owner>>>,
    sessions: Arc<LocalSessionManager>,
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
    pub(crate) fn new(sessions: Arc<LocalSessionManager>) -> Self {
        Self { owners: Arc::default(), sessions }
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<String, Owner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets sessions that have ended.
    async fn sweep(&self) {
        let living = self.sessions.sessions.read().await;
        self.owners().retain(|id, _| living.contains_key(id.as_str()));
    }

    async fn is_full(&self, owner: &Owner) -> bool {
        let count = |owners: &HashMap<String, Owner>| {
            owners.values().filter(|one| one.tenant == owner.tenant).count()
        };
        if count(&self.owners()) < MOST {
            return false;
        }
        self.sweep().await;
        count(&self.owners()) >= MOST
    }
}

/// Lets a request through that begins a session or has one of its own.
pub(crate) async fn check_owner(State(owners): State<Owners>, request: Request, next: Next) -> Response {
    let Some(owner) = request.extensions().get::<Caller>().map(Owner::from) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let presented = request.headers().get(SESSION).and_then(|value| value.to_str().ok());
    match presented {
        Some(id) if owners.owners().get(id) != Some(&owner) => {
            return (StatusCode::NOT_FOUND, "Not Found: Session not found").into_response();
        }
        Some(_) => {}
        None if owners.is_full(&owner).await => {
            return (StatusCode::TOO_MANY_REQUESTS, "too many sessions: end some of them").into_response();
        }
        None => {}
    }
    let ends = request.method() == Method::DELETE;
    let mut response = next.run(request).await;
    // It is gone by now: clients take "accepted" for a failure.
    if ends && response.status() == StatusCode::ACCEPTED {
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    if let Some(made) = response.headers().get(SESSION).and_then(|value| value.to_str().ok()) {
        owners.owners().entry(made.to_owned()).or_insert(owner);
    }
    response
}
