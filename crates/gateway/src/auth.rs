//! From a request to a [`Caller`]: the only place where one is made.

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, StatusCode, header};
use sandstorm_control::server::{Caller, Scope};

use crate::Refusal;
use crate::access::{Access, Found, Route, find};
use crate::app::App;
use crate::credentials;
use crate::edge::Mark;
use crate::origin;
use crate::problem::{ApiError, ApiResult};

/// A router's table, or a foreign API whose routes all need a key and check scopes by what they do.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rules {
    Table(&'static [Route]),
    AnyKey {
        /// Where whoever is refused reads how to get in.
        metadata: Option<&'static str>,
        /// How a refusal looks there.
        refusal: Option<Refusal>,
    },
}

pub(crate) async fn authenticate(
    State((app, rules)): State<(App, Rules)>,
    mut request: Request,
    next: Next,
) -> Response {
    match admit(&app, rules, &mut request).await {
        Ok(()) => {
            let caller = request.extensions().get::<Caller>().cloned();
            let mut response = next.run(request).await;
            // The edge cuts what is still being sent when the caller may not hear it any more.
            if let Some(caller) = caller {
                response.extensions_mut().insert(caller);
            }
            response
        }
        Err(error) => {
            if let Rules::AnyKey { refusal: Some(refusal), .. } = rules {
                return error.in_the_words_of(refusal);
            }
            let mut response = error.into_response();
            if let (Rules::AnyKey { metadata: Some(path), .. }, StatusCode::UNAUTHORIZED) =
                (rules, response.status())
                && let Some(challenge) = challenge(&app, &request, path)
            {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            }
            response
        }
    }
}

/// Tells where to read how to get in. `Host` says how the client reaches this server, and nothing else does.
fn challenge(app: &App, request: &Request, path: &str) -> Option<HeaderValue> {
    let host = request.headers().get(header::HOST)?.to_str().ok()?;
    let scheme = if app.settings.secure { "https" } else { "http" };
    let text = format!(
        "Bearer realm=\"sandstorm\", resource_metadata=\"{scheme}://{host}{path}\", scope=\"run sandbox files\""
    );
    HeaderValue::from_str(&text).ok()
}

/// Puts the caller into the request, or refuses. The request is not held while waiting: its body is not for sharing.
async fn admit(app: &App, rules: Rules, request: &mut Request) -> ApiResult<()> {
    let access = match access(app, rules, request) {
        // Probes call by address, whatever the server's names are.
        Found::Access(Access::Open) => return Ok(()),
        Found::Access(access) => access,
        // The router answers with the methods that there are, or with 404.
        Found::OtherMethod => return Ok(()),
        Found::Unknown => return Err(ApiError::not_found()),
    };
    origin::check(&app.settings, request)?;
    let mark = request.extensions().get::<Mark>().cloned();
    let known = match presented(app, request)? {
        Some(key) => app.control.authenticate(&key).await?,
        None => app.control.developer(),
    };
    let caller = match mark {
        Some(mark) => known.with_request(&mark.request_id, mark.traceparent.as_deref()),
        None => known,
    };
    app.control.count_request(&caller)?;
    if let Access::Scope(scope) = access {
        caller.require(scope)?;
    }
    request.extensions_mut().insert(caller);
    Ok(())
}

fn access(app: &App, rules: Rules, request: &Request) -> Found {
    let Some(path) = request.extensions().get::<MatchedPath>() else { return Found::OtherMethod };
    match rules {
        Rules::AnyKey { .. } => Found::Access(Access::Key),
        Rules::Table(table) => match find(table, request.method(), path.as_str()) {
            Found::Access(Access::Metrics) if !app.settings.metrics_auth => Found::Access(Access::Open),
            found => found,
        },
    }
}

/// The key of the request; `None` when the server has no keys. Every failure is the same answer.
fn presented(app: &App, request: &Request) -> ApiResult<Option<String>> {
    if app.settings.dev_no_auth {
        return Ok(None);
    }
    // What is behind a port may name its own parameters as it likes.
    let proxied = request.uri().path().contains("/ports/");
    if credentials::in_query(request.uri()) && !proxied {
        return Err(ApiError::unauthenticated());
    }
    let key = credentials::presented(request.headers()).ok_or_else(ApiError::unauthenticated)?;
    Ok(Some(key.to_owned()))
}

/// The scopes of a caller, as words.
pub(crate) fn scopes(caller: &Caller) -> Vec<Scope> {
    let all = [Scope::Run, Scope::Sandbox, Scope::Files, Scope::Admin];
    all.into_iter().filter(|scope| caller.require(*scope).is_ok()).collect()
}

/// Answers for paths that no route has.
pub(crate) async fn no_route() -> ApiError {
    ApiError::not_found().detail("there is no such route")
}

/// Answers for methods that a path does not have.
pub(crate) async fn no_method(method: Method) -> ApiError {
    ApiError::invalid(format!("this path has no {method}")).status(StatusCode::METHOD_NOT_ALLOWED)
}
