//! What goes wrong, in the shapes that clients of this API know.
//!
//! | shape | when |
//! |---|---|
//! | `{"detail": "text"}` | a path that is refused, a file that is not there |
//! | `{"detail": [{loc, msg, type}]}`, 422 | a request that does not have the fields it must have |
//! | `{"detail": {type, message, detail}}` | everything else |
//! | `{"detail": {error_code, description, error_detail, solution}}` | handlers: see [`HandlerRefusal`] |
//!
//! The first server answered 500 to nearly everything. The bodies are kept, the status tells whose fault it was.

mod handler;

use std::error::Error as _;
use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use sandstorm_provider::Error;
use sandstorm_types::ErrorKind;
use serde_json::{Value, json};

use crate::fields::FieldError;

pub(crate) use handler::HandlerRefusal;

#[derive(Debug)]
pub(crate) enum Refusal {
    Plain(StatusCode, String),
    Invalid(Vec<FieldError>),
    Sandbox(Box<SandboxRefusal>),
}

/// A refusal with a type, a message and a detail.
#[derive(Debug)]
pub(crate) struct SandboxRefusal {
    status: StatusCode,
    kind: &'static str,
    message: String,
    detail: String,
    retry_after: Option<Duration>,
}

impl Refusal {
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::Plain(StatusCode::BAD_REQUEST, message.into())
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::Plain(StatusCode::NOT_FOUND, message.into())
    }

    pub(crate) fn sandbox(status: StatusCode, message: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Sandbox(Box::new(SandboxRefusal {
            status,
            kind: "SandboxError",
            message: message.into(),
            detail: detail.into(),
            retry_after: None,
        }))
    }

    /// A failed file operation; a file that is not there has a shape of its own.
    pub(crate) fn of_file(error: Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::not_found("File not found"),
            _ => error.into(),
        }
    }
}

impl From<FieldError> for Refusal {
    fn from(error: FieldError) -> Self {
        Self::Invalid(vec![error])
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let told = Told::from(&error);
        Self::Sandbox(Box::new(SandboxRefusal {
            status: told.status,
            kind: if told.ours { "UnexpectedError" } else { "SandboxError" },
            message: told.message,
            detail: told.detail,
            retry_after: error.retry_after(),
        }))
    }
}

/// What a caller may know of an error.
struct Told {
    status: StatusCode,
    /// Whether it is our failure, whose causes are for the log only.
    ours: bool,
    message: String,
    detail: String,
}

impl From<&Error> for Told {
    fn from(error: &Error) -> Self {
        let status = match error.kind() {
            ErrorKind::InvalidRequest | ErrorKind::FileSystem => StatusCode::BAD_REQUEST,
            ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
            ErrorKind::Forbidden => StatusCode::FORBIDDEN,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::Quota => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::Capacity => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
            ErrorKind::Provider => StatusCode::BAD_GATEWAY,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let ours = status == StatusCode::INTERNAL_SERVER_ERROR || status == StatusCode::BAD_GATEWAY;
        if ours {
            let cause = error.source().map(ToString::to_string);
            tracing::error!(%error, cause, "a request of the session API failed");
            let message = "an unexpected error occurred".to_owned();
            return Self { status, ours, message, detail: error.kind().to_string() };
        }
        Self { status, ours, message: error.message().to_owned(), detail: error.to_string() }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Plain(status, message) => answer(status, json!(message), None),
            Self::Invalid(wrong) => answer(StatusCode::UNPROCESSABLE_ENTITY, json!(wrong), None),
            Self::Sandbox(refusal) => {
                let SandboxRefusal { status, kind, message, detail, retry_after } = *refusal;
                let detail = json!({"type": kind, "message": message, "detail": detail});
                answer(status, detail, retry_after)
            }
        }
    }
}

fn answer(status: StatusCode, detail: Value, retry_after: Option<Duration>) -> Response {
    let mut response = (status, Json(json!({"detail": detail}))).into_response();
    if let Some(wait) = retry_after {
        // Whole seconds, never less than was asked for.
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_of_our_own_failures_are_not_told() {
        let error = Error::new(ErrorKind::Internal, "the table is locked").with("file", "/secret/place");
        let told = Told::from(&error);
        assert!(told.ours && told.status == StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!format!("{}{}", told.message, told.detail).contains("secret"));
        let error = Error::new(ErrorKind::Conflict, "the sandbox is paused").with("sandbox", "x");
        let told = Told::from(&error);
        assert_eq!((told.status, told.message.as_str()), (StatusCode::CONFLICT, "the sandbox is paused"));
        assert!(told.detail.contains("sandbox x"));
    }
}
