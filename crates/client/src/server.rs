//! What the server says of itself and of its caller.

use std::time::Duration;

use reqwest::Url;
use sandstorm_types::{Capabilities, Limits, duration};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::address::with_query;
use crate::call::Call;
use crate::{Client, Download, Error, Result};

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

/// What to sum up, as the server reads it.
#[derive(Debug, Clone, Default)]
pub struct UsageQuery {
    pub from: Option<String>,
    pub to: Option<String>,
    pub group_by: Vec<String>,
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}

/// Bytes of a table at most: a thousand lines of labels that are as long as they may be.
const LARGEST_TABLE: usize = 8 << 20;

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

    /// The same with what it cost in a time, in groups.
    pub async fn usage_by(&self, query: &UsageQuery) -> Result<Value> {
        self.ask(Call::get(self.usage_address(query, None))).await
    }

    /// What it cost, as comma-separated values.
    pub async fn usage_table(&self, query: &UsageQuery) -> Result<String> {
        let mut body =
            Download::new(self, self.send(Call::get(self.usage_address(query, Some("csv")))).await?);
        let mut table = Vec::new();
        while let Some(piece) = body.next().await? {
            table.extend_from_slice(&piece);
            if table.len() > LARGEST_TABLE {
                return Err(Error::Broken { server: self.server(), source: None });
            }
        }
        Ok(String::from_utf8_lossy(&table).into_owned())
    }

    fn usage_address(&self, query: &UsageQuery, format: Option<&str>) -> Url {
        with_query(
            self.v1(&["usage"]),
            &[
                ("from", query.from.clone()),
                ("to", query.to.clone()),
                ("group_by", (!query.group_by.is_empty()).then(|| query.group_by.join(","))),
                ("limit", query.limit.map(|limit| limit.to_string())),
                ("cursor", query.cursor.clone()),
                ("format", format.map(str::to_owned)),
            ],
        )
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
