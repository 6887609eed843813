//! What is on file is recorded soon, many in one transaction, and nobody who was answered had to wait for it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandstorm_types::TenantId;

use super::Inner;
use super::patience::Patience;

/// How long a record may wait for company. Whoever wants to see it makes it sooner.
const TOGETHER: Duration = Duration::from_millis(20);

/// Whose records wait.
#[derive(Debug, Default)]
pub(super) struct Settling(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    tenants: BTreeSet<TenantId>,
    /// A task is about to record them.
    cared_for: bool,
}

impl Settling {
    /// A record of a tenant waits. [`Inner::settle_soon`] has to follow.
    pub(super) fn add(&self, tenant: TenantId) {
        self.waiting().tenants.insert(tenant);
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody has to care for what waits; who asks does.
    fn care(&self) -> bool {
        let mut waiting = self.waiting();
        let is_needed = !waiting.tenants.is_empty() && !waiting.cared_for;
        waiting.cared_for |= is_needed;
        is_needed
    }

    fn take(&self) -> BTreeSet<TenantId> {
        std::mem::take(&mut *self.waiting()).tenants
    }
}

impl Inner {
    /// Has what is on file recorded after a while, and then wakes who listens.
    pub(super) fn settle_soon(self: &Arc<Self>) {
        if !self.settling.care() {
            return;
        }
        let inner = Arc::clone(self);
        self.tasks.finish("record what is on file", async move {
            tokio::time::sleep(TOGETHER).await;
            // What comes from here on is cared for by the next one.
            let tenants = inner.settling.take();
            let mut patience = Patience::new("what is on file", "records");
            while let Err(error) = inner.store.settle().await {
                if patience.wait(&inner, error).await.is_err() {
                    break;
                }
            }
            tenants.into_iter().for_each(|tenant| inner.events.wake(tenant));
        });
    }
}
