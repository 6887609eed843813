//! Requests that may be sent twice: `Idempotency-Key` on what creates.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use sandstorm_control::Outcome;
use sandstorm_control::server::{Answer, Answered, Caller, Keyed, Once};
use sandstorm_provider::Error;
use sandstorm_types::ErrorKind;
use serde::Serialize;

use crate::app::App;
use crate::json;
use crate::problem::{ApiError, ApiResult};
use crate::whole::Long;
use crate::wire::ResultBody;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// A route that creates.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Creation<'a> {
    /// Names the route in the store: the path with its ids, so that one key can be used for several sandboxes.
    pub(crate) route: &'a str,
    pub(crate) status: StatusCode,
    /// The created object's address is this and its id; empty when it has none.
    pub(crate) location: &'a str,
    /// How clients hear why it was not created.
    pub(crate) refused: fn(Error) -> ApiError,
}

/// Does `work`, once per key. `shown` makes the answer's body of what it made.
pub(crate) async fn create<W: Once, T: Serialize>(
    app: &App,
    caller: &Caller,
    headers: &HeaderMap,
    body: &Bytes,
    creation: Creation<'_>,
    work: W,
    shown: impl FnOnce(W::Made) -> T + Send + 'static,
) -> ApiResult<Response> {
    let status = creation.status.as_u16();
    let write = move |made| {
        let body = json::written(&shown(made)).into();
        Answer { status, content_type: "application/json".to_owned(), body }
    };
    let refused = creation.refused;
    let Some(key) = key(headers)? else {
        let made = Box::pin(work.make(&app.control, caller, None)).await.map_err(refused)?;
        return respond(write(made), false, creation.location);
    };
    let keyed = Keyed { route: creation.route, key, body_hash: hash(body) };
    let answered = Box::pin(app.control.once(caller, keyed, work, write)).await;
    let Answered { answer, replayed } = answered.map_err(refused)?;
    match answer.map_err(refused) {
        Ok(answer) => respond(answer, replayed, creation.location),
        Err(problem) if replayed => Err(problem.header(REPLAYED, HeaderValue::from_static("true"))),
        Err(problem) => Err(problem),
    }
}

/// Does `work`, once per key. What it comes to is answered with all of its output; a repeated request hears as much of that
/// as the record has, which is told to be truncated if it is less.
pub(crate) async fn create_result<W: Once<Made = Outcome>>(
    app: &App,
    caller: &Caller,
    headers: &HeaderMap,
    body: &Bytes,
    creation: Creation<'_>,
    work: W,
) -> ApiResult<Response> {
    let long: Arc<Mutex<Option<Long>>> = Arc::default();
    let place = Arc::clone(&long);
    let short = move |outcome| {
        let (result, whole) = Long::of(outcome, |bare| json::written(&ResultBody::from(bare)));
        *place.lock().unwrap_or_else(PoisonError::into_inner) = whole;
        ResultBody::from(result)
    };
    let mut response = create(app, caller, headers, body, creation, work, short).await?;
    let long = long.lock().unwrap_or_else(PoisonError::into_inner).take();
    // What is spooled lies on disk for as long as its client reads: that is one of the tenant's streams. Without a place for
    // it the answer has what the record has, which is told to be truncated.
    if let Some((long, seat)) = long.and_then(|long| Some((long, app.control.open_stream(caller).ok()?))) {
        *response.body_mut() = long.into_body(seat);
    }
    Ok(response)
}

/// A stream cannot be answered twice, so a key for one is refused instead of being ignored.
pub(crate) fn refuse(headers: &HeaderMap) -> ApiResult<()> {
    match key(headers)? {
        Some(_) => Err(ApiError::field("Idempotency-Key", "is not for answers that are streams")),
        None => Ok(()),
    }
}

fn key(headers: &HeaderMap) -> ApiResult<Option<&str>> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(first) = values.next() else { return Ok(None) };
    match (first.to_str(), values.next()) {
        (Ok(key), None) => Ok(Some(key)),
        _ => Err(ApiError::field("Idempotency-Key", "must be given once, in visible characters")),
    }
}

fn hash(body: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, body);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn respond(answer: Answer, replayed: bool, location: &str) -> ApiResult<Response> {
    let broken = || ApiError::new(ErrorKind::Internal, "a kept answer cannot be read");
    let place = (!location.is_empty()).then(|| place(location, &answer.body)).flatten();
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).map_err(|_| broken())?;
    let headers = response.headers_mut();
    let content_type = HeaderValue::from_str(&answer.content_type).map_err(|_| broken())?;
    headers.insert(header::CONTENT_TYPE, content_type);
    if let Some(place) = place {
        headers.insert(header::LOCATION, place);
    }
    if replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

fn place(location: &str, body: &[u8]) -> Option<HeaderValue> {
    // What is created says its id first; all that follows may be long.
    if let Some(rest) = body.strip_prefix(br#"{"id":""#)
        && let Some(end) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))
        && rest[end] == b'"'
        && let Ok(id) = str::from_utf8(&rest[..end])
    {
        return HeaderValue::from_str(&format!("{location}{id}")).ok();
    }
    #[derive(serde::Deserialize)]
    struct Created {
        id: String,
    }
    let created: Created = serde_json::from_slice(body).ok()?;
    HeaderValue::from_str(&format!("{location}{}", created.id)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_comes_from_the_body() {
        assert_eq!(place("/v1/x/", br#"{"id":"sbx_a","b":1}"#).unwrap(), "/v1/x/sbx_a");
        assert_eq!(place("/v1/x/", br#"{"b":1,"id":"sbx_a"}"#).unwrap(), "/v1/x/sbx_a");
        assert_eq!(place("/v1/x/", br#"{"id":"sbx\u005fa"}"#).unwrap(), "/v1/x/sbx_a");
        assert_eq!(place("/v1/x/", b"[]"), None);
    }

    #[test]
    fn keys_are_given_once() {
        assert_eq!(key(&HeaderMap::new()).unwrap(), None);
        let mut headers = HeaderMap::new();
        headers.append(IDEMPOTENCY_KEY, HeaderValue::from_static("a"));
        assert_eq!(key(&headers).unwrap(), Some("a"));
        headers.append(IDEMPOTENCY_KEY, HeaderValue::from_static("a"));
        assert!(key(&headers).is_err());
    }
}
