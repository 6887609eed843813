//! Several servers on one database: this one's lease on its records, and what those left that are gone.
//!
//! A server that is gone has its records ended, not carried on: its sandboxes live in its launcher, or where only its own
//! secret finds them. Should it come back, it finds them failed and ends what is still there.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use rustix::time::{ClockId, clock_gettime};
use sandstorm_provider::{Error, OpContext, Result};
use sandstorm_store::{
    ContextChanges, ContextRow, Estate, ExecRow, Lease, OpenEntry, RunEnd, SandboxChanges, SandboxRow,
    StepOutcome, StoreError,
};
use sandstorm_types::{ErrorKind, SandboxId, State, Step, TenantId, Timestamp};
use tokio_util::sync::CancellationToken;

use super::failure::{elsewhere, stored};
use super::recovery::as_estimated;
use super::{Inner, run_record};

/// Why things end that a server had which is gone.
const GONE: &str = "the server that held it is gone";
/// Signs of life, and looks at others, in the time that a lease lasts.
const BEATS: u32 = 4;
/// What is settled at the same time.
const AT_ONCE: usize = 16;
/// How often a lease is looked at that this server waits for.
const LOOK: Duration = Duration::from_millis(200);
/// How often a step is tried again that came too late.
const TRIES: usize = 5;

/// What this server knows of leases.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// When its own was renewed last, since the machine started. `None`: it has none, and needs none.
    renewed: Mutex<Option<Duration>>,
    /// Servers that are being settled.
    settling: Mutex<HashSet<String>>,
    superseded: CancellationToken,
}

/// What was seen of leases, and since when it has not changed.
#[derive(Debug, Default)]
struct Seen {
    by_node: HashMap<String, (String, i64, Instant)>,
    looked: Option<Instant>,
}

impl Leases {
    fn renewed(&self) -> MutexGuard<'_, Option<Duration>> {
        self.renewed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settling(&self) -> MutexGuard<'_, HashSet<String>> {
        self.settling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another server may have taken over, for all that this one knows.
    fn is_lapsed(&self, span: Duration, now: Duration) -> bool {
        let renewed = *self.renewed();
        // Earlier than anybody else would think so.
        self.superseded.is_cancelled() || renewed.is_some_and(|at| now.saturating_sub(at) > span - span / 8)
    }

    pub(super) fn is_superseded(&self) -> bool {
        self.superseded.is_cancelled()
    }

    pub(super) async fn superseded(&self) {
        self.superseded.cancelled().await;
    }
}

/// Time since the machine started. It goes on while the machine is suspended, as it does for other servers; `Instant`
/// does not, and a server that woke up would believe in its lease until it hears that another one has it.
fn since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

impl Seen {
    /// Whether a lease is over: it did not change for as long as it lasts, and was looked at all the time.
    fn is_over(&mut self, lease: &Lease, now: Instant) -> bool {
        let seen = self.by_node.get(&lease.node);
        let since = match seen {
            Some((instance, beats, since)) if *instance == lease.instance && *beats == lease.beats => *since,
            _ => {
                let found = (lease.instance.clone(), lease.beats, now);
                self.by_node.insert(lease.node.clone(), found);
                now
            }
        };
        now.duration_since(since) > lease.span + lease.span / 8
    }

    /// Before leases are judged. Who did not look for a while, or could not, has not seen that nothing changed: maybe nobody
    /// could write.
    fn look(&mut self, now: Instant, every: Duration) {
        if self.looked.is_some_and(|last| now.duration_since(last) > every * 2) {
            self.by_node.clear();
        }
        self.looked = Some(now);
    }
}

impl Inner {
    pub(super) fn is_lapsed(&self) -> bool {
        self.leases.is_lapsed(self.store.lease_span(), since_boot())
    }

