//! Saved sandboxes: made, listed, removed. One is restored by making a sandbox with it as the template.

use std::time::Duration;

use http::Method;
use sandstorm_types::{SandboxId, SnapshotId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::address::with_query;
use crate::call::Call;
use crate::{Client, NotCarried, Page, Result};

/// How long saving may take: the server gives up before.
const SAVING: Duration = Duration::from_secs(660);

/// A snapshot to make.
#[derive(Debug, Clone, Default, Serialize)]
pub struct NewSnapshot {
    /// To find it by. Another snapshot of this name loses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A saved sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Snapshot {
    pub id: SnapshotId,
    #[serde(default)]
    pub name: Option<String>,
    /// The sandbox that was saved; it may be gone.
    pub sandbox: SandboxId,
    /// Who keeps it.
    #[serde(default)]
    pub provider: String,
    /// `None` where its keeper does not tell.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    pub created_at: Timestamp,
    /// What could not be saved; told once, when it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<Vec<NotCarried>>,
    /// Whatever else the server tells, as it tells it.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Which snapshots to list.
#[derive(Debug, Clone, Default)]
pub struct SnapshotQuery {
    pub sandbox: Option<SandboxId>,
    pub name: Option<String>,
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}

impl Client {
    /// Saves the files of a ready sandbox, which goes on.
    pub async fn create_snapshot(&self, sandbox: SandboxId, new: &NewSnapshot) -> Result<Snapshot> {
        let call = Call::post(self.sandbox_url(sandbox, &["snapshots"])).json(new).once();
        self.ask(call.within(SAVING)).await
    }

    /// The same, made once for each `key`.
    pub async fn create_snapshot_once(
        &self,
        sandbox: SandboxId,
        new: &NewSnapshot,
        key: &str,
    ) -> Result<Snapshot> {
        let call = Call::post(self.sandbox_url(sandbox, &["snapshots"])).json(new).once_as(key);
        self.ask(call.within(SAVING)).await
    }

    pub async fn snapshot(&self, id: SnapshotId) -> Result<Snapshot> {
        self.ask(Call::get(self.v1(&["snapshots", &id.to_string()]))).await
    }

    /// Newest first.
    pub async fn snapshots(&self, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        let url = with_query(
            self.v1(&["snapshots"]),
            &[
                ("sandbox", query.sandbox.map(|id| id.to_string())),
                ("name", query.name.clone()),
                ("limit", query.limit.map(|limit| limit.to_string())),
                ("cursor", query.cursor.clone()),
            ],
        );
        self.ask(Call::get(url)).await
    }

    /// `NotFound` for one that is gone. Sandboxes that were made from it live on.
    pub async fn delete_snapshot(&self, id: SnapshotId) -> Result<()> {
        self.tell(Call::new(Method::DELETE, self.v1(&["snapshots", &id.to_string()]))).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_not_sent() {
        assert_eq!(serde_json::to_value(NewSnapshot::default()).unwrap(), serde_json::json!({}));
        let named = NewSnapshot { name: Some("golden".to_owned()) };
        assert_eq!(serde_json::to_value(named).unwrap(), serde_json::json!({ "name": "golden" }));
    }
}
