//! Every refusal as problem+json, from one place.
//!
//! A handler returns an [`ApiError`]; what it is about decides the status. The body is written at the edge, where the
//! request id is known, so an error can be made anywhere without carrying it along.

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use sandstorm_provider::Error;
use sandstorm_types::{ErrorKind, Retry};
use serde::Serialize;
use utoipa::ToSchema;

use crate::Refusal;

pub(crate) const CONTENT_TYPE: &str = "application/problem+json";

/// The longest detail that is sent; a message can hold what a sandbox said.
const MAX_DETAIL: usize = 2000;

pub(crate) type ApiResult<T> = Result<T, ApiError>;

/// Why a request was refused.
#[derive(Debug, Clone)]
pub(crate) struct ApiError(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    status: StatusCode,
    kind: ErrorKind,
    detail: String,
    errors: Vec<FieldError>,
    retry_after: Option<Duration>,
    headers: Vec<(header::HeaderName, HeaderValue)>,
}

/// One field that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct FieldError {
    /// Where it is, as `limits.memory` or `args[2]`; the name of a query parameter or header otherwise.
    pub(crate) field: String,
    pub(crate) detail: String,
}

/// A refusal as clients see it (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody<'a> {
    /// Names the kind of failure; the same for the same `code`.
    #[serde(rename = "type")]
    kind: String,
    title: &'a str,
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    detail: &'a str,
    /// The stable name of the failure's family.
    #[schema(value_type = super::wire::ErrorCode)]
    code: &'a str,
    request_id: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schema(required = false)]
    errors: &'a [FieldError],
}

impl ApiError {
    pub(crate) fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            status: status_of(kind),
            kind,
            detail: detail.into(),
            errors: Vec::new(),
            retry_after: None,
            headers: Vec::new(),
        }))
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest, detail)
    }

    /// A field, parameter or header that makes no sense.
    pub(crate) fn field(field: impl Into<String>, detail: impl Into<String>) -> Self {
        let (field, detail) = (field.into(), detail.into());
        let mut error = Self::invalid(format!("{field}: {detail}"));
        error.0.errors.push(FieldError { field, detail });
        error
    }

    /// What is asked for does not exist or is another's: the same words for both, and for ids that cannot exist.
    pub(crate) fn not_found() -> Self {
        Self::new(ErrorKind::NotFound, "there is no such object, or it is not yours")
    }

    /// The same words for every way to fail, so that nothing is learnt from trying.
    pub(crate) fn unauthenticated() -> Self {
        let challenge = HeaderValue::from_static("Bearer realm=\"sandstorm\"");
        Self::new(ErrorKind::Unauthenticated, "a valid key is needed, once, in Authorization or X-API-Key")
            .header(header::WWW_AUTHENTICATE, challenge)
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        Self::invalid(format!("the body is larger than {limit} bytes")).status(StatusCode::PAYLOAD_TOO_LARGE)
    }

    pub(crate) fn media_type(wanted: &str) -> Self {
        Self::invalid(format!("the body must be sent as {wanted}")).status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
    }

    pub(crate) fn too_slow() -> Self {
        Self::new(ErrorKind::Timeout, "the body came too slowly").status(StatusCode::REQUEST_TIMEOUT)
    }

    /// For whoever still waits when a server ends. Whether what was asked for was done, only the next server can say.
    pub(crate) fn stopped() -> Self {
        let mut error = Self::new(
            ErrorKind::Capacity,
            "the server stopped before this was done; look at what became of it before you ask again",
        );
        error.0.retry_after = Some(Duration::from_secs(5));
        error
    }

    pub(crate) fn status(mut self, status: StatusCode) -> Self {
        self.0.status = status;
        self
    }

    pub(crate) fn header(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = detail.into();
        self
    }

    /// The same as a foreign API says it, with the headers that it has everywhere.
    pub(crate) fn in_the_words_of(self, refusal: Refusal) -> Response {
        let mut response = refusal(self.0.status, clip(&self.0.detail));
        let own = self.into_response();
        if let Some(after) = own.headers().get(header::RETRY_AFTER) {
            response.headers_mut().insert(header::RETRY_AFTER, after.clone());
        }
        response
    }

    /// Whether what was asked for could not be reached.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.0.status == StatusCode::BAD_GATEWAY
    }

    /// What the caller is told, for answers that tell of several things.
    pub(crate) fn told(&self) -> String {
        clip(&self.0.detail).to_owned()
    }

    /// The body with the id of the request it answers.
    pub(crate) fn body(&self, request_id: &str) -> Vec<u8> {
        let Inner { status, kind, detail, errors, .. } = &*self.0;
        let body = ProblemBody {
            kind: format!("urn:sandstorm:problem:{kind}"),
            title: title(*kind),
            status: status.as_u16(),
            detail: clip(detail),
            code: kind.code(),
            request_id,
            errors,
        };
        serde_json::to_vec(&body).expect("texts and numbers are always JSON")
    }
}