    /// Before anything is touched where several servers share a database: takes the lease on this server's records. Its own
    /// from before is taken at once; for one that somebody may still have it waits until that is over.
    pub(super) async fn take_lease(&self) -> Result<()> {
        if !self.store.is_shared() {
            return Ok(());
        }
        let (mut seen, mut first) = (Seen::default(), None::<Lease>);
        loop {
            let (began, up) = (Instant::now(), since_boot());
            let found = stored(self.store.own_lease().await)?;
            let free = match &found {
                None => true,
                Some(lease) if self.store.is_of_earlier_self(lease) => true,
                Some(lease) => {
                    let earlier = first.get_or_insert_with(|| {
                        tracing::warn!(
                            seconds = lease.span.as_secs(),
                            "waiting: somebody may hold this server's records"
                        );
                        lease.clone()
                    });
                    let lives = (&earlier.instance, earlier.beats) != (&lease.instance, lease.beats);
                    if lives && lease.taker.is_none() {
                        let message = "another server with the identity of this state directory is at work on this database: \
                            its state directory was copied, and each server needs one of its own";
                        return Err(Error::new(ErrorKind::Conflict, message).with("server", &lease.node));
                    }
                    seen.look(began, lease.span);
                    seen.is_over(lease, began)
                }
            };
            if free && stored(self.store.claim_lease(found.as_ref()).await)? {
                *self.leases.renewed() = Some(up);
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Renews the lease, and settles what servers left whose lease is over.
    pub(super) async fn keep_lease(self: Arc<Self>) {
        if self.leases.renewed().is_none() {
            return;
        }
        let every = self.store.lease_span() / BEATS;
        let mut seen = Seen::default();
        loop {
            tokio::time::sleep(every).await;
            let began = since_boot();
            match self.store.renew_lease().await {
                Ok(()) => *self.leases.renewed() = Some(began),
                Err(StoreError::Superseded) => {
                    tracing::error!("another server has taken over the records of this one");
                    self.leases.superseded.cancel();
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "the lease on this server's records could not be renewed");
                    continue;
                }
            }
            match self.store.other_leases().await {
                Ok(leases) => self.look_at_others(&leases, &mut seen, every).await,
                Err(error) => tracing::warn!(%error, "the leases of other servers could not be read"),
            }
        }
    }

    async fn look_at_others(self: &Arc<Self>, leases: &[Lease], seen: &mut Seen, every: Duration) {
        let now = Instant::now();
        seen.look(now, every);
        for lease in leases {
            let is_ours = self.store.has_taken(lease);
            if !is_ours {
                if !seen.is_over(lease, now) {
                    continue;
                }
                match self.store.take_over(lease).await {
                    Ok(true) => {
                        tracing::warn!(server = lease.node, "a server is gone: what it left is ended")
                    }
                    Ok(false) => continue,
                    Err(error) => {
                        tracing::warn!(server = lease.node, %error, "a lease could not be taken over");
                        continue;
                    }
                }
            }
            if self.leases.settling().insert(lease.node.clone()) {
                let (inner, node) = (Arc::clone(self), lease.node.clone());
                self.tasks.start("settle what a server left", async move {
                    if let Err(error) = inner.settle_gone(&node).await {
                        tracing::error!(server = node, %error, "what a server left will be settled later");
                    }
                    inner.leases.settling().remove(&node);
                });
            }
        }
    }

    /// Ends all records of a server that is gone, then lets go of its lease.
    async fn settle_gone(self: &Arc<Self>, node: &str) -> Result<()> {
        let left = stored(self.store.left_by(node).await)?;
        let count = left.sandboxes.len();
        let lost: HashSet<SandboxId> = left.sandboxes.iter().map(|row| row.id).collect();
        self.settle_left(left).await?;
        let again = stored(self.store.left_by(node).await)?;
        if !(again.sandboxes.is_empty()
            && again.execs.is_empty()
            && again.contexts.is_empty()
            && again.runs.is_empty())
        {
            return Err(Error::new(ErrorKind::Provider, "something of it could not be ended"));
        }
        stored(self.store.abandon_snapshots(node).await)?;
        self.end_what_is_here(&lost).await;
        stored(self.store.end_lease(node).await)?;
        tracing::warn!(server = node, sandboxes = count, "what a server left was ended");
        Ok(())
    }

    async fn settle_left(self: &Arc<Self>, left: Estate) -> Result<()> {
        let Estate { sandboxes, execs, contexts, runs, entries } = left;
        let open: HashMap<String, OpenEntry> =
            entries.into_iter().map(|open| (open.entry.object.clone(), open)).collect();
        let mut execs_of: HashMap<SandboxId, Vec<ExecRow>> = HashMap::new();
        for row in execs {
            execs_of.entry(row.sandbox).or_default().push(row);
        }
        stream::iter(contexts).for_each_concurrent(AT_ONCE, |row| self.end_left_context(row)).await;
        let (mut work, mut rest) = (Vec::new(), Vec::new());
        for row in sandboxes {
            let execs = execs_of.remove(&row.id).unwrap_or_default();
            work.push((row, execs));
        }
        for (sandbox, execs) in execs_of {
            let Some(tenant) = execs.first().map(|row| row.tenant) else { continue };
            rest.extend(stored(self.store.sandbox(tenant, sandbox).await)?.map(|row| (row, execs)));
        }
        stream::iter(rest)
            .for_each_concurrent(AT_ONCE, |(row, execs)| async move {
                self.end_execs(&row, execs, Some(GONE)).await;
            })
            .await;
        let open = &open;
        stream::iter(work)
            .for_each_concurrent(AT_ONCE, |(row, execs)| async move {
                let (tenant, id) = (row.tenant, row.id);
                self.end_execs(&row, execs, Some(GONE)).await;
                if let Err(error) = self.fail_left(row, open.get(&id.to_string())).await {
                    tracing::error!(sandbox = %id, %error, "a sandbox of a server that is gone could not be ended");
                }
                self.events.wake(tenant);
            })
            .await;
        stream::iter(runs)
            .for_each_concurrent(AT_ONCE, |row| async move {
                let problem = serde_json::to_value(run_record::interrupted()).ok();
                let bill = open.get(&row.id.to_string()).map(|open| as_estimated(&open.entry));
                let end = RunEnd {
                    status: None,
                    result: None,
                    problem,
                    at: Timestamp::now(),
                    bill,
                    attempts: vec![],
                };
                self.end_run(row.tenant, row.id, &end, None).await;
            })
            .await;
        Ok(())
    }

    async fn end_left_context(&self, row: ContextRow) {
        let changes = ContextChanges { ended_at: Some(Timestamp::now()), ..ContextChanges::default() };
        if let Err(error) = self.store.update_context(row.tenant, row.id, &changes).await {
            tracing::warn!(context = %row.id, %error, "the end of a context could not be stored");
        }
    }

    /// Nobody can look after it, so the record is all that there is to change. Nobody measured it, so it costs what was
    /// expected.
    async fn fail_left(&self, mut row: SandboxRow, open: Option<&OpenEntry>) -> Result<()> {
        let (tenant, id) = (row.tenant, row.id);
        for _ in 0..TRIES {
            let step = match row.state {
                // Somebody wanted that, and it is so.
                State::Terminating => Step::Terminated,
                _ => Step::Fail { reason: GONE.to_owned() },
            };
            let bill = open.map(|open| as_estimated(&open.entry));
            let changes = SandboxChanges { bill, ..SandboxChanges::default() };
            let stepped =
                self.store.step_sandbox(tenant, id, row.revision, step, Timestamp::now(), changes, None);
            match stored(stepped.await)? {
                StepOutcome::Stepped(..) | StepOutcome::Missing => return Ok(()),
                StepOutcome::Conflict(row) if row.state.is_final() => return Ok(()),
                StepOutcome::Conflict(_) | StepOutcome::Lost => {}
            }
            match stored(self.store.sandbox(tenant, id).await)? {
                Some(newer) => row = newer,
                None => return Ok(()),
            }
        }
        Err(Error::new(ErrorKind::Conflict, "the sandbox changes too quickly"))
    }

    /// A server that lost its identity finds its own sandboxes among those of somebody who is gone.
    async fn end_what_is_here(&self, lost: &HashSet<SandboxId>) {
        if lost.is_empty() {
            return;
        }
        let Ok((present, _)) = self.present_or_silent().await else { return };
        for sandbox in present.into_iter().filter(|sandbox| lost.contains(&sandbox.id)) {
            let cx = OpContext::new(TenantId::LOCAL);
            if let Err(error) = self.provider.destroy(&cx, &sandbox.id).await {
                tracing::warn!(sandbox = %sandbox.id, %error, "what is left of a sandbox could not be removed");
            }
        }
    }

    /// Refuses what is to be done to a sandbox that another server holds.
    pub(super) async fn keep_off(&self, id: SandboxId) -> Result<()> {
        match stored(self.store.held_elsewhere(id).await)? {
            Some(node) => Err(elsewhere("sandbox", &node)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(8);
    const EVERY: Duration = Duration::from_secs(2);

    fn lease(beats: i64) -> Lease {
        Lease {
            node: "node_a".to_owned(),
            instance: "one".to_owned(),
            place: None,
            beats,
            span: SPAN,
            taker: None,
        }
    }

    /// Looks every two seconds, from a moment on; gives when the lease was found to be over.
    fn over_at(beats: impl Fn(u32) -> i64, looks: impl IntoIterator<Item = u32>) -> Option<u32> {
        let (began, mut seen) = (Instant::now(), Seen::default());
        looks.into_iter().find(|second| {
            let now = began + Duration::from_secs(u64::from(*second));
            seen.look(now, EVERY);
            seen.is_over(&lease(beats(*second)), now)
        })
    }

    #[test]
    fn a_lease_is_over_when_it_was_seen_not_to_change_for_as_long_as_it_lasts() {
        let looks = || (0..60).step_by(2);
        assert_eq!(over_at(|_| 1, looks()), Some(10));
        assert_eq!(over_at(|second| i64::from(second / 7), looks()), None, "it is renewed late, but renewed");
        assert_eq!(over_at(|second| i64::from(second.min(20)), looks()), Some(30));
    }

    #[test]
    fn a_lease_is_believed_for_less_than_it_lasts_by_the_clock_that_never_stands_still() {
        let (leases, renewed) = (Leases::default(), since_boot());
        assert!(!leases.is_lapsed(SPAN, renewed + SPAN), "it has none, and needs none");
        *leases.renewed() = Some(renewed);
        let at = |seconds| leases.is_lapsed(SPAN, renewed + Duration::from_secs(seconds));
        assert_eq!((at(0), at(7), at(8), at(3600)), (false, false, true, true));
        // What the kernel says that includes the time asleep.
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        assert!((since_boot().as_secs_f64() - uptime).abs() < 60.0, "{uptime}");
    }

    #[test]
    fn who_could_not_look_has_seen_nothing() {
        let gap = || (0..6).step_by(2).chain((30..60).step_by(2));
        assert_eq!(over_at(|_| 1, gap()), Some(40), "the database was away for both of them");
    }
}
