//! What can go wrong between a client and its server.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use sandstorm_types::ErrorKind;
use serde::Deserialize;

pub type Result<T, E = Error> = std::result::Result<T, E>;

type Cause = Box<dyn StdError + Send + Sync>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server answered, and the answer is no.
    #[error(transparent)]
    Refused(#[from] Box<Refusal>),
    #[error("`{address}` is not the address of a server: {why}")]
    Address { address: String, why: &'static str },
    #[error("the key may hold only visible ASCII characters")]
    Key,
    #[error("could not reach {server}")]
    Unreachable { server: String, source: Cause },
    #[error("the connection to {server} broke off")]
    Broken { server: String, source: Option<Cause> },
    #[error("{server} closed the connection: {reason}")]
    Closed { server: String, reason: String },
    #[error("{server} did not answer within {} s", within.as_secs())]
    Silent { server: String, within: Duration },
    #[error("{server} gave an answer that makes no sense: {what}")]
    Answer { server: String, what: &'static str, source: Option<Cause> },
    /// The work behind a stream failed after the stream had begun.
    #[error("{detail}")]
    Failed { kind: ErrorKind, detail: String },
    #[error("what was to be sent could not be read")]
    Upload { source: Cause },
    #[error("could not set up TLS")]
    Tls { source: Cause },
}

impl Error {
    /// The family of the failure.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused(refusal) => refusal.kind,
            Self::Failed { kind, .. } => *kind,
            Self::Address { .. } | Self::Key | Self::Upload { .. } => ErrorKind::InvalidRequest,
            Self::Silent { .. } => ErrorKind::Timeout,
            Self::Unreachable { .. } | Self::Broken { .. } | Self::Closed { .. } => ErrorKind::Provider,
            Self::Answer { .. } | Self::Tls { .. } => ErrorKind::Internal,
        }
    }

    /// The status of the answer, where there was one.
    pub fn status(&self) -> Option<u16> {
        self.refusal().map(|refusal| refusal.status)
    }

    /// Names the request in the server's log.
    pub fn request_id(&self) -> Option<&str> {
        self.refusal().and_then(|refusal| refusal.request_id.as_deref())
    }

    /// How long the server asks to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        self.refusal().and_then(|refusal| refusal.retry_after)
    }

    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Whether the same stream may be had by connecting anew.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken { .. } | Self::Silent { .. } => true,
            Self::Refused(refusal) => matches!(refusal.status, 429 | 502 | 503 | 504),
            _ => false,
        }
    }
}

/// A refusal in the server's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    pub kind: ErrorKind,
    /// What happened, for people.
    pub detail: String,
    /// What exactly is wrong with the request, part by part.
    pub errors: Vec<FieldProblem>,
    pub request_id: Option<String>,
    pub retry_after: Option<Duration>,
    /// Whether it has a code of ours: what stands between us and the server has none.
    pub coded: bool,
}

/// One part of a request that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FieldProblem {
    /// Where: a field, a parameter or a header.
    pub field: String,
    pub detail: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)?;
        // The first one is often the whole detail.
        for error in self.errors.iter().filter(|error| !self.detail.contains(&error.detail)) {
            write!(f, "; {}: {}", error.field, error.detail)?;
        }
        Ok(())
    }
}

impl StdError for Refusal {}

/// The members of problem+json that we read; whatever else is there does not matter.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ProblemBody {
    title: Option<String>,
    detail: Option<String>,
    code: Option<String>,
    request_id: Option<String>,
    errors: serde_json::Value,
}

impl Refusal {
    /// Reads an answer. Something between us and the server may have written it, so nothing in it is relied upon.
    pub(crate) fn read(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let problem: ProblemBody = serde_json::from_slice(body).unwrap_or_default();
        let code = problem.code.as_deref().and_then(kind_of_code);
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let detail =
            problem.detail.or(problem.title).unwrap_or_else(|| format!("the server answered {status}"));
        Self {
            status: status.as_u16(),
            kind: code.unwrap_or_else(|| kind_of_status(status)),
            detail,
            errors: serde_json::from_value(problem.errors).unwrap_or_default(),
            request_id: problem.request_id.or_else(|| header("x-request-id").map(str::to_owned)),
            retry_after: header("retry-after").and_then(|text| text.parse().ok()).map(Duration::from_secs),
            coded: code.is_some(),
        }
    }
}

fn kind_of_code(code: &str) -> Option<ErrorKind> {
    ErrorKind::ALL.into_iter().find(|kind| kind.code() == code)
}

/// For answers without a code that we know: from a newer server, or from a proxy in between.
fn kind_of_status(status: StatusCode) -> ErrorKind {
    match status.as_u16() {
        401 => ErrorKind::Unauthenticated,
        402 => ErrorKind::Billing,
        403 => ErrorKind::Forbidden,
        404 | 410 => ErrorKind::NotFound,
        409 | 412 => ErrorKind::Conflict,
        429 => ErrorKind::Quota,
        503 => ErrorKind::Capacity,
        408 | 504 => ErrorKind::Timeout,
        502 => ErrorKind::Provider,
        507 => ErrorKind::FileSystem,
        400..=499 => ErrorKind::InvalidRequest,
        _ => ErrorKind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: u16, headers: &[(&'static str, &str)], body: &str) -> Refusal {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        Refusal::read(StatusCode::from_u16(status).unwrap(), &map, body.as_bytes())
    }

    #[test]
    fn a_problem_keeps_what_a_caller_needs() {
        let body = r#"{"type":"about:blank","title":"Too many","status":429,"detail":"5 sandboxes are allowed",
            "code":"quota","request_id":"req-1","later":true}"#;
        let refusal = read(429, &[("retry-after", "7")], body);
        assert_eq!((refusal.status, refusal.kind), (429, ErrorKind::Quota));
        assert!(refusal.coded);
        assert_eq!(refusal.to_string(), "5 sandboxes are allowed");
        assert_eq!(refusal.request_id.as_deref(), Some("req-1"));
        assert_eq!(refusal.retry_after, Some(Duration::from_secs(7)));
    }

    #[test]
    fn every_code_is_its_kind() {
        for kind in ErrorKind::ALL {
            assert_eq!(read(500, &[], &format!(r#"{{"code":"{kind}"}}"#)).kind, kind);
        }
    }

    #[test]
    fn fields_are_named() {
        let body = r#"{"detail":"the request is wrong","code":"invalid_request",
            "errors":[{"field":"limits.memory","detail":"too small"},{"field":"env","detail":"is wrong"}]}"#;
        assert_eq!(read(400, &[], body).to_string(), "the request is wrong; limits.memory: too small");
    }

    #[test]
    fn what_is_no_problem_is_told_by_its_status() {
        for (status, kind) in [
            (401, ErrorKind::Unauthenticated),
            (402, ErrorKind::Billing),
            (404, ErrorKind::NotFound),
            (418, ErrorKind::InvalidRequest),
            (502, ErrorKind::Provider),
            (503, ErrorKind::Capacity),
            (500, ErrorKind::Internal),
        ] {
            let refusal = read(status, &[("x-request-id", "from-header")], "<html>oops</html>");
            assert_eq!(refusal.kind, kind, "{status}");
            assert!(refusal.detail.contains(&status.to_string()) && !refusal.coded, "{}", refusal.detail);
            assert_eq!(refusal.request_id.as_deref(), Some("from-header"));
        }
        assert_eq!(read(503, &[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")], "").retry_after, None);
        assert_eq!(
            read(400, &[], r#"{"code":"of_the_future","errors":"odd"}"#).kind,
            ErrorKind::InvalidRequest
        );
    }
}
