//! Requests for something other than this server's own paths: a foreign API may claim them by host or headers.
//!
//! Who claims is asked before a path is looked at, because what is behind it has paths of its own. What nobody claims may
//! have `/original` before its path: it is a call of the first Sandstorm's SDK, to be answered in its words.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use http::Uri;
use http::request::Parts;
use http::uri::PathAndQuery;
use tower::ServiceExt;

type Claims = dyn Fn(&Parts) -> bool + Send + Sync;

/// Routes for the requests that `claims` holds for, and for no others. They need no key: who comes in is their matter.
#[derive(Clone)]
pub struct Front {
    claims: Arc<Claims>,
    endless: Arc<Claims>,
    routes: Router,
}

/// Marks a request that a foreign API claims: what a browser asks there is that API's to answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claimed;

/// Marks a request whose body may last for as long as it likes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndlessBody;

/// Marks a request of the first Sandstorm's SDK, where a native route of the same path answers otherwise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AsOriginal;

/// What an SDK of the first Sandstorm has before its paths to be told apart.
const ORIGINAL: &str = "/original";

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
    if claimed.is_some() {
        parts.extensions.insert(Claimed);
    }
    if claimed.is_none()
        && let Some(uri) = of_original(&parts.uri)
    {
        parts.uri = uri;
        parts.extensions.insert(AsOriginal);
    }
    let router = claimed.map_or(own, |front| &front.routes).clone();
    match router.oneshot(Request::from_parts(parts, body)).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// The address without the prefix, for the calls that the first Sandstorm's SDK makes and for no others.
fn of_original(uri: &Uri) -> Option<Uri> {
    let whole = uri.path_and_query()?.as_str().strip_prefix(ORIGINAL)?;
    let path = whole.split('?').next().unwrap_or_default();
    let known = match path.strip_prefix("/v1/")?.split('/').collect::<Vec<_>>().as_slice() {
        ["sandboxes", "run"] | ["snapshots" | "usage"] => true,
        ["sandboxes", id, "snapshot"] | ["snapshots", id, "restore"] => !id.is_empty(),
        _ => false,
    };
    let path: PathAndQuery = known.then(|| whole.parse().ok())??;
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_sdks_calls_have_the_prefix() {
        for (given, meant) in [
            ("/original/v1/usage?start=x", Some("/v1/usage?start=x")),
            ("/original/v1/snapshots", Some("/v1/snapshots")),
            ("/original/v1/sandboxes/run", Some("/v1/sandboxes/run")),
            ("/original/v1/sandboxes/sbx_a/snapshot", Some("/v1/sandboxes/sbx_a/snapshot")),
            ("http://h/original/v1/snapshots/snap_a/restore", Some("http://h/v1/snapshots/snap_a/restore")),
            ("/v1/usage", None),
            ("/original", None),
            ("/original/v1/runs", None),
            ("/original/original/v1/usage", None),
            ("/original/v1/sandboxes/sbx_a/ports/80/original", None),
            ("/original/v1/sandboxes//snapshot", None),
        ] {
            let found = of_original(&given.parse().unwrap()).map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), meant, "{given}");
        }
    }
}
