//! Errors of calls, by Connect's codes.

use std::io;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
pub(crate) use sandstorm_e2b_wire::Code;
use sandstorm_provider::Error;
use sandstorm_types::ErrorKind;
use serde_json::{Value, json};

use crate::refusal::{Refusal, cause, told};

const SANDBOX_GONE: &str = "The sandbox was not found";

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RpcError {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl RpcError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// By these words clients know that the sandbox ended.
    pub(crate) fn sandbox_gone() -> Self {
        Self::new(Code::Unavailable, SANDBOX_GONE)
    }

    pub(crate) fn is_sandbox_gone(&self) -> bool {
        self.code == Code::Unavailable && self.message == SANDBOX_GONE
    }

    pub(crate) fn body(&self) -> Value {
        json!({"code": self.code.name(), "message": self.message})
    }
}

impl IntoResponse for RpcError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self.body())).into_response()
    }
}

impl From<Error> for RpcError {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::InvalidRequest => Code::InvalidArgument,
            ErrorKind::Unauthenticated => Code::Unauthenticated,
            ErrorKind::Forbidden => Code::PermissionDenied,
            ErrorKind::NotFound => Code::NotFound,
            ErrorKind::Conflict => Code::FailedPrecondition,
            ErrorKind::Quota => Code::ResourceExhausted,
            ErrorKind::Capacity => Code::Unavailable,
            ErrorKind::Timeout => Code::DeadlineExceeded,
            ErrorKind::Cancelled => Code::Canceled,
            ErrorKind::FileSystem => match cause(&error) {
                Some(io::ErrorKind::NotFound) => Code::NotFound,
                Some(io::ErrorKind::AlreadyExists) => Code::AlreadyExists,
                Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
                    Code::PermissionDenied
                }
                Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => Code::ResourceExhausted,
                Some(
                    io::ErrorKind::NotADirectory
                    | io::ErrorKind::IsADirectory
                    | io::ErrorKind::InvalidInput
                    | io::ErrorKind::InvalidFilename
                    | io::ErrorKind::DirectoryNotEmpty,
                ) => Code::InvalidArgument,
                _ => Code::Internal,
            },
            _ => Code::Internal,
        };
        if code == Code::Internal {
            tracing::warn!(%error, "a call of the E2B API failed");
        }
        Self::new(code, told(&error))
    }
}

impl From<Refusal> for RpcError {
    fn from(refused: Refusal) -> Self {
        let code = match refused.status().as_u16() {
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::NotFound,
            400..=499 => Code::InvalidArgument,
            _ => Code::Internal,
        };
        Self::new(code, refused.message().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_kernel_errors_have_codes() {
        let of = |kind| RpcError::from(Error::new(kind, "x")).code;
        assert_eq!(of(ErrorKind::NotFound), Code::NotFound);
        assert_eq!(of(ErrorKind::Quota), Code::ResourceExhausted);
        assert_eq!(of(ErrorKind::Internal), Code::Internal);
        let file =
            |errno: &str| RpcError::from(Error::new(ErrorKind::FileSystem, "x").with("errno", errno)).code;
        assert_eq!(file("2"), Code::NotFound);
        assert_eq!(file("17"), Code::AlreadyExists);
        assert_eq!(file("20"), Code::InvalidArgument);
        assert_eq!(file("5"), Code::Internal);
    }

    #[test]
    fn the_code_is_a_word_and_the_status_fits() {
        let response = RpcError::new(Code::AlreadyExists, "x").into_response();
        assert_eq!(response.status(), 409);
        assert_eq!(RpcError::new(Code::Canceled, "x").body()["code"], "canceled");
        assert_eq!(RpcError::new(Code::Canceled, "x").into_response().status().as_u16(), 499);
    }
}
