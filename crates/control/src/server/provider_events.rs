//! What the provider tells of its own accord: sandboxes that ended, connections that were refused.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use sandstorm_provider::{ListFilter, OpContext, ProviderEvent, Result, Sandbox};
use sandstorm_store::{Audit, Decision};
use sandstorm_types::{SandboxId, State, TenantId, Timestamp};

use super::events::body;
use super::{EventBodyView, Inner};

/// Refused connections of one sandbox that are told in one second.
const DENIALS: u32 = 5;
/// Longest text of a guest's that is kept.
const TEXT: usize = 256;

impl Inner {
    /// Hears the provider out. `events` was opened before the provider was asked for its list, so that nothing is
    /// missed between the two.
    pub(super) fn hear_provider(self: &Arc<Self>, mut events: BoxStream<'static, ProviderEvent>) {
        let inner = Arc::clone(self);
        self.tasks.start("provider's events", async move {
            while let Some(event) = events.next().await {
                match event {
                    ProviderEvent::Ended { sandbox, reason } => inner.sandbox_ended(sandbox, reason),
                    ProviderEvent::Denied { sandbox, destination, reason } => {
                        inner.connection_denied(sandbox, &destination, &reason).await;
                    }
                    ProviderEvent::Lagged => {
                        if let Err(error) = inner.look_for_lost().await {
                            tracing::warn!(%error, "the provider's sandboxes could not be listed");
                        }
                    }
                }
            }
        });
    }

    fn sandbox_ended(self: &Arc<Self>, id: SandboxId, reason: String) {
        let Some(living) = self.sandboxes.of_any_tenant(id) else { return };
        tracing::warn!(sandbox = %id, reason, "a sandbox ended by itself");
        let inner = Arc::clone(self);
        self.tasks.finish("a sandbox ended", async move {
            inner.fail_until_stored(living.tenant, id, &reason).await;
        });
    }

    /// Fails a sandbox now if the store can be written, else as soon as it can be.
    pub(super) async fn fail_surely(self: &Arc<Self>, tenant: TenantId, id: SandboxId, reason: String) {
        if let Err(error) = self.fail_sandbox(tenant, id, &reason).await {
            tracing::warn!(sandbox = %id, %error, "the failure of a sandbox could not be stored yet");
            let inner = Arc::clone(self);
            let work = async move { inner.fail_until_stored(tenant, id, &reason).await };
            self.tasks.finish("a sandbox failed", work);
        }
    }

    /// A store that is away for a moment must not make a dead sandbox look alive.
    async fn fail_until_stored(self: &Arc<Self>, tenant: TenantId, id: SandboxId, reason: &str) {
        let mut wait = Duration::from_millis(100);
        while let Err(error) = self.fail_sandbox(tenant, id, reason).await {
            if self.tasks.stopping().is_cancelled() {
                return;
            }
            tracing::warn!(sandbox = %id, %error, "the end of a sandbox could not be stored yet");
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_secs(5));
        }
    }

    async fn connection_denied(&self, id: SandboxId, destination: &str, reason: &str) {
        metrics::counter!("sandstorm_egress_denied_total").increment(1);
        let Some(living) = self.sandboxes.of_any_tenant(id) else { return };
        if !living.tells_denial(DENIALS) {
            return;
        }
        let (destination, reason) = (short(destination), short(reason));
        let event = body(&EventBodyView::Denied { destination: destination.clone(), reason: reason.clone() });
        if let Err(error) = self.store.append_event(living.tenant, Some(id), Timestamp::now(), &event).await {
            tracing::warn!(sandbox = %id, %error, "a refused connection could not be told");
        }
        self.events.wake(living.tenant);
        let audit = Audit {
            tenant: living.tenant,
            principal: "<sandbox>".to_owned(),
            action: "network.connect".to_owned(),
            object: id.to_string(),
            decision: Decision::Denied,
            request_id: String::new(),
            detail: Some(serde_json::json!({ "destination": destination, "reason": reason })),
        };
        if let Err(error) = self.store.record_audit(&audit).await {
            tracing::warn!(sandbox = %id, %error, "a refused connection could not be recorded");
        }
    }

    /// After missed events: fails what the provider no longer has.
    async fn look_for_lost(self: &Arc<Self>) -> Result<()> {
        // Read before the provider is asked: what is made meanwhile is in neither.
        let known = self.sandboxes.list();
        let (present, silent) = self.present_or_silent().await?;
        let present: HashSet<SandboxId> = present.into_iter().map(|sandbox| sandbox.id).collect();
        for living in known {
            let row = living.row();
            if !present.contains(&living.id)
                && !silent.contains(&row.provider)
                && row.state != State::Creating
                && !row.state.is_final()
            {
                self.sandbox_ended(living.id, "the sandbox is gone".to_owned());
            }
        }
        Ok(())
    }

    /// Everything that the provider holds.
    pub(super) async fn present(&self) -> Result<Vec<Sandbox>> {
        let cx = OpContext::new(TenantId::LOCAL);
        let list: Vec<Result<Sandbox>> = self.provider.list(&cx, ListFilter::default()).collect().await;
        list.into_iter().collect()
    }
}

fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(TEXT).collect()
}