fn clip(text: &str) -> &str {
    match text.char_indices().nth(MAX_DETAIL) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// The status of each family.
///
/// `isolation` is 501: this host cannot build the walls that the request needs, and asking again does not change that.
/// `cancelled` is 408: whoever still listens sent less than was announced, or too slowly.
pub(crate) fn status_of(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::InvalidRequest => StatusCode::BAD_REQUEST,
        ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorKind::Forbidden => StatusCode::FORBIDDEN,
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Conflict | ErrorKind::FileSystem => StatusCode::CONFLICT,
        ErrorKind::Quota => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::Billing => StatusCode::PAYMENT_REQUIRED,
        ErrorKind::Capacity => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
        ErrorKind::Isolation => StatusCode::NOT_IMPLEMENTED,
        ErrorKind::Provider => StatusCode::BAD_GATEWAY,
        ErrorKind::Cancelled => StatusCode::REQUEST_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The status of a failed file operation, from what the kernel said.
fn file_status(cause: io::ErrorKind) -> StatusCode {
    match cause {
        io::ErrorKind::NotFound => StatusCode::NOT_FOUND,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => StatusCode::FORBIDDEN,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            StatusCode::INSUFFICIENT_STORAGE
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => StatusCode::BAD_REQUEST,
        _ => StatusCode::CONFLICT,
    }
}

fn title(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidRequest => "The request makes no sense or asks for what is not offered",
        ErrorKind::Unauthenticated => "Nobody is known to have asked",
        ErrorKind::Forbidden => "Who asked may not",
        ErrorKind::NotFound => "There is no such thing",
        ErrorKind::Conflict => "It cannot be done in the present state",
        ErrorKind::Quota => "A limit of the tenant is reached",
        ErrorKind::Billing => "There is no money for it",
        ErrorKind::Capacity => "No place can take it now",
        ErrorKind::Timeout => "The time ran out",
        ErrorKind::Isolation => "A wall or limit could not be built",
        ErrorKind::FileSystem => "A file operation in the sandbox failed",
        ErrorKind::Provider => "The provider failed or cannot be reached",
        ErrorKind::Cancelled => "The caller gave up before it was done",
        _ => "A mistake of ours",
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let kind = error.kind();
        if kind == ErrorKind::NotFound {
            return Self::not_found();
        }
        if kind == ErrorKind::Unauthenticated && error.provider().is_none() {
            return Self::unauthenticated();
        }
        let kind = if ours_to_settle(&error) { ErrorKind::Provider } else { kind };
        let mut this = Self::new(kind, told(&error));
        if kind == ErrorKind::FileSystem
            && let Some(cause) = io_cause(&error)
        {
            this.0.status = file_status(cause);
        }
        this.0.retry_after = error.retry_after();
        if this.0.status.is_server_error() {
            tracing::error!(code = kind.code(), error = %chain(&error), "a request failed on our side");
        }
        this
    }
}

/// Whether a provider refused this server's own account: no key of the caller's would help.
fn ours_to_settle(error: &Error) -> bool {
    let account = matches!(error.kind(), ErrorKind::Unauthenticated | ErrorKind::Forbidden);
    account && error.retry() == Retry::Elsewhere && error.provider().is_some()
}

/// What the caller is told. A mistake of ours may name anything, so only the log has its words.
fn told(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Unauthenticated | ErrorKind::Forbidden if ours_to_settle(error) => {
            "the provider does not accept this server's account".to_owned()
        }
        ErrorKind::Internal => "the server failed; its log tells more under this request id".to_owned(),
        ErrorKind::Provider | ErrorKind::Isolation | ErrorKind::FileSystem => error.message().to_owned(),
        _ => chain(error),
    }
}

