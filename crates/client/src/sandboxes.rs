//! Sandboxes: made, listed, extended, paused, ended.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use sandstorm_types::{
    Enforcement, EnvMap, LanguageName, LimitsPatch, NetworkPolicy, OnEnd, Phase, Requirement, Routing,
    SandboxId, Space, Template, Timestamp, User, duration,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::address::with_query;
use crate::call::Call;
use crate::{Client, Page, Result};

/// A sandbox to make. What is not said is the server's default.
#[derive(Debug, Clone, Default, Serialize)]
pub struct NewSandbox {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
    #[serde(skip_serializing_if = "LimitsPatch::is_empty")]
    pub limits: LimitsPatch,
    #[serde(skip_serializing_if = "EnvMap::is_empty")]
    pub env: EnvMap,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkPolicy>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "duration::optional_seconds::serialize"
    )]
    pub lifetime: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_end: Option<OnEnd>,
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "duration::optional_seconds::serialize"
    )]
    pub idle_timeout: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    /// Where what it writes lies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space: Option<Space>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforcement: Option<Enforcement>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requirements: BTreeMap<LanguageName, Vec<Requirement>>,
    /// Where it should go, on a server with several places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<Box<Routing>>,
}

/// A sandbox as its owner sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sandbox {
    pub id: SandboxId,
    pub state: Phase,
    /// Why it failed.
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    pub created_at: Timestamp,
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    #[serde(default)]
    pub execs_running: u64,
    /// Whatever else the server tells, as it tells it.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Which sandboxes to list.
#[derive(Debug, Clone, Default)]
pub struct SandboxQuery {
    pub states: Vec<Phase>,
    pub labels: BTreeMap<String, String>,
    /// Also those that ended, while they are kept.
    pub include_ended: bool,
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}

/// One reading of a sandbox's counters.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sample {
    pub at: Timestamp,
    pub cpu_ms: u64,
    pub memory_bytes: u64,
    #[serde(default)]
    pub peak_memory_bytes: u64,
    #[serde(default)]
    pub processes: u32,
    #[serde(default)]
    pub disk_bytes: u64,
    #[serde(default)]
    pub inodes: u64,
}

#[derive(Serialize)]
struct Extension {
    #[serde(serialize_with = "duration::seconds::serialize")]
    seconds: Duration,
}

#[derive(Deserialize)]
struct Samples {
    samples: Vec<Sample>,
}

/// A sandbox that a creation gave.
#[derive(Debug, Clone)]
pub struct Created {
    pub sandbox: Sandbox,
    /// Whether an earlier request with the same key made it.
    pub replayed: bool,
}

impl Client {
    /// Makes a sandbox once for each `key`: whoever lost the answer asks again with the same key and the same wishes.
    pub async fn create_sandbox_once(&self, new: &NewSandbox, key: &str) -> Result<Created> {
        let call = Call::post(self.v1(&["sandboxes"])).json(new).once_as(key);
        let response = self.send(call).await?;
        let replayed = response.headers().contains_key("idempotency-replayed");
        let sandbox = self.read(response, Some(self.options().answer)).await?;
        Ok(Created { sandbox, replayed })
    }

    /// Ready when this returns.
    pub async fn create_sandbox(&self, new: &NewSandbox) -> Result<Sandbox> {
        self.ask(Call::post(self.v1(&["sandboxes"])).json(new).once()).await
    }

    pub async fn sandbox(&self, id: SandboxId) -> Result<Sandbox> {
        self.ask(Call::get(self.sandbox_url(id, &[]))).await
    }

    pub async fn sandboxes(&self, query: &SandboxQuery) -> Result<Page<Sandbox>> {
        let mut url = self.v1(&["sandboxes"]);
        for state in &query.states {
            url = with_query(url, &[("state", Some(word(state)))]);
        }
        for (key, value) in &query.labels {
            url = with_query(url, &[("label", Some(format!("{key}={value}")))]);
        }
        let url = with_query(
            url,
            &[
                ("include_ended", query.include_ended.then(|| "true".to_owned())),
                ("limit", query.limit.map(|limit| limit.to_string())),
                ("cursor", query.cursor.clone()),
            ],
        );
        self.ask(Call::get(url)).await
    }

