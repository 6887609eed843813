//! Failures of the other server in the words of the provider boundary.
//!
//! Kinds are kept where they are about what was asked for. What is about our account there may be had elsewhere, and a
//! mistake of the other server is a failure of the provider, not of ours.

use sandstorm_client::{Error as ClientError, Refusal};
use sandstorm_provider::Error;
use sandstorm_types::{ErrorKind, Retry};

/// Most characters of the other server's words that are passed on.
const MAX_WORDS: usize = 500;

/// The failure of a call.
pub(super) fn of(error: ClientError) -> Error {
    match error {
        ClientError::Refused(refusal) => refused(&refusal),
        // Nobody was there to hear what was asked.
        ClientError::Unreachable { .. } => Error::new(ErrorKind::Provider, "the server cannot be reached")
            .with_not_started()
            .with_source(error),
        ClientError::Silent { .. } => Error::new(ErrorKind::Timeout, "the server did not answer in time")
            .with_retry(Retry::Elsewhere)
            .with_source(error),
        ClientError::Broken { .. } | ClientError::Closed { .. } => {
            Error::new(ErrorKind::Provider, "the connection to the server broke off").with_source(error)
        }
        ClientError::Failed { kind, detail } => words(kind, &detail),
        ClientError::Answer { .. } => {
            Error::new(ErrorKind::Provider, "the server gave an answer that makes no sense")
                .with_source(error)
        }
        ClientError::Upload { .. } => {
            Error::new(ErrorKind::InvalidRequest, "what was to be sent could not be read").with_source(error)
        }
        other => Error::new(ErrorKind::InvalidRequest, "the server is not set up rightly")
            .with_not_started()
            .with_source(other),
    }
}

fn refused(refusal: &Refusal) -> Error {
    let mut error = words(refusal.kind, &refusal.to_string()).with("status", refusal.status);
    if let Some(id) = &refusal.request_id {
        error = error.with("request", plain(id));
    }
    if let Some(after) = refusal.retry_after {
        error = error.with_retry_after(after);
    }
    if begins_nothing(refusal) { error.with_not_started() } else { error }
}

/// Whether such a refusal comes instead of the work and not in the midst of it. A conflict may be about what an earlier
/// request began, and what stands between us and the server says 502 and 504 for work that it lost sight of.
fn begins_nothing(refusal: &Refusal) -> bool {
    match refusal.status {
        408 | 409 => false,
        400..=499 => true,
        501 | 503 => refusal.coded,
        _ => false,
    }
}

/// A failure of this kind in the other server's words.
pub(super) fn words(kind: ErrorKind, text: &str) -> Error {
    let elsewhere = |message: &'static str| Error::new(kind, message).with_retry(Retry::Elsewhere);
    match kind {
        ErrorKind::Unauthenticated => elsewhere("the server does not accept the key"),
        ErrorKind::Forbidden => {
            elsewhere("the key may not do this on the server").with("reason", plain(text))
        }
        // Its limits are those of our account there.
        ErrorKind::Quota => Error::new(kind, plain(text)).with_retry(Retry::Elsewhere),
        ErrorKind::Timeout => Error::new(kind, plain(text)).with_retry(Retry::Here),
        // To them it is a mistake of theirs; that somebody gave up is not about whoever asked us.
        ErrorKind::Internal | ErrorKind::Cancelled => Error::new(ErrorKind::Provider, plain(text)),
        kind => Error::new(kind, plain(text)),
    }
}

/// Their words without what could confuse a terminal or a log, and not too many of them.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_WORDS).collect()
}

/// An answer that does not fit what was asked for.
pub(super) fn senseless(what: &'static str) -> Error {
    Error::new(ErrorKind::Provider, "the server gave an answer that makes no sense").with("what", what)
}

pub(super) fn no_sandbox(id: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::NotFound, "there is no such sandbox").with("sandbox", id)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn refusal(status: u16, kind: ErrorKind, coded: bool) -> Error {
        let refusal = Refusal {
            status,
            kind,
            detail: "no\u{1b}[31m".to_owned(),
            errors: Vec::new(),
            request_id: Some("req".to_owned()),
            retry_after: Some(Duration::from_secs(7)),
            coded,
        };
        of(ClientError::Refused(Box::new(refusal)))
    }

    #[test]
    fn each_refusal_says_what_it_is_and_where_to_go() {
        for (status, kind, told, retry, not_started) in [
            (400, ErrorKind::InvalidRequest, ErrorKind::InvalidRequest, Retry::Never, true),
            (401, ErrorKind::Unauthenticated, ErrorKind::Unauthenticated, Retry::Elsewhere, true),
            (402, ErrorKind::Billing, ErrorKind::Billing, Retry::Elsewhere, true),
            (403, ErrorKind::Forbidden, ErrorKind::Forbidden, Retry::Elsewhere, true),
            (404, ErrorKind::NotFound, ErrorKind::NotFound, Retry::Never, true),
            (409, ErrorKind::Conflict, ErrorKind::Conflict, Retry::Never, false),
            (429, ErrorKind::Quota, ErrorKind::Quota, Retry::Elsewhere, true),
            (500, ErrorKind::Internal, ErrorKind::Provider, Retry::Elsewhere, false),
            (502, ErrorKind::Provider, ErrorKind::Provider, Retry::Elsewhere, false),
            (503, ErrorKind::Capacity, ErrorKind::Capacity, Retry::Elsewhere, true),
            (504, ErrorKind::Timeout, ErrorKind::Timeout, Retry::Here, false),
        ] {
            let error = refusal(status, kind, true);
            assert_eq!((error.kind(), error.retry()), (told, retry), "{status}");
            assert_eq!(error.is_not_started(), not_started, "{status}");
            assert_eq!(error.retry_after(), Some(Duration::from_secs(7)), "{status}");
            assert!(!error.to_string().contains('\u{1b}'), "{error}");
        }
        assert!(!refusal(503, ErrorKind::Capacity, false).is_not_started(), "a proxy may have passed it on");
    }

    #[test]
    fn only_what_was_never_heard_was_never_begun() {
        let server = || "http://h".to_owned();
        let unreachable = of(ClientError::Unreachable { server: server(), source: "refused".into() });
        assert!(unreachable.is_not_started());
        assert_eq!((unreachable.kind(), unreachable.retry()), (ErrorKind::Provider, Retry::Elsewhere));
        for error in [
            ClientError::Broken { server: server(), source: None },
            ClientError::Silent { server: server(), within: Duration::from_secs(1) },
            ClientError::Answer { server: server(), what: "x", source: None },
        ] {
            assert!(!of(error).is_not_started());
        }
    }
}
