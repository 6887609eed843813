//! What the server says of itself and of its caller.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::transport::Call;
use crate::{Client, Result};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Version {
    pub version: String,
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Client {
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
