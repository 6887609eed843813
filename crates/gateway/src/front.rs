//! Requests for something other than this server's own paths: a foreign API may claim them by host or headers.
//!
//! Who claims is asked before a path is looked at, because what is behind it has paths of its own.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use http::request::Parts;
use tower::ServiceExt;

type Claims = dyn Fn(&Parts) -> bool + Send + Sync;

/// Routes for the requests that `claims` holds for, and for no others. They need no key: who comes in is their matter.
#[derive(Clone)]
pub struct Front {
    claims: Arc<Claims>,
    endless: Arc<Claims>,
    routes: Router,
}

/// Marks a request whose body may last for as long as it likes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndlessBody;

impl Front {
    pub fn new(claims: impl Fn(&Parts) -> bool + Send + Sync + 'static, routes: Router) -> Self {
        Self { claims: Arc::new(claims), endless: Arc::new(|_| false), routes }
    }

    /// Which bodies have no end of their own, such as input for a program. Others have to come at a pace.
    #[must_use]
    pub fn with_endless_bodies(self, endless: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        Self { endless: Arc::new(endless), ..self }
    }

    pub(crate) fn map(self, change: impl FnOnce(Router) -> Router) -> Self {
        Self { routes: change(self.routes), ..self }
    }
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").finish_non_exhaustive()
    }
}

/// What is claimed goes to who claims it, the rest to `own`.
pub(crate) fn before(fronts: Vec<Front>, own: Router) -> Router {
    if fronts.is_empty() {
        return own;
    }
    let state: Arc<(Vec<Front>, Router)> = Arc::new((fronts, own));
    Router::new().fallback(dispatch).with_state(state)
}

async fn dispatch(State(all): State<Arc<(Vec<Front>, Router)>>, request: Request) -> Response {
    let (fronts, own) = &*all;
    let (mut parts, body) = request.into_parts();
    let claimed = fronts.iter().find(|front| (front.claims)(&parts));
    if claimed.is_some_and(|front| (front.endless)(&parts)) {
        parts.extensions.insert(EndlessBody);
    }
    let router = claimed.map_or(own, |front| &front.routes).clone();
    match router.oneshot(Request::from_parts(parts, body)).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
