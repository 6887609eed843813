//! What the server says of itself and of its caller.

use std::time::Duration;

use sandstorm_types::{Capabilities, Limits, duration};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::call::Call;
use crate::{Client, Result};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Version {
    pub version: String,
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Limits of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct ServerLimits {
    /// What a sandbox gets that asks for nothing.
    pub default: Limits,
    /// The most that may be asked for.
    pub ceiling: Limits,
    /// The longest lifetime of a sandbox.
    #[serde(deserialize_with = "duration::seconds::deserialize")]
    pub lifetime_max: Duration,
}

#[derive(Deserialize)]
struct Able {
    #[serde(default)]
    capabilities: Capabilities,
}

impl Client {
    /// What can be had from the server. One that does not tell can do nothing.
    pub async fn capabilities(&self) -> Result<Capabilities> {
        Ok(self.ask::<Able>(Call::get(self.v1(&["version"]))).await?.capabilities)
    }

    /// Whether the server takes work; otherwise an error says why not.
    pub async fn ready(&self) -> Result<()> {
        self.tell(Call::get(self.outside("readyz"))).await
    }

    /// Where the server can put sandboxes, with prices and health.
    pub async fn providers(&self) -> Result<Value> {
        self.ask(Call::get(self.v1(&["providers"]))).await
    }

    /// Where a sandbox such as this would go, and why.
    pub async fn explain_route(&self, wanted: &Value) -> Result<Value> {
        self.ask(Call::post(self.v1(&["route", "explain"])).json(wanted)).await
    }

    /// Default and largest limits.
    pub async fn server_limits(&self) -> Result<ServerLimits> {
        self.ask(Call::get(self.v1(&["limits"]))).await
    }

    pub async fn version(&self) -> Result<Version> {
        self.ask(Call::get(self.v1(&["version"]))).await
    }

    /// What the caller uses and may use, as the server tells it.
    pub async fn usage(&self) -> Result<Value> {
        self.ask(Call::get(self.v1(&["usage"]))).await
    }

    /// Which languages sandboxes have, as the server tells it.
    pub async fn languages(&self) -> Result<Value> {
        self.ask(Call::get(self.v1(&["languages"]))).await
    }

    /// Default and largest limits, as the server tells them.
    pub async fn limits(&self) -> Result<Value> {
        self.ask(Call::get(self.v1(&["limits"]))).await
    }

    /// Who the caller is: tenant, key, scopes.
    pub async fn me(&self) -> Result<Value> {
        self.ask(Call::get(self.v1(&["me"]))).await
    }
}
