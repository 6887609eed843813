//! The outermost layer: what every request and every answer has, whatever happens in between.
//!
//! Request id and trace go in and out; a panic becomes an answer; problems get their bodies; one line is logged and one
//! set of numbers counted per request, by the route's template and never by its ids.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use sandstorm_control::server::Caller;
use sandstorm_types::{ErrorKind, ExecId};
use tracing::Instrument;

use crate::app::App;
use crate::body::{self, Pace};
use crate::front::{Claimed, EndlessBody};
use crate::origin;
use crate::problem::ApiError;
use crate::revocation::until_revoked;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const MAX_REQUEST_ID: usize = 128;

/// What marks one request in logs, audit and answers.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    pub(crate) request_id: String,
    /// Where it stands in its trace, for whoever reads the answer and for programs that it starts.
    pub(crate) traceparent: Option<String>,
}

/// Marks an answer as coming from inside a sandbox: it keeps its own headers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Foreign;

pub(crate) async fn edge(State(app): State<App>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let request_id = request_id(request.headers());
    let method = request.method().clone();
    let route = route_of(&request);
    let origin = origin::allowed(&app.settings, request.headers()).map(str::to_owned);
    let upgrade = request.headers().contains_key(header::UPGRADE);
    let span = tracing::info_span!("request", %request_id, %method, %route);
    let traceparent = join_trace(&span, request.headers());
    let mark = Mark { request_id, traceparent };
    let response = match preflight(origin.as_deref(), &request) {
        Some(answer) => answer,
        None => {
            let pace = pace(&app, &request, &route);
            let mut request = request.map(|content| body::paced(content, pace));
            request.extensions_mut().insert(mark.clone());
            let work = AssertUnwindSafe(next.run(request)).catch_unwind().instrument(span.clone());
            let done = tokio::select! {
                biased;
                done = work => done,
                () = app.settings.giving_up.cancelled() => Ok(ApiError::stopped().into_response()),
            };
            done.unwrap_or_else(|_| {
                ApiError::new(
                    ErrorKind::Internal,
                    "the server failed; its log tells more under this request id",
                )
                .into_response()
            })
        }
    };
    let mut response = match response.extensions().get::<Caller>().cloned() {
        Some(caller) => until_revoked(&app.control, caller, response),
        None => response,
    };
    finish(&mut response, &mark);
    share(&mut response, origin.as_deref());
    if upgrade && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        // Whatever follows on this connection was meant for another protocol.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let status = response.status().as_u16();
    let seconds = began.elapsed().as_secs_f64();
    let labels =
        [("method", method_label(&method)), ("route", route.clone()), ("status", status.to_string())];
    metrics::counter!("sandstorm_http_requests_total", &labels).increment(1);
    metrics::histogram!("sandstorm_http_request_seconds", &labels[..2]).record(seconds);
    tracing::info!(parent: &span, status, ms = seconds * 1000.0, "answered");
    response
}

/// How fast the body has to come. What goes to a port, or is input for a program, has no end of its own.
fn pace(app: &App, request: &Request, route: &str) -> Pace {
    let input = route.ends_with("/stdin") && body::is_stream(request.body());
    let endless = input || request.extensions().get::<EndlessBody>().is_some() || route.contains("/ports/");
    let (pause, patience) = (app.settings.body_pause, app.settings.body_time);
    Pace { pause, patience: (!endless).then_some(patience) }
}

/// Makes the request's span part of its caller's trace. Gives our own place in it.
fn join_trace(span: &tracing::Span, headers: &HeaderMap) -> Option<String> {
    let caller = sandstorm_telemetry::extract(headers);
    if let Some(caller) = &caller {
        caller.adopt(span);
    }
    // Without a collector nothing of ours is recorded, and the caller's own place is the best that can be told.
    sandstorm_telemetry::traceparent_of(span).or_else(|| caller.as_ref().map(ToString::to_string))
}

/// The template, such as `/v1/runs/{run}`: ids in logs and metrics would tell tenants apart.
fn route_of(request: &Request) -> String {
    request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned()
}

/// Any token is a method, so only those we know become labels.
fn method_label(method: &Method) -> String {
    match method.as_str() {
        known @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS") => known.to_owned(),
        _ => "other".to_owned(),
    }
}

/// The caller's id when it is a short plain word, else one of ours.
fn request_id(headers: &HeaderMap) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    match given.filter(|id| (1..=MAX_REQUEST_ID).contains(&id.len()) && id.bytes().all(plain)) {
        Some(id) => id.to_owned(),
        None => format!("req_{}", ExecId::random().bare()),
    }
}

/// Writes the bodies of problems and the headers that every answer has.
fn finish(response: &mut Response, mark: &Mark) {
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        *response.body_mut() = Body::from(error.body(&mark.request_id));
    }
    let foreign = response.extensions().get::<Foreign>().is_some();
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&mark.request_id) {
        headers.insert(REQUEST_ID, id);
    }
    if let Some(trace) = mark.traceparent.as_deref().and_then(|text| HeaderValue::from_str(text).ok()) {
        headers.insert("traceparent", trace);
    }
    if foreign {
        return;
    }
    let fixed = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'; sandbox"),
    ];
    for (name, value) in fixed {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

/// Answers the browser's question whether a page of an allowed origin may ask.
fn preflight(origin: Option<&str>, request: &Request) -> Option<Response> {
    let asks = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let claimed = request.extensions().get::<Claimed>().is_some();
    origin.filter(|_| asks && !claimed)?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, PUT, DELETE"),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "authorization, x-api-key, content-type, idempotency-key, last-event-id, range, x-request-id, traceparent",
        ),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Some(response)
}

/// Lets a page of an allowed origin read the answer.
fn share(response: &mut Response, origin: Option<&str>) {
    let Some(origin) = origin.and_then(|origin| HeaderValue::from_str(origin).ok()) else { return };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    let shown = HeaderValue::from_static(
        "x-request-id, retry-after, location, etag, content-range, traceparent, stdin-offset",
    );
    // A foreign API may show more.
    headers.append(header::ACCESS_CONTROL_EXPOSE_HEADERS, shown);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_request_ids_are_replaced() {
        let of = |id: &str| {
            request_id(&HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_bytes(id.as_bytes()).unwrap())]))
        };
        assert_eq!(of("abc-1.2_Z"), "abc-1.2_Z");
        for bad in ["", "a b", "a\"b", "ä", &"x".repeat(129)] {
            assert!(of(bad).starts_with("req_"), "{bad}");
        }
        assert!(request_id(&HeaderMap::new()).starts_with("req_"));
    }

    #[test]
    fn what_a_foreign_api_claims_is_asked_there_and_shows_what_it_shows() {
        let asks = |claimed: bool| {
            let mut request = Request::new(Body::empty());
            *request.method_mut() = Method::OPTIONS;
            let asked = HeaderValue::from_static("POST");
            request.headers_mut().insert(header::ACCESS_CONTROL_REQUEST_METHOD, asked);
            if claimed {
                request.extensions_mut().insert(Claimed);
            }
            preflight(Some("https://app.test"), &request).is_some()
        };
        assert!(asks(false) && !asks(true));
        let mut response = Response::new(Body::empty());
        let theirs = HeaderValue::from_static("x-next-token");
        response.headers_mut().insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, theirs.clone());
        share(&mut response, Some("https://app.test"));
        let shown = response.headers().get_all(header::ACCESS_CONTROL_EXPOSE_HEADERS);
        assert!(shown.iter().count() == 2 && shown.iter().any(|shown| shown == theirs));
    }
}
