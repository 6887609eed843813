//! Living sandboxes that go on in others.

use std::time::Duration;

use sandstorm_control::server::{ForkView, NewFork};
use sandstorm_provider::{NotCarried, Result};
use sandstorm_types::{ContextId, Labels, duration};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::sandbox::SandboxBody;
use super::shapes::{ErrorCode, Span};
use crate::json::Wire;
use crate::problem::ApiError;

/// Copies to make. What is not said is the source's.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ForkSandbox {
    /// How many.
    #[schema(minimum = 1, maximum = 100, default = 1)]
    count: u32,
    /// Instead of the source's.
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    labels: Option<Labels>,
    /// How long each lives without being extended, from now.
    #[serde(with = "duration::optional_seconds")]
    #[schema(value_type = Option<Span>)]
    lifetime: Option<Duration>,
    /// Leaves out contexts that cannot be carried, and names them, instead of refusing.
    #[schema(default = false)]
    allow_partial: bool,
}

impl Default for ForkSandbox {
    fn default() -> Self {
        Self { count: 1, labels: None, lifetime: None, allow_partial: false }
    }
}

impl Wire for ForkSandbox {}

impl From<ForkSandbox> for NewFork {
    fn from(wanted: ForkSandbox) -> Self {
        Self {
            count: wanted.count,
            labels: wanted.labels,
            lifetime: wanted.lifetime,
            allow_partial: wanted.allow_partial,
        }
    }
}

/// What came of each copy: as many as were asked for.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ForkList {
    forks: Vec<ForkBody>,
}

/// One copy, or why it could not be made.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Fork)]
pub(crate) struct ForkBody {
    /// Null for one that could not be made, of which nothing is left.
    sandbox: Option<SandboxBody>,
    /// Contexts that go on in it.
    contexts: Vec<CarriedBody>,
    /// What the source has and the copy has not.
    not_carried: Vec<NotCarriedBody>,
    problem: Option<ForkProblem>,
}

/// A context that goes on.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CarriedContext)]
pub(crate) struct CarriedBody {
    #[schema(value_type = String, pattern = "^ctx_[a-z2-7]{26}$")]
    from: ContextId,
    #[schema(value_type = String, pattern = "^ctx_[a-z2-7]{26}$")]
    to: ContextId,
}

/// Something that was left behind.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = NotCarried)]
pub(crate) struct NotCarriedBody {
    #[schema(example = "exec exe_aaaaaaaaaaaaaaaaaaaaaaaaaa")]
    what: String,
    why: String,
}

/// Why one of several copies could not be made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ForkProblem {
    /// The stable name of the failure's family.
    #[schema(value_type = ErrorCode)]
    code: &'static str,
    detail: String,
}

impl From<Vec<Result<ForkView>>> for ForkList {
    fn from(forks: Vec<Result<ForkView>>) -> Self {
        Self { forks: forks.into_iter().map(ForkBody::from).collect() }
    }
}

impl From<Result<ForkView>> for ForkBody {
    fn from(fork: Result<ForkView>) -> Self {
        match fork {
            Ok(view) => Self {
                sandbox: Some(view.sandbox.into()),
                contexts: view.contexts.into_iter().map(|(from, to)| CarriedBody { from, to }).collect(),
                not_carried: view.not_carried.into_iter().map(NotCarriedBody::from).collect(),
                problem: None,
            },
            Err(error) => {
                let code = error.kind().code();
                let problem = ForkProblem { code, detail: ApiError::from(error).told() };
                Self { sandbox: None, contexts: Vec::new(), not_carried: Vec::new(), problem: Some(problem) }
            }
        }
    }
}

impl From<NotCarried> for NotCarriedBody {
    fn from(left: NotCarried) -> Self {
        Self { what: left.what, why: left.why }
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_provider::Error;
    use sandstorm_types::ErrorKind;

    use super::*;
    use crate::json::read;

    #[test]
    fn an_empty_object_asks_for_one() {
        let new = NewFork::from(read::<ForkSandbox>(b"{}").unwrap());
        assert_eq!((new.count, new.allow_partial), (1, false));
        assert!(new.labels.is_none() && new.lifetime.is_none());
        let json = br#"{"count": 100, "labels": {}, "lifetime": "1m", "allow_partial": true}"#;
        let new = NewFork::from(read::<ForkSandbox>(json).unwrap());
        assert_eq!((new.count, new.lifetime), (100, Some(Duration::from_secs(60))));
        for bad in [r#"{"count": -1}"#, r#"{"count": 1.5}"#, r#"{"network": "open"}"#, r#"{"labels": 1}"#] {
            assert!(read::<ForkSandbox>(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn one_that_failed_is_told_in_its_place() {
        let failed =
            Err(Error::new(ErrorKind::Quota, "the quota of sandboxes is used up").with("allowed", 3));
        let body = serde_json::to_value(ForkList::from(vec![failed])).unwrap();
        assert_eq!(body["forks"][0]["sandbox"], serde_json::Value::Null);
        assert_eq!(body["forks"][0]["problem"]["code"], "quota");
        assert_eq!(body["forks"][0]["problem"]["detail"], "the quota of sandboxes is used up, allowed 3");
        // A mistake of ours may name anything.
        let ours = Err(Error::new(ErrorKind::Internal, "/secret/path"));
        assert!(!serde_json::to_string(&ForkList::from(vec![ours])).unwrap().contains("secret"));
    }
}
