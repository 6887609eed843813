//! What happens by itself: lifetimes end, idle sandboxes rest, records are written in batches and forgotten in time.
//!
//! One heap holds the next moment of every sandbox; nothing asks a sandbox again and again. An entry may be out of date
//! when its moment comes: then the sandbox is asked what is due, and a new entry is made.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandstorm_provider::{OpContext, Result};
use sandstorm_store::{Audit, Decision, Retention, SandboxRow};
use sandstorm_types::{OnEnd, SandboxId, Timestamp, Transition};
use tokio::sync::{Notify, Semaphore};

use super::Inner;
use super::living::{Due, Living, Register};
use super::steady;

/// Moments that are kept without asking whose they are.
const MANY: usize = 4096;
/// The longest sleep.
const NAP: Duration = Duration::from_secs(10);
/// Sandboxes that are paused or ended at the same time by clocks.
const AT_ONCE: usize = 32;
/// After a failure.
const AGAIN: Duration = Duration::from_secs(5);
/// Between two writings of what was used: as much of it is lost when the server dies.
const WRITE: Duration = Duration::from_secs(1);
/// Writings between two signs of life.
const BEAT: u32 = 10;
const SWEEP: Duration = Duration::from_secs(600);
const FIRST_SWEEP: Duration = Duration::from_secs(30);
/// How long output is kept after the end.
const OUTPUT: Duration = Duration::from_secs(3600);
const SAMPLES: Duration = Duration::from_secs(86_400);

/// The moments that are to come.
#[derive(Debug, Default)]
pub(super) struct Clock {
    heap: Mutex<BinaryHeap<Reverse<(Timestamp, SandboxId)>>>,
    changed: Notify,
}

impl Clock {
    fn heap(&self) -> MutexGuard<'_, BinaryHeap<Reverse<(Timestamp, SandboxId)>>> {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that what is due for a sandbox is not missed. Cheap when that has not changed.
    pub(super) fn arm(&self, living: &Living, paused_for: Duration) {
        let Some((at, _)) = living.due(paused_for) else { return };
        if living.armed.fetch_min(at.millis(), Ordering::AcqRel) <= at.millis() {
            return;
        }
        self.heap().push(Reverse((at, living.id)));
        self.changed.notify_one();
    }

    /// Lets go of the moments of sandboxes that are gone, when they have become many: whoever makes and ends sandboxes
    /// that might have lived for a day would otherwise leave a day's worth.
    fn prune(&self, sandboxes: &Register) {
        let mut heap = self.heap();
        if heap.len() > MANY + 4 * sandboxes.count() {
            heap.retain(|Reverse((_, id))| sandboxes.of_any_tenant(*id).is_some());
        }
    }

    /// The sandbox whose moment has come, or how long to wait for the next.
    fn next(&self, now: Timestamp) -> Result<SandboxId, Duration> {
        let mut heap = self.heap();
        match heap.peek() {
            Some(Reverse((at, id))) if *at <= now => {
                let id = *id;
                heap.pop();
                Ok(id)
            }
            Some(Reverse((at, _))) => Err(at.since(now).min(NAP)),
            None => Err(NAP),
        }
    }
}

impl Inner {
    /// Starts all clocks.
    pub(super) fn start_clocks(self: &Arc<Self>) {
        let inner = Arc::clone(self);
        self.tasks.start("lifetimes", async move { inner.keep_time().await });
        let inner = Arc::clone(self);
        self.tasks.start("samples", async move { inner.take_samples().await });
        let inner = Arc::clone(self);
        self.tasks.start("memory", async move { inner.share_memory().await });
        let inner = Arc::clone(self);
        self.tasks.start("budgets", async move { inner.watch_spending().await });
        if let Some(space) = self.space.clone() {
            self.tasks.start("space", async move {
                loop {
                    let looked = Arc::clone(&space);
                    let looked = tokio::task::spawn_blocking(move || looked.look()).await;
                    if let Ok(Err(error)) = looked {
                        tracing::debug!(%error, "the space on the disk is not known");
                    }
                    tokio::time::sleep(WRITE).await;
                }
            });
        }
        let inner = Arc::clone(self);
        self.tasks.start("batches", async move {
            for round in 0_u32.. {
                tokio::time::sleep(WRITE).await;
                inner.write_batches().await;
                inner.keep_wall_clock().await;
                if round.is_multiple_of(BEAT)
                    && let Err(error) = inner.store.beat(Timestamp::now()).await
                {
                    tracing::warn!(%error, "the store could not be told that this server lives");
                }
            }
        });
        let inner = Arc::clone(self);
        self.tasks.start("anchor", async move {
            loop {
                tokio::time::sleep(inner.settings.anchor_every).await;
                if let Err(error) = inner.store.anchor_recent().await {
                    tracing::warn!(%error, "the latest records of the audit could not be anchored");
                }
            }
        });
        let inner = Arc::clone(self);
        self.tasks.start("retention", async move {
            tokio::time::sleep(FIRST_SWEEP).await;
            loop {
                inner.sweep().await;
                inner.settle_snapshots().await;
                inner.charge_snapshots().await;
                tokio::time::sleep(SWEEP).await;
            }
        });
    }

