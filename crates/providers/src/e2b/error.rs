//! Failures of E2B in the words of the provider boundary.
//!
//! Kinds are kept where they are about what was asked for. What is about our account there may be had elsewhere.

use std::time::Duration;

use sandstorm_e2b_wire::{Code, NO_SANDBOX};
use sandstorm_provider::Error;
use sandstorm_types::{ErrorKind, Retry};
use serde::Deserialize;
use thiserror::Error as ThisError;

/// Most characters of their words that are passed on.
const MAX_WORDS: usize = 500;
/// The longest wait that is believed.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a call came to nothing.
#[derive(Debug, ThisError)]
pub(super) enum Failure {
    /// Nobody was there to hear what was asked.
    #[error("nobody answers at the address")]
    Unreachable(#[source] Cause),
    #[error("there was no answer within {0:?}")]
    Silent(Duration),
    #[error("the connection broke off")]
    Broken(#[source] Option<Cause>),
    #[error("{}", .0.message)]
    Refused(Box<Refusal>),
    #[error("the answer makes no sense: {0}")]
    Senseless(&'static str),
    #[error("what was to be sent could not be read")]
    Upload(#[source] Cause),
}

/// What they say when they refuse.
#[derive(Debug, Default)]
pub(super) struct Refusal {
    pub(super) status: u16,
    /// Of the agent's calls.
    pub(super) code: Option<Code>,
    pub(super) message: String,
    pub(super) error_code: Option<String>,
    pub(super) retry_after: Option<Duration>,
}

/// The body of a refusal: the code is a number, or a word where the agent speaks.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Words {
    code: serde_json::Value,
    message: String,
    error_code: Option<String>,
}

impl Refusal {
    pub(super) fn read(status: u16, retry_after: Option<&str>, body: &[u8]) -> Self {
        let words: Words = serde_json::from_slice(body).unwrap_or_default();
        let seconds = retry_after.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
        Self {
            status,
            code: words.code.as_str().and_then(Code::named),
            message: if words.message.is_empty() {
                format!("status {status}")
            } else {
                plain(&words.message)
            },
            error_code: words.error_code.map(|code| plain(&code)),
            retry_after: seconds.map(|span| span.min(LONGEST_WAIT)),
        }
    }

    /// The failure at the end of a stream: `{"error": {"code": "…", "message": "…"}}`; `None` for a good end.
    pub(super) fn of_end(body: &[u8]) -> Option<Self> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct End {
            error: Option<Words>,
        }
        let words = match serde_json::from_slice::<End>(body) {
            Ok(end) => end.error?,
            Err(_) => {
                Words { message: "the end of the stream cannot be read".to_owned(), ..Words::default() }
            }
        };
        let code = words.code.as_str().and_then(Code::named).unwrap_or(Code::Unknown);
        let message = plain(&words.message);
        Some(Self { status: code.status(), code: Some(code), message, ..Self::default() })
    }

    /// Whether there is no such sandbox to speak to: it ended, or it sleeps.
    pub(super) fn is_without_sandbox(&self) -> bool {
        let proxy = self.status == 502 && self.code.is_none();
        (proxy || self.code == Some(Code::Unavailable)) && self.message.contains(NO_SANDBOX)
    }

    fn kind(&self) -> ErrorKind {
        match self.code {
            Some(Code::InvalidArgument | Code::OutOfRange | Code::Unimplemented) => ErrorKind::InvalidRequest,
            Some(Code::Unauthenticated) => ErrorKind::Unauthenticated,
            Some(Code::PermissionDenied) => ErrorKind::Forbidden,
            Some(Code::NotFound) => ErrorKind::NotFound,
            Some(Code::FailedPrecondition | Code::AlreadyExists | Code::Aborted) => ErrorKind::Conflict,
            Some(Code::ResourceExhausted) => ErrorKind::Quota,
            Some(Code::DeadlineExceeded) => ErrorKind::Timeout,
            Some(_) => ErrorKind::Provider,
            None => match self.status {
                400 | 405 | 413 | 415 | 422 => ErrorKind::InvalidRequest,
                401 => ErrorKind::Unauthenticated,
                402 => ErrorKind::Billing,
                403 => ErrorKind::Forbidden,
                404 => ErrorKind::NotFound,
                408 | 504 => ErrorKind::Timeout,
                409 => ErrorKind::Conflict,
                429 => ErrorKind::Quota,
                503 => ErrorKind::Capacity,
                507 => ErrorKind::FileSystem,
                _ => ErrorKind::Provider,
            },
        }
    }

    /// Whether such a refusal comes instead of the work and not in the midst of it. A conflict may be about what an
    /// earlier request began, and what stands between us and them says 502 to 504 for work that it lost sight of.
    fn begins_nothing(&self) -> bool {
        match (self.code, self.status) {
            (
                Some(
                    Code::InvalidArgument
                    | Code::NotFound
                    | Code::AlreadyExists
                    | Code::PermissionDenied
                    | Code::ResourceExhausted
                    | Code::FailedPrecondition
                    | Code::OutOfRange
                    | Code::Unimplemented
                    | Code::Unauthenticated,
                ),
                _,
            ) => true,
            (Some(_), _) => false,
            (None, 408 | 409 | 499) => false,
            (None, 400..=499) => true,
            (None, 503) => self.error_code.is_some(),
            (None, _) => false,
        }
    }
}

impl Failure {
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Whether they say that there is no such thing.
    pub(super) fn is_not_found(&self) -> bool {
        self.refusal().is_some_and(|refusal| refusal.kind() == ErrorKind::NotFound)
    }

    pub(super) fn has_code(&self, code: Code) -> bool {
        self.refusal().is_some_and(|refusal| refusal.code == Some(code))
    }

    pub(super) fn has_status(&self, status: u16) -> bool {
        self.refusal().is_some_and(|refusal| refusal.status == status)
    }
}

/// The failure of a call.
pub(super) fn of(failure: Failure) -> Error {
    match failure {
        Failure::Refused(refusal) => refused(&refusal),
        Failure::Unreachable(_) => Error::new(ErrorKind::Provider, "the service cannot be reached")
            .with_not_started()
            .with_source(failure),
        Failure::Silent(_) => Error::new(ErrorKind::Timeout, "the service did not answer in time")
            .with_retry(Retry::Elsewhere)
            .with_source(failure),
        Failure::Broken(_) => {
            Error::new(ErrorKind::Provider, "the connection to the service broke off").with_source(failure)
        }
        Failure::Senseless(what) => senseless(what),
        Failure::Upload(_) => Error::new(ErrorKind::InvalidRequest, "what was to be sent could not be read")
            .with_source(failure),
    }
}

fn refused(refusal: &Refusal) -> Error {
    let words = refusal.message.clone();
    let kind = refusal.kind();
    let mut error = match kind {
        ErrorKind::Unauthenticated => {
            Error::new(kind, "the service does not accept the key").with_retry(Retry::Elsewhere)
        }
        ErrorKind::Forbidden => Error::new(kind, "the key may not do this there")
            .with_retry(Retry::Elsewhere)
            .with("reason", words),
        // Its limits are those of our account there.
        ErrorKind::Quota => Error::new(kind, words).with_retry(Retry::Elsewhere),
        ErrorKind::Timeout => Error::new(kind, words).with_retry(Retry::Here),
        kind => Error::new(kind, words),
    };
    error = error.with("status", refusal.status);
    if let Some(code) = &refusal.error_code {
        error = error.with("code", code);
    }
    if let Some(after) = refusal.retry_after {
        error = error.with_retry_after(after);
    }
    if refusal.begins_nothing() { error.with_not_started() } else { error }
}

/// The failure of an operation on files: most of it is about the file and not about the service.
pub(super) fn of_file(failure: Failure) -> Error {
    let about_files = failure.refusal().is_some_and(|refusal| match refusal.code {
        Some(
            Code::InvalidArgument
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::AlreadyExists
            | Code::Internal
            | Code::Unknown,
        ) => true,
        Some(_) => false,
        None => matches!(refusal.status, 400 | 403 | 507),
    });
    match failure {
        Failure::Refused(refusal) if about_files => {
            Error::new(ErrorKind::FileSystem, refusal.message).with("status", refusal.status)
        }
        other => of(other),
    }
}

/// Their words without what could confuse a terminal or a log, and not too many of them.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_WORDS).collect()
}

/// An answer that does not fit what was asked for.
pub(super) fn senseless(what: &'static str) -> Error {
    Error::new(ErrorKind::Provider, "the service gave an answer that makes no sense").with("what", what)
}

pub(super) fn no_sandbox(id: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::NotFound, "there is no such sandbox").with("sandbox", id).with_not_started()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, body: &str) -> Error {
        of(Failure::Refused(Box::new(Refusal::read(status, Some("7"), body.as_bytes()))))
    }

    #[test]
    fn each_refusal_says_what_it_is_and_where_to_go() {
        for (status, kind, retry, not_started) in [
            (400, ErrorKind::InvalidRequest, Retry::Never, true),
            (401, ErrorKind::Unauthenticated, Retry::Elsewhere, true),
            (402, ErrorKind::Billing, Retry::Elsewhere, true),
            (403, ErrorKind::Forbidden, Retry::Elsewhere, true),
            (404, ErrorKind::NotFound, Retry::Never, true),
            (409, ErrorKind::Conflict, Retry::Never, false),
            (429, ErrorKind::Quota, Retry::Elsewhere, true),
            (500, ErrorKind::Provider, Retry::Elsewhere, false),
            (502, ErrorKind::Provider, Retry::Elsewhere, false),
            (503, ErrorKind::Capacity, Retry::Elsewhere, false),
            (504, ErrorKind::Timeout, Retry::Here, false),
        ] {
            let error = refusal(status, "{\"code\":1,\"message\":\"no\\u001b[31m\"}");
            assert_eq!((error.kind(), error.retry()), (kind, retry), "{status}");
            assert_eq!(error.is_not_started(), not_started, "{status}");
            assert_eq!(error.retry_after(), Some(Duration::from_secs(7)), "{status}");
            assert!(!error.to_string().contains('\u{1b}'), "{error}");
        }
        let full =
            refusal(503, r#"{"code":503,"message":"full","error_code":"sandbox_capacity_unavailable"}"#);
        assert!(full.is_not_started() && full.to_string().contains("sandbox_capacity_unavailable"), "{full}");
        assert_eq!(refusal(500, "<html>").kind(), ErrorKind::Provider);
    }

    #[test]
    fn the_agents_codes_count_more_than_the_status() {
        let read = |body: &str| Refusal::of_end(body.as_bytes());
        assert!(read("{}").is_none());
        let missing = read(r#"{"error":{"code":"not_found","message":"x"}}"#).unwrap();
        assert!(missing.begins_nothing() && missing.kind() == ErrorKind::NotFound);
        let broken = read(r#"{"error":{"code":"internal","message":"x"}}"#).unwrap();
        assert!(!broken.begins_nothing());
        assert!(read("not json").is_some_and(|refusal| !refusal.begins_nothing()));
        let asleep =
            read(r#"{"error":{"code":"unavailable","message":"The sandbox was not found"}}"#).unwrap();
        assert!(asleep.is_without_sandbox());
        let proxy = Refusal::read(502, None, br#"{"message":"The sandbox was not found","code":502}"#);
        assert!(proxy.is_without_sandbox());
        let closed = Refusal::read(502, None, br#"{"message":"port is not open","code":502}"#);
        assert!(!closed.is_without_sandbox());
        let full = Failure::Refused(Box::new(Refusal::read(507, None, b"{}")));
        assert_eq!(of_file(full).kind(), ErrorKind::FileSystem);
        let limited = Failure::Refused(Box::new(Refusal::read(429, None, b"{}")));
        assert_eq!(of_file(limited).kind(), ErrorKind::Quota);
    }

    #[test]
    fn only_what_was_never_heard_was_never_begun() {
        assert!(of(Failure::Unreachable("refused".into())).is_not_started());
        for failure in
            [Failure::Broken(None), Failure::Silent(Duration::from_secs(1)), Failure::Senseless("x")]
        {
            assert!(!of(failure).is_not_started());
        }
    }
}
