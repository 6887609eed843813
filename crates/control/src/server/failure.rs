//! Errors of the store in the words of the server, and refusals that several use cases share.

use std::time::Duration;

use sandstorm_provider::{Error, Result};
use sandstorm_store::StoreError;
use sandstorm_types::ErrorKind;

/// When to try again if a tenant's own sandboxes are in the way: nobody knows when it will end one.
const QUOTA_RETRY: Duration = Duration::from_secs(5);
const STORE_RETRY: Duration = Duration::from_secs(1);

/// What the store gave, or its error in the server's words.
pub(super) fn stored<T>(result: Result<T, StoreError>) -> Result<T> {
    result.map_err(of_store)
}

pub(super) fn of_store(error: StoreError) -> Error {
    match &error {
        StoreError::QuotaExceeded { which, used, wanted, limit } => {
            Error::new(ErrorKind::Quota, format!("the quota of {which} is used up"))
                .with("used", used)
                .with("wanted", wanted)
                .with("allowed", limit)
                .with_retry_after(QUOTA_RETRY)
        }
        StoreError::Conflict { what, source } => {
            // In the words of the database, which mean nothing to a caller.
            tracing::info!(%source, "a record conflicts with what is stored");
            conflict(format!(
                "the record conflicts with what is stored ({what}); look at what is there, or choose another name or id"
            ))
        }
        StoreError::Elsewhere { node } => elsewhere("record", node),
        StoreError::Superseded => {
            Error::new(ErrorKind::Capacity, "another server has taken over the records of this one")
                .with_retry_after(QUOTA_RETRY)
                .with_source(error)
        }
        StoreError::Invalid { what } => Error::new(ErrorKind::InvalidRequest, what.clone()),
        transient if transient.is_transient() => {
            Error::new(ErrorKind::Capacity, "the store is not available")
                .with_retry_after(STORE_RETRY)
                .with_source(error)
        }
        _ => Error::new(ErrorKind::Internal, "the store failed").with_source(error),
    }
}

/// What absent and foreign things are answered with alike.
pub(super) fn not_found(what: &'static str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no such {what}"))
}

/// What another server holds that shares the database: only that one can do anything about it.
pub(super) fn elsewhere(what: &'static str, node: &str) -> Error {
    conflict(format!("another server holds this {what}: ask there")).with("server", node)
}

pub(super) fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidRequest, message)
}

pub(super) fn conflict(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Conflict, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_is_not_told_in_the_words_of_the_database() {
        let source = "UNIQUE constraint failed: tenants.name".into();
        let told = of_store(StoreError::Conflict { what: "it exists already", source });
        assert_eq!(told.kind(), ErrorKind::Conflict);
        assert_eq!(
            told.to_string(),
            "the record conflicts with what is stored (it exists already); look at what is there, or choose another \
             name or id"
        );
        assert!(std::error::Error::source(&told).is_none());
    }
}
