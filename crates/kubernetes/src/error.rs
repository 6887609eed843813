//! Failures of a cluster in the words of the provider boundary.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use kube::client::UpgradeConnectionError;
use kube::core::Status;
use sandstorm_provider::Error;
use sandstorm_types::{ErrorKind, Retry};

/// Most characters of the cluster's words that are passed on.
const MAX_WORDS: usize = 500;

/// The failure of a call.
pub(crate) fn of(error: kube::Error) -> Error {
    match error {
        kube::Error::Api(status) => refused(&status),
        kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(code)) => {
            by_code(code.as_u16(), "", "the connection to a program was refused")
        }
        kube::Error::Auth(_) => {
            Error::new(ErrorKind::Unauthenticated, "the cluster's credentials cannot be used")
                .with_retry(Retry::Elsewhere)
                .with_not_started()
                .with_source(error)
        }
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => {
            Error::new(ErrorKind::Provider, "the cluster gave an answer that makes no sense")
                .with_source(error)
        }
        error => {
            let never_connected = is_refusal_to_connect(&error);
            let failed = Error::new(ErrorKind::Provider, "the cluster cannot be reached")
                .with("cause", causes(&error))
                .with_source(error);
            if never_connected { failed.with_not_started() } else { failed }
        }
    }
}

fn refused(status: &Status) -> Error {
    let words = plain(&status.message);
    let mut error = by_code(status.code, &status.reason, &words).with("status", status.code);
    let after = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if after > 0 {
        error = error.with_retry_after(Duration::from_secs(after.into()));
    }
    error
}

/// What a refusal means. Quota has no field of its own: only the words tell it from a lack of rights.
fn by_code(code: u16, reason: &str, words: &str) -> Error {
    let (kind, retry) = match code {
        400 | 422 => (ErrorKind::InvalidRequest, Retry::Elsewhere),
        401 => (ErrorKind::Unauthenticated, Retry::Elsewhere),
        403 if words.contains("exceeded quota") => (ErrorKind::Quota, Retry::Elsewhere),
        403 if words.contains("RuntimeClass") => (ErrorKind::Isolation, Retry::Elsewhere),
        403 => (ErrorKind::Forbidden, Retry::Elsewhere),
        404 => (ErrorKind::NotFound, Retry::Never),
        409 => (ErrorKind::Conflict, Retry::Never),
        429 => (ErrorKind::Capacity, Retry::Here),
        _ if matches!(reason, "Timeout" | "ServerTimeout") => (ErrorKind::Timeout, Retry::Here),
        _ => (ErrorKind::Provider, Retry::Elsewhere),
    };
    let error = Error::new(kind, words.to_owned()).with_retry(retry);
    // A conflict may be about what an earlier request began.
    if matches!(code, 400..=499) && !matches!(code, 408 | 409) { error.with_not_started() } else { error }
}

fn is_refusal_to_connect(error: &kube::Error) -> bool {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(kind, Some(io::ErrorKind::ConnectionRefused | io::ErrorKind::HostUnreachable)) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Everything behind an error in one line: whoever shows it may show no more than that.
pub(crate) fn causes(error: &(dyn StdError + 'static)) -> String {
    let mut said: Vec<String> = Vec::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        let words = error.to_string();
        // Some say what is behind them themselves.
        if !said.iter().any(|before| before.contains(&words)) {
            said.push(words);
        }
        cause = error.source();
    }
    plain(&said.join(": "))
}

/// Their words without what could confuse a terminal or a log, and not too many of them.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_WORDS).collect()
}

/// An answer that does not fit what was asked for.
pub(crate) fn senseless(what: &'static str) -> Error {
    Error::new(ErrorKind::Provider, "the cluster gave an answer that makes no sense").with("what", what)
}

pub(crate) fn no_sandbox(id: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::NotFound, "there is no such sandbox").with("sandbox", id)
}

#[cfg(test)]
mod tests {
    use kube::core::response::StatusDetails;

    use super::*;

    fn refusal(code: u16, reason: &str, message: &str) -> Error {
        let details = StatusDetails { retry_after_seconds: 3, ..no_details() };
        let status = Status {
            code,
            reason: reason.to_owned(),
            message: message.to_owned(),
            details: (code == 429).then_some(details),
            status: None,
            metadata: None,
        };
        of(kube::Error::Api(Box::new(status)))
    }

    fn no_details() -> StatusDetails {
        serde_json::from_str("{}").unwrap()
    }

    #[test]
    fn each_refusal_says_what_it_is_and_where_to_go() {
        let quota =
            "pods \"x\" is forbidden: exceeded quota: q, requested: cpu=1, used: cpu=1, limited: cpu=1";
        let class = "pods \"x\" is forbidden: pod rejected: RuntimeClass \"kata\" not found";
        for (code, reason, words, kind, retry, not_started) in [
            (403, "Forbidden", quota, ErrorKind::Quota, Retry::Elsewhere, true),
            (403, "Forbidden", class, ErrorKind::Isolation, Retry::Elsewhere, true),
            (403, "Forbidden", "violates PodSecurity", ErrorKind::Forbidden, Retry::Elsewhere, true),
            (401, "Unauthorized", "", ErrorKind::Unauthenticated, Retry::Elsewhere, true),
            (404, "NotFound", "", ErrorKind::NotFound, Retry::Never, true),
            (409, "AlreadyExists", "", ErrorKind::Conflict, Retry::Never, false),
            (422, "Invalid", "", ErrorKind::InvalidRequest, Retry::Elsewhere, true),
            (429, "TooManyRequests", "", ErrorKind::Capacity, Retry::Here, true),
            (504, "Timeout", "", ErrorKind::Timeout, Retry::Here, false),
            (500, "InternalError", "", ErrorKind::Provider, Retry::Elsewhere, false),
        ] {
            let error = refusal(code, reason, words);
            assert_eq!((error.kind(), error.retry()), (kind, retry), "{code} {words}");
            assert_eq!(error.is_not_started(), not_started, "{code} {words}");
        }
        assert_eq!(refusal(429, "", "").retry_after(), Some(Duration::from_secs(3)));
        assert!(!refusal(403, "", "a\u{1b}[31m").to_string().contains('\u{1b}'));
    }
}
