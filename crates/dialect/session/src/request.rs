//! What comes with a request: whose session, which path, which fields. Each is read with bounds, and what cannot be read is
//! refused in the API's own shapes.

use std::collections::BTreeMap;

use axum::body::HttpBody;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use sandstorm_control::server::{BodyRoom, Caller, gather};
use sandstorm_provider::Error;
use sandstorm_types::ErrorKind;
use serde_json::{Map, Value};

use crate::fields::{FieldError, Fields};
use crate::refusal::Refusal;
use crate::router::Dialect;
use crate::session_id::SessionId;

/// Code and file contents travel in JSON; larger files are uploaded.
pub(crate) const MOST_JSON: usize = 32 * 1024 * 1024;

/// The session of a request, and the path behind it where the route has one.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) session: SessionId,
    pub(crate) path: String,
}

impl<S: Send + Sync> FromRequestParts<S> for Target {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let named: Result<Path<BTreeMap<String, String>>, PathRejection> =
            Path::from_request_parts(parts, state).await;
        let Ok(Path(mut named)) = named else {
            return Err(Refusal::bad_request("the path of the request is not UTF-8"));
        };
        let session = SessionId::new(named.remove("session_id").unwrap_or_default())?;
        Ok(Self { session, path: named.remove("path").unwrap_or_default() })
    }
}

/// The fields of the query.
#[derive(Debug)]
pub(crate) struct QueryFields(pub(crate) Fields);

impl<S: Send + Sync> FromRequestParts<S> for QueryFields {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let Ok(Query(given)) = Query::<BTreeMap<String, String>>::from_request_parts(parts, state).await
        else {
            return Err(FieldError::new(["query"], "Input should be a valid query", "value_error").into());
        };
        let given = given.into_iter().map(|(name, value)| (name, Value::String(value))).collect();
        Ok(Self(Fields::new("query", given)))
    }
}

/// The fields of a body, which must be a JSON object, and what the body takes of its tenant's room.
#[derive(Debug)]
pub(crate) struct BodyFields(pub(crate) Fields, pub(crate) BodyRoom);

impl FromRequest<Dialect> for BodyFields {
    type Rejection = Refusal;

    async fn from_request(request: Request, dialect: &Dialect) -> Result<Self, Refusal> {
        let (parts, body) = request.into_parts();
        let Some(caller) = parts.extensions.get::<Caller>() else {
            return Err(Error::new(ErrorKind::Unauthenticated, "a key is needed").into());
        };
        let mut room = dialect.sessions.control.body_room(caller);
        let said = body.size_hint().upper();
        let most = said.map_or(MOST_JSON, |said| usize::try_from(said).unwrap_or(MOST_JSON).min(MOST_JSON));
        let mut body = Limited::new(body, MOST_JSON);
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let data = match frame {
                Ok(frame) => frame.into_data().unwrap_or_default(),
                Err(error) if error.is::<LengthLimitError>() => {
                    let detail = format!("a body of JSON may have {MOST_JSON} bytes; upload larger files");
                    return Err(Refusal::sandbox(
                        StatusCode::PAYLOAD_TOO_LARGE,
                        "the body is too large",
                        detail,
                    ));
                }
                Err(_) => return Err(Refusal::bad_request("the body could not be read")),
            };
            gather(&mut bytes, &data, most, |more| room.grow(more))?;
        }
        if bytes.is_empty() {
            return Err(FieldError::new(["body"], "Field required", "missing").into());
        }
        let given = if is_json(&parts.headers) { object(&bytes)? } else { Err(not_an_object())? };
        Ok(Self(Fields::new("body", given), room))
    }
}

fn object(bytes: &[u8]) -> Result<Map<String, Value>, FieldError> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(given)) => Ok(given),
        Ok(_) => Err(not_an_object()),
        Err(error) => {
            // How far the reader came, in bytes.
            let before: usize = bytes
                .split_inclusive(|byte| *byte == b'\n')
                .take(error.line().saturating_sub(1))
                .map(<[u8]>::len)
                .sum();
            let place = before + error.column();
            Err(FieldError::new(["body"], "JSON decode error", "json_invalid").at(place))
        }
    }
}

fn not_an_object() -> FieldError {
    let msg = "Input should be a valid dictionary or object to extract fields from";
    FieldError::new(["body"], msg, "model_attributes_type")
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(said) = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let essence = said.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(body: &[u8]) -> Value {
        serde_json::to_value(object(body).unwrap_err()).unwrap()["type"].clone()
    }

    #[test]
    fn only_objects_are_taken() {
        assert!(object(b"{}").is_ok());
        assert_eq!(kind(b"[1]"), "model_attributes_type");
        assert_eq!(kind(b"{"), "json_invalid");
        assert_eq!(kind(b"\xff\xfe"), "json_invalid");
        // Deeper than the reader goes: refused, not a stack overflow.
        assert_eq!(kind("[".repeat(100_000).as_bytes()), "json_invalid");
    }

    #[test]
    fn the_type_of_the_body_counts() {
        let headers = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, value.parse().unwrap());
            headers
        };
        assert!(is_json(&headers("application/json; charset=utf-8")));
        assert!(is_json(&headers("Application/Problem+JSON")));
        assert!(!is_json(&headers("text/plain")) && !is_json(&HeaderMap::new()));
    }
}