    /// Idempotent for one that ended.
    pub async fn delete_sandbox(&self, id: SandboxId) -> Result<()> {
        self.tell(Call::new(Method::DELETE, self.sandbox_url(id, &[]))).await
    }

    /// Its lifetime ends `by` from now, whatever it was.
    pub async fn extend_sandbox(&self, id: SandboxId, by: Duration) -> Result<Sandbox> {
        let body = Extension { seconds: by };
        self.ask(Call::post(self.sandbox_url(id, &["extend"])).json(&body)).await
    }

    /// Pausing a paused sandbox is success.
    pub async fn pause_sandbox(&self, id: SandboxId) -> Result<Sandbox> {
        self.ask(Call::post(self.sandbox_url(id, &["pause"])).repeatable()).await
    }

    /// Resuming a ready sandbox is success.
    pub async fn resume_sandbox(&self, id: SandboxId) -> Result<Sandbox> {
        self.ask(Call::post(self.sandbox_url(id, &["resume"])).repeatable()).await
    }

    /// Takes effect at once; connections that the new policy forbids end.
    pub async fn set_network(&self, id: SandboxId, policy: &NetworkPolicy) -> Result<Sandbox> {
        self.ask(
            Call::new(Method::PUT, self.sandbox_url(id, &["network"]))
                .json(&serde_json::json!({ "network": policy })),
        )
        .await
    }

    /// A reading of now.
    pub async fn sandbox_usage(&self, id: SandboxId) -> Result<Sample> {
        self.ask(Call::get(self.sandbox_url(id, &["usage"]))).await
    }

    /// Readings between two moments, oldest first.
    pub async fn metrics(
        &self,
        id: SandboxId,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Result<Vec<Sample>> {
        let text = |time: Option<Timestamp>| time.map(|time| time.to_string());
        let url = with_query(self.sandbox_url(id, &["metrics"]), &[("from", text(from)), ("to", text(to))]);
        Ok(self.ask::<Samples>(Call::get(url)).await?.samples)
    }

    pub(crate) fn sandbox_url(&self, id: SandboxId, rest: &[&str]) -> reqwest::Url {
        let id = id.to_string();
        let mut parts = vec!["sandboxes", &id];
        parts.extend(rest);
        self.v1(&parts)
    }
}

/// A value as the wire spells it.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        other => unreachable!("only words are asked for, not {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_not_sent() {
        assert_eq!(serde_json::to_value(NewSandbox::default()).unwrap(), serde_json::json!({}));
        let new = NewSandbox {
            lifetime: Some(Duration::from_secs(90)),
            on_end: Some(OnEnd::Delete),
            network: Some(NetworkPolicy::Open),
            labels: BTreeMap::from([("team".to_owned(), "a".to_owned())]),
            ..NewSandbox::default()
        };
        let expected = serde_json::json!({
            "lifetime": 90, "on_end": "delete", "network": "open", "labels": { "team": "a" },
        });
        assert_eq!(serde_json::to_value(new).unwrap(), expected);
    }

    #[test]
    fn what_a_newer_server_tells_is_kept() {
        let told = serde_json::json!({
            "id": "sbx_aaaaaaaaaaaaaaaaaaaaaaaaaa", "state": "ready", "created_at": "2026-11-15T12:03:43.123Z",
            "of_the_future": { "deep": [1] },
        });
        let sandbox: Sandbox = serde_json::from_value(told).unwrap();
        assert_eq!(sandbox.state, Phase::Ready);
        assert_eq!(serde_json::to_value(&sandbox).unwrap()["of_the_future"]["deep"][0], 1);
    }
}