/// The error's own words and those of its causes.
fn chain(error: &Error) -> String {
    let mut text = error.message().to_owned();
    for (key, value) in error.context() {
        let _ = write!(text, ", {key} {value}");
    }
    for unmet in error.reasons() {
        let _ = write!(
            text,
            "; {}: wanted {}, offered {}: {}",
            unmet.feature, unmet.wanted, unmet.offered, unmet.why
        );
    }
    let mut cause = error.source();
    while let Some(source) = cause {
        let _ = write!(text, ": {source}");
        cause = source.source();
    }
    text
}

/// What the kernel said: as the error's cause, or as the number that came out of the sandbox.
fn io_cause(error: &Error) -> Option<io::ErrorKind> {
    let number = error.context().find(|(key, _)| *key == "errno").and_then(|(_, value)| value.parse().ok());
    if let Some(number) = number {
        return Some(io::Error::from_raw_os_error(number).kind());
    }
    let mut cause = error.source();
    while let Some(source) = cause {
        if let Some(io) = source.downcast_ref::<io::Error>() {
            return Some(io.kind());
        }
        cause = source.source();
    }
    None
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.0.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        for (name, value) in &self.0.headers {
            headers.insert(name, value.clone());
        }
        let waits = matches!(self.0.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        if let Some(after) = self.0.retry_after.or(waits.then_some(Duration::from_secs(1))) {
            // Whole seconds, rounded up: who comes a fraction too early is refused once more.
            let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, seconds.max(1).into());
        }
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(error: Error) -> StatusCode {
        ApiError::from(error).into_response().status()
    }

    #[test]
    fn each_family_has_its_status() {
        for (kind, wanted) in [
            (ErrorKind::InvalidRequest, 400),
            (ErrorKind::Unauthenticated, 401),
            (ErrorKind::Forbidden, 403),
            (ErrorKind::NotFound, 404),
            (ErrorKind::Conflict, 409),
            (ErrorKind::Quota, 429),
            (ErrorKind::Billing, 402),
            (ErrorKind::Capacity, 503),
            (ErrorKind::Timeout, 504),
            (ErrorKind::Isolation, 501),
            (ErrorKind::FileSystem, 409),
            (ErrorKind::Provider, 502),
            (ErrorKind::Internal, 500),
            (ErrorKind::Cancelled, 408),
        ] {
            assert_eq!(status(Error::new(kind, "x")).as_u16(), wanted, "{kind}");
        }
    }

    #[test]
    fn file_failures_follow_the_kernel() {
        let because = |cause: io::ErrorKind| {
            status(Error::new(ErrorKind::FileSystem, "x").with_source(io::Error::from(cause))).as_u16()
        };
        assert_eq!(because(io::ErrorKind::NotFound), 404);
        assert_eq!(because(io::ErrorKind::PermissionDenied), 403);
        assert_eq!(because(io::ErrorKind::StorageFull), 507);
        assert_eq!(because(io::ErrorKind::IsADirectory), 409);
        let full = Error::new(ErrorKind::FileSystem, "x").with("errno", 28);
        assert_eq!(status(full).as_u16(), 507);
    }

    #[test]
    fn waiting_is_told_in_whole_seconds_rounded_up() {
        let error = Error::new(ErrorKind::Quota, "x").with_retry_after(Duration::from_millis(1200));
        let response = ApiError::from(error).into_response();
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
        let response = ApiError::from(Error::new(ErrorKind::Capacity, "x")).into_response();
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
    }

    #[test]
    fn our_own_mistakes_are_not_told() {
        let error = Error::new(ErrorKind::Internal, "secret path").with("tenant", "ten_x");
        let body = String::from_utf8(ApiError::from(error).body("req_1")).unwrap();
        assert!(!body.contains("secret") && !body.contains("ten_x"), "{body}");
        assert!(body.contains(r#""code":"internal","request_id":"req_1""#), "{body}");
    }

    #[test]
    fn what_a_provider_thinks_of_our_key_is_not_the_callers() {
        for kind in [ErrorKind::Unauthenticated, ErrorKind::Forbidden] {
            let error = Error::new(kind, "bad key ss_x").with_retry(Retry::Elsewhere).with_provider("far");
            let answer = ApiError::from(error);
            assert!(!String::from_utf8(answer.body("r")).unwrap().contains("ss_x"));
            assert_eq!(answer.into_response().status(), StatusCode::BAD_GATEWAY);
        }
    }

    #[test]
    fn absent_and_foreign_are_one_answer() {
        let one = ApiError::from(Error::new(ErrorKind::NotFound, "there is no sandbox").with("id", "sbx_a"));
        assert_eq!(one.body("r"), ApiError::not_found().body("r"));
    }
}
