//! What is left at members that nobody asked for any more: removed at once where that is known, found by comparing otherwise.

use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use sandstorm_provider::{ListFilter, OpContext};
use sandstorm_types::{SandboxId, TenantId};

use crate::fleet::Fleet;
use crate::homes::Place;

/// How often something that may be left at a member is tried to be removed, and how long in between.
const SWEEPS: [Duration; 8] = [
    Duration::ZERO,
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(120),
];
/// How long one removal and one list may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A sandbox at a member that the fleet does not know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    pub provider: String,
    pub sandbox: SandboxId,
}

impl Fleet {
    /// Removes what may be left of a sandbox at a member, however long that takes.
    pub(crate) fn sweep(&self, tenant: TenantId, id: SandboxId, place: Place) {
        let provider = self.members[place].provider.clone();
        let (name, homes) = (self.members[place].name().to_owned(), self.homes.clone());
        self.tasks.start("sweep", async move {
            for pause in SWEEPS {
                tokio::time::sleep(pause).await;
                let cx = OpContext::new(tenant).with_timeout(PATIENCE);
                match provider.destroy(&cx, &id).await {
                    Ok(()) => return homes.clean(id, place),
                    Err(error) => tracing::debug!(sandbox = %id, provider = name, %error, "not removed yet"),
                }
            }
            tracing::warn!(sandbox = %id, provider = name, "something may be left of a sandbox");
            // From here on it is an orphan, which is found by comparing.
            homes.clean(id, place);
        });
    }

    /// Sandboxes with our mark at members elsewhere that this fleet has not made or met. Whoever knows more may know them.
    pub async fn orphans(&self) -> Vec<Orphan> {
        let mut found = Vec::new();
        for (place, member) in self.members.iter().enumerate() {
            if member.provider.capabilities().host_trees {
                continue;
            }
            let cx = OpContext::new(TenantId::LOCAL).with_timeout(PATIENCE);
            let mut listed = member.provider.list(&cx, ListFilter::default());
            while let Some(item) = listed.next().await {
                let sandbox = match item {
                    Ok(sandbox) => sandbox,
                    Err(error) => {
                        tracing::debug!(provider = member.name(), %error, "its sandboxes are not listed");
                        break;
                    }
                };
                let age = SystemTime::now().duration_since(sandbox.created_at).unwrap_or_default();
                if age >= self.settings.orphan_age && !self.homes.all_of(&sandbox.id).contains(&place) {
                    found.push(Orphan { provider: member.name().to_owned(), sandbox: sandbox.id });
                }
            }
        }
        found
    }

    /// Ends one where it is.
    pub fn end_orphan(&self, orphan: &Orphan) {
        let Some(place) = self.place_named(&orphan.provider) else { return };
        tracing::warn!(sandbox = %orphan.sandbox, provider = orphan.provider, "an orphan is ended");
        metrics::counter!("sandstorm_route_orphans_total", "provider" => orphan.provider.clone())
            .increment(1);
        self.homes.trying(orphan.sandbox, place);
        self.sweep(TenantId::LOCAL, orphan.sandbox, place);
    }
}
