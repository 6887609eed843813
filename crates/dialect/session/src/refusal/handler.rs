//! What goes wrong with a handler. Codes and their spelling are the API's.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use sandstorm_provider::Error;
use sandstorm_types::ErrorKind;
use serde_json::json;

use super::{Refusal, Told, answer};

#[derive(Debug)]
pub(crate) enum HandlerRefusal {
    /// The request itself, in the shape of every other route.
    Request(Refusal),
    Told(Box<Failure>),
}

#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    code: &'static str,
    description: &'static str,
    detail: String,
    solution: &'static str,
    retry_after: Option<Duration>,
}

impl HandlerRefusal {
    pub(crate) fn parameter(detail: impl Into<String>) -> Self {
        Self::told(
            StatusCode::BAD_REQUEST,
            "Sandbox.InvalidParameter",
            "Invalid parameter",
            detail.into(),
            "Please check the parameters of the request",
        )
    }

    pub(crate) fn exception(detail: impl Into<String>) -> Self {
        Self::told(
            StatusCode::INTERNAL_SERVER_ERROR,
            "Sandbox.ExecException",
            "Handler execution exception",
            detail.into(),
            "Please check your handler code for errors",
        )
    }

    pub(crate) fn timeout(limit: Duration) -> Self {
        Self::told(
            StatusCode::INTERNAL_SERVER_ERROR,
            "Sandbox.ExecTimeout",
            "Handler execution timed out",
            format!("the handler was ended after {} seconds", limit.as_secs_f64()),
            "Please make the handler faster or raise `__timeout`",
        )
    }

    pub(crate) fn no_python(detail: &str) -> Self {
        Self::told(
            StatusCode::SERVICE_UNAVAILABLE,
            "Sandbox.NotInitialized",
            "Sandbox executor not initialized",
            format!("Python cannot be started in a sandbox: {detail}"),
            "Please install Python where sandboxes see it",
        )
    }

    fn told(
        status: StatusCode,
        code: &'static str,
        description: &'static str,
        detail: String,
        solution: &'static str,
    ) -> Self {
        Self::Told(Box::new(Failure { status, code, description, detail, solution, retry_after: None }))
    }
}

impl From<Refusal> for HandlerRefusal {
    fn from(refusal: Refusal) -> Self {
        Self::Request(refusal)
    }
}

impl From<Error> for HandlerRefusal {
    fn from(error: Error) -> Self {
        let told = Told::from(&error);
        let (code, description, solution) = match error.kind() {
            ErrorKind::Quota | ErrorKind::Capacity => (
                "Sandbox.TooManyRequestsExection",
                "Too many requests",
                "Please try again after the time in `Retry-After`",
            ),
            ErrorKind::InvalidRequest | ErrorKind::Forbidden => (
                "Sandbox.InvalidParameter",
                "Invalid parameter",
                "Please check the parameters of the request and the scopes of the key",
            ),
            _ => (
                "Sandbox.InternalError",
                "Internal error",
                "Please try again, or look at the log of the server",
            ),
        };
        let detail = if told.ours { told.message } else { told.detail };
        let retry_after = error.retry_after();
        Self::Told(Box::new(Failure {
            status: told.status,
            code,
            description,
            detail,
            solution,
            retry_after,
        }))
    }
}

impl IntoResponse for HandlerRefusal {
    fn into_response(self) -> Response {
        match self {
            Self::Request(refusal) => refusal.into_response(),
            Self::Told(failure) => {
                let Failure { status, code, description, detail, solution, retry_after } = *failure;
                let detail = json!({
                    "error_code": code,
                    "description": description,
                    "error_detail": detail,
                    "solution": solution,
                });
                answer(status, detail, retry_after)
            }
        }
    }
}
