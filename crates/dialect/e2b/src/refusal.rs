//! Refusals as E2B's servers write them: `{"code": 404, "message": "…"}`.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use sandstorm_provider::Error;
use sandstorm_types::ErrorKind;
use serde_json::json;

use crate::browsers;

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    status: StatusCode,
    message: String,
    error_code: Option<&'static str>,
    retry_after: Option<Duration>,
    /// Trying again does not help, whatever the status says.
    hard: bool,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), error_code: None, retry_after: None, hard: false }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// The same words for a sandbox that never was, one that ended and one of somebody else.
    pub(crate) fn no_sandbox(id: &str) -> Self {
        let shown: String = id.chars().take(64).collect();
        Self::not_found(format!("sandbox {shown} was not found"))
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// A quota that only its owner can make room in.
    pub(crate) fn hard(mut self) -> Self {
        self.hard = self.status == StatusCode::TOO_MANY_REQUESTS;
        if self.hard {
            // Some clients know `Should-Retry`, others try again whenever they are told when.
            self.retry_after = None;
        }
        self
    }
}

/// A refusal that somebody before the dialect made, in its words.
pub fn refusal(status: StatusCode, message: &str) -> Response {
    browsers::shared(Refusal::new(status, message).into_response())
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut body = json!({"code": self.status.as_u16(), "message": self.message});
        if let Some(code) = self.error_code {
            body["error_code"] = code.into();
        }
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        if self.hard {
            headers.insert("should-retry", HeaderValue::from_static("false"));
        }
        if let Some(after) = self.retry_after {
            headers.insert(header::RETRY_AFTER, after.as_secs().max(1).into());
        }
        response
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let kind = error.kind();
        let status = match kind {
            ErrorKind::InvalidRequest => StatusCode::BAD_REQUEST,
            ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
            ErrorKind::Forbidden => StatusCode::FORBIDDEN,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::Quota => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::Capacity => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
            ErrorKind::FileSystem => file_status(&error),
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status.is_server_error() {
            tracing::error!(code = kind.code(), %error, "a request of the E2B API failed on our side");
        }
        let mut refused = Self::new(status, told(&error));
        refused.retry_after = error.retry_after();
        refused.error_code = match kind {
            ErrorKind::Capacity => Some("sandbox_capacity_unavailable"),
            ErrorKind::Internal => Some("internal_server_error"),
            _ => None,
        };
        refused
    }
}

/// What the caller is told. A mistake of ours may name anything, so only the log has its words.
pub(crate) fn told(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Internal => "the server failed; its log tells more".to_owned(),
        ErrorKind::Provider | ErrorKind::Isolation => error.message().to_owned(),
        ErrorKind::FileSystem => match cause(error) {
            Some(cause) => format!("{}: {cause}", error.message()),
            None => error.message().to_owned(),
        },
        _ => error.to_string(),
    }
}

/// What the kernel said of a file operation: as a number that came out of the sandbox, or as the error's cause.
pub(crate) fn cause(error: &Error) -> Option<io::ErrorKind> {
    let number = error.context().find(|(key, _)| *key == "errno").and_then(|(_, value)| value.parse().ok());
    if let Some(number) = number {
        return Some(io::Error::from_raw_os_error(number).kind());
    }
    let mut source = StdError::source(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return Some(io.kind());
        }
        source = cause.source();
    }
    None
}

/// The status of a failed file operation. Where the kernel said nothing, the sandbox's own limit may have.
fn file_status(error: &Error) -> StatusCode {
    match cause(error) {
        Some(io::ErrorKind::NotFound) => StatusCode::NOT_FOUND,
        Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => StatusCode::FORBIDDEN,
        Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge) => {
            StatusCode::INSUFFICIENT_STORAGE
        }
        None if error.context().any(|(key, _)| key == "limit") => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::BAD_REQUEST,
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use serde_json::Value;

    use super::*;

    async fn body(refused: Refusal) -> (StatusCode, http::HeaderMap, Value) {
        let (parts, body) = refused.into_response().into_parts();
        let bytes = to_bytes(body, 1 << 20).await.unwrap();
        (parts.status, parts.headers, serde_json::from_slice(&bytes).unwrap())
    }

    #[tokio::test]
    async fn every_kind_has_a_status_and_the_form_of_e2b() {
        for (kind, status) in [
            (ErrorKind::InvalidRequest, 400),
            (ErrorKind::Unauthenticated, 401),
            (ErrorKind::Forbidden, 403),
            (ErrorKind::NotFound, 404),
            (ErrorKind::Conflict, 409),
            (ErrorKind::Quota, 429),
            (ErrorKind::Capacity, 503),
            (ErrorKind::Timeout, 504),
            (ErrorKind::Internal, 500),
            (ErrorKind::Provider, 500),
        ] {
            let (answered, _, body) = body(Error::new(kind, "so").into()).await;
            assert_eq!((answered.as_u16(), &body["code"]), (status, &Value::from(status)), "{kind}");
            assert!(body["message"].is_string());
        }
    }

    #[tokio::test]
    async fn hard_quotas_are_not_tried_again_and_others_say_when() {
        let quota = || Error::new(ErrorKind::Quota, "full").with_retry_after(Duration::from_millis(5));
        let (_, headers, _) = body(Refusal::from(quota()).hard()).await;
        assert_eq!(
            (&headers["should-retry"], headers.get("retry-after")),
            (&HeaderValue::from_static("false"), None)
        );
        let (_, headers, _) = body(quota().into()).await;
        assert_eq!((headers.get("should-retry"), &headers["retry-after"]), (None, &HeaderValue::from(1)));
        let (_, headers, _) = body(Refusal::invalid("x").hard()).await;
        assert!(headers.get("should-retry").is_none());
    }

    #[test]
    fn file_errors_follow_what_the_kernel_said() {
        let of =
            |errno: &str| Refusal::from(Error::new(ErrorKind::FileSystem, "f").with("errno", errno)).status;
        assert_eq!(of("2"), StatusCode::NOT_FOUND);
        assert_eq!(of("21"), StatusCode::BAD_REQUEST);
        assert_eq!(of("28"), StatusCode::INSUFFICIENT_STORAGE);
        assert_eq!(of("30"), StatusCode::FORBIDDEN);
        let full = Error::new(ErrorKind::FileSystem, "no space left in the sandbox").with("limit", 5);
        assert_eq!(Refusal::from(full).status, StatusCode::INSUFFICIENT_STORAGE);
        assert_eq!(Refusal::from(Error::new(ErrorKind::FileSystem, "odd")).status, StatusCode::BAD_REQUEST);
    }

    #[test]
    fn mistakes_of_ours_are_not_told() {
        let error = Error::new(ErrorKind::Internal, "secret words");
        assert!(!Refusal::from(error).message.contains("secret"));
    }
}
