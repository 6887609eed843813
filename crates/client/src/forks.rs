//! Living sandboxes that go on in others.

use std::collections::BTreeMap;
use std::time::Duration;

use sandstorm_types::{ContextId, SandboxId, duration};
use serde::{Deserialize, Serialize};

use crate::transport::Call;
use crate::{Client, Result, Sandbox};

/// Copies to make of a living sandbox. What is not said is the source's.
#[derive(Debug, Clone, Serialize)]
pub struct NewFork {
    /// From 1 to 100.
    pub count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "duration::optional_seconds::serialize"
    )]
    pub lifetime: Option<Duration>,
    /// Leaves out contexts that cannot be carried, and names them, instead of refusing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_partial: bool,
}

impl Default for NewFork {
    fn default() -> Self {
        Self { count: 1, labels: None, lifetime: None, allow_partial: false }
    }
}

/// One copy, or why it could not be made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fork {
    /// `None` for one that could not be made while others could; nothing of it is left.
    pub sandbox: Option<Sandbox>,
    /// Contexts that go on in it.
    #[serde(default)]
    pub contexts: Vec<CarriedContext>,
    /// What the source has and the copy has not.
    #[serde(default)]
    pub not_carried: Vec<NotCarried>,
    #[serde(default)]
    pub problem: Option<ForkProblem>,
}

/// A context of the source, and what it is called in the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedContext {
    pub from: ContextId,
    pub to: ContextId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCarried {
    pub what: String,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkProblem {
    pub code: String,
    pub detail: String,
}

#[derive(Deserialize)]
struct Forks {
    forks: Vec<Fork>,
}

impl Client {
    /// Sandboxes that go on from where this one is, each ready when this returns; as many as were asked for. An error
    /// means that there is none. Made once for each `key`.
    pub async fn fork_sandbox_once(&self, id: SandboxId, new: &NewFork, key: &str) -> Result<Vec<Fork>> {
        let call = Call::post(self.sandbox_url(id, &["fork"])).json(new).once_as(key);
        Ok(self.ask::<Forks>(call).await?.forks)
    }

    /// The same with a key of its own.
    pub async fn fork_sandbox(&self, id: SandboxId, new: &NewFork) -> Result<Vec<Fork>> {
        let call = Call::post(self.sandbox_url(id, &["fork"])).json(new).once();
        Ok(self.ask::<Forks>(call).await?.forks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_not_sent() {
        let json = serde_json::to_value(NewFork::default()).unwrap();
        assert_eq!(json, serde_json::json!({ "count": 1 }));
        let new = NewFork { count: 3, lifetime: Some(Duration::from_secs(9)), ..NewFork::default() };
        let new = NewFork { allow_partial: true, labels: Some(BTreeMap::new()), ..new };
        let expected = serde_json::json!({ "count": 3, "lifetime": 9, "allow_partial": true, "labels": {} });
        assert_eq!(serde_json::to_value(new).unwrap(), expected);
    }
}
