//! What happens on the server, as a subscription.

use sandstorm_types::{SandboxId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::event_stream::EventStream;
use crate::{Client, Result};

/// Something that happened.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Activity {
    pub seq: u64,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxId>,
    /// `sandbox:ready`, `execute:start`, `network:denied` and so on.
    #[serde(rename = "type")]
    pub name: String,
    /// What else belongs to it: `reason`, `exec`, `run`, `status`, `destination`.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Activity {
    /// Whether it is the last that can happen to its sandbox.
    pub fn is_last(&self) -> bool {
        matches!(self.name.as_str(), "sandbox:terminated" | "sandbox:failed")
    }
}

/// What happens, as it happens; a broken connection is made anew, and nothing is missed.
#[derive(Debug)]
pub struct Activities {
    events: EventStream<Activity>,
    /// Whether it is about one sandbox, and so can end.
    of_one: bool,
}

impl Activities {
    /// From now on a broken connection is an error, for callers who have to know of it.
    pub fn until_it_breaks(mut self) -> Self {
        self.events.stop_resuming();
        self
    }

    /// The next one. `None` after the last of one sandbox.
    pub async fn next(&mut self) -> Option<Result<Activity>> {
        let event = self.events.next().await;
        if matches!(&event, Some(Ok(activity)) if self.of_one && activity.is_last()) {
            self.events.finish();
        }
        event
    }
}

impl Client {
    /// What happened to a sandbox after number `after` and happens from now on; with `None` only the latter.
    pub async fn sandbox_events(&self, id: SandboxId, after: Option<u64>) -> Result<Activities> {
        let url = self.sandbox_url(id, &["events"]);
        Ok(Activities { events: EventStream::open(self, url, after).await?, of_one: true })
    }

    /// The same for everything of the tenant.
    pub async fn events(&self, after: Option<u64>) -> Result<Activities> {
        Ok(Activities { events: EventStream::open(self, self.v1(&["events"]), after).await?, of_one: false })
    }
}