    async fn keep_time(self: Arc<Self>) {
        let room = Arc::new(Semaphore::new(AT_ONCE));
        loop {
            let id = match self.clock.next(steady::now()) {
                Ok(id) => id,
                Err(wait) => {
                    self.clock.prune(&self.sandboxes);
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        () = self.clock.changed.notified() => {}
                    }
                    continue;
                }
            };
            let Some(living) = self.sandboxes.of_any_tenant(id) else { continue };
            living.armed.store(i64::MAX, Ordering::Release);
            match living.due(self.settings.paused_for) {
                Some((at, due)) if at <= steady::now() => {
                    let Ok(turn) = Arc::clone(&room).acquire_owned().await else { return };
                    let inner = Arc::clone(&self);
                    self.tasks.finish("end of a lifetime", async move {
                        inner.act(&living, due).await;
                        drop(turn);
                    });
                }
                _ => self.clock.arm(&living, self.settings.paused_for),
            }
        }
    }

    /// How a sandbox is paused at the end of its lifetime; `None`: it is ended.
    pub(super) fn pause_at_end(&self, row: &SandboxRow) -> Option<Transition> {
        let can = self.can(row);
        match row.spec.lifetime.then {
            OnEnd::Pause => can.pause.then_some(Transition::Pause),
            OnEnd::PauseFiles => can.pause_files.then_some(Transition::PauseFiles),
            OnEnd::Delete => None,
        }
    }

    async fn act(self: &Arc<Self>, living: &Arc<Living>, due: Due) {
        let (tenant, id) = (living.tenant, living.id);
        if self.is_lapsed() {
            // It may be another server's to end by now.
            living.try_again_after(AGAIN);
            self.clock.arm(living, self.settings.paused_for);
            return;
        }
        let audit = |action: &str| Audit {
            tenant,
            principal: "<clock>".to_owned(),
            action: action.to_owned(),
            object: id.to_string(),
            decision: Decision::Allowed,
            request_id: String::new(),
            detail: None,
        };
        let pause = self.pause_at_end(&living.row());
        let done = match (due, pause) {
            (Due::LifeOver, Some(pause)) => {
                let cx = OpContext::new(tenant);
                self.transition(&cx, id, pause, Some(&audit("sandbox.pause"))).await.map(drop)
            }
            (Due::LifeOver | Due::PauseOver, _) => {
                self.end_sandbox(tenant, id, Some(&audit("sandbox.delete"))).await
            }
            (Due::EndAgain, _) => self.end_sandbox(tenant, id, None).await,
        };
        if let Err(error) = done {
            tracing::warn!(sandbox = %id, ?due, %error, "what was due could not be done and will be tried again");
            living.try_again_after(AGAIN);
        }
        self.clock.arm(living, self.settings.paused_for);
    }

    /// Writes what is collected in memory between two writings.
    pub(super) async fn write_batches(&self) {
        let used = self.known_keys.take_used();
        if !used.is_empty()
            && let Err(error) = self.store.touch_keys(&used).await
        {
            tracing::warn!(%error, "uses of keys could not be written");
        }
        let used_since = |living: &Living| {
            let used = living.last_used().millis();
            living.written_use.swap(used, Ordering::AcqRel) < used
        };
        let touched = self.sandboxes.which(used_since);
        let touched: Vec<_> =
            touched.iter().map(|living| (living.id, steady::to_wall(living.last_used()))).collect();
        for batch in touched.chunks(500) {
            if let Err(error) = self.store.touch_sandboxes(batch).await {
                tracing::warn!(%error, "uses of sandboxes could not be written");
            }
        }
        self.write_usage().await;
        self.ended_cells.forget_older_than(OUTPUT);
    }

    async fn sweep(&self) {
        let now = Timestamp::now();
        let kept = self.settings.retention;
        let swept = self.store.sweep(Retention {
            runs_before: Some(now.before(kept.runs)),
            events_before: Some(now.before(kept.events)),
            audit_before: Some(now.before(kept.audit)),
            // A sandbox is as much of a record as a run is.
            ended_sandboxes_before: Some(now.before(kept.runs)),
            idempotency_before: Some(now.before(Duration::from_secs(86_400))),
            samples_before: Some(now.before(SAMPLES)),
            ledger_before: Some(now.before(kept.ledger)),
        });
        match swept.await {
            Ok(swept) => tracing::debug!(?swept, "old records were forgotten"),
            Err(error) => tracing::warn!(%error, "old records could not be forgotten"),
        }
    }
}
