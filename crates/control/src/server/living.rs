//! What the server knows of sandboxes that live: their rows, when they were used, what they are promised.
//!
//! The store is what counts; this is its image in memory, so that a request need not read it. Every step goes to the
//! store first and is seen here after.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use sandstorm_store::SandboxRow;
use sandstorm_types::{ByteSize, Limits, SandboxId, State, TenantId, Timestamp};

use super::admission::Promise;
use super::rest::Share;
use super::samples::Sampling;
use super::steady;
use super::wall::moved;
use crate::layers::Layer;

/// The wall clock is kept right by much less than this: then somebody has set it.
pub(super) const CLOCK_SET: Duration = Duration::from_secs(2);

/// A sandbox that has not ended.
#[derive(Debug)]
pub(super) struct Living {
    pub(super) id: SandboxId,
    pub(super) tenant: TenantId,
    row: ArcSwap<SandboxRow>,
    /// In the server's own time, as every moment here.
    last_used: AtomicI64,
    /// When its lifetime is over; as far away as the row had it when it was learned.
    expires: AtomicI64,
    /// Since when it is in its present state.
    since: AtomicI64,
    /// Not before this moment does a clock try again what it could not do.
    not_before: AtomicI64,
    execs: AtomicUsize,
    /// The earliest moment that the clock has for it.
    pub(super) armed: AtomicI64,
    /// The last use that was written.
    pub(super) written_use: AtomicI64,
    /// When it is to be sampled next, and how long after the time before that was.
    pub(super) sampling: Mutex<Sampling>,
    /// Processor time that was accounted for already, and until when its memory was.
    pub(super) accounted_cpu_ms: AtomicU64,
    pub(super) accounted_until: AtomicI64,
    /// Processor time that was seen so far, by whoever looked last.
    seen_cpu_ms: AtomicU64,
    /// Denied connections that were told in the present second.
    denials: Mutex<(i64, u32)>,
    /// Contexts are started and ended one at a time.
    pub(super) contexts: Arc<tokio::sync::Mutex<()>>,
    /// Held while it is copied, and to freeze it: what is frozen cannot be copied.
    pub(super) forking: Arc<tokio::sync::Mutex<()>>,
    /// Listeners to changes of its files.
    watchers: AtomicUsize,
    /// What it holds of the machine's memory.
    pub(super) share: Share,
    /// Stay in place while the sandbox may read them.
    layers: Mutex<Vec<Layer>>,
}

/// What its clock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Its lifetime or its idle time is over.
    LifeOver,
    /// It was paused for as long as paused sandboxes are kept.
    PauseOver,
    /// Its end was begun and has to be tried again.
    EndAgain,
}

/// One listener to changes of files; ends the count when it is dropped.
#[derive(Debug)]
pub(super) struct Watcher(Arc<Living>);

/// One exec in flight; ends the count when it is dropped.
#[derive(Debug)]
pub(super) struct Busy(Arc<Living>);

impl Living {
    /// `memory`: what it can take of this machine's.
    pub(super) fn new(row: SandboxRow, promise: Promise, memory: ByteSize, layers: Vec<Layer>) -> Self {
        // What was used later than now was used before the clock was set back.
        let used = steady::of_wall(row.last_used_at).min(steady::now());
        Self {
            id: row.id,
            tenant: row.tenant,
            last_used: AtomicI64::new(used.millis()),
            expires: AtomicI64::new(in_own_time(row.expires_at)),
            since: AtomicI64::new(steady::now().millis()),
            not_before: AtomicI64::new(0),
            execs: AtomicUsize::new(0),
            armed: AtomicI64::new(i64::MAX),
            written_use: AtomicI64::new(used.millis()),
            sampling: Mutex::default(),
            accounted_cpu_ms: AtomicU64::new(0),
            seen_cpu_ms: AtomicU64::new(0),
            accounted_until: AtomicI64::new(steady::now().millis()),
            denials: Mutex::default(),
            contexts: Arc::default(),
            forking: Arc::default(),
            watchers: AtomicUsize::new(0),
            share: Share::new(promise, memory),
            row: ArcSwap::from_pointee(row),
            layers: Mutex::new(layers),
        }
    }

    /// Keeps layers in place that were made for it.
    pub(super) fn keep_layers(&self, layers: Vec<Layer>) {
        self.layers.lock().unwrap_or_else(PoisonError::into_inner).extend(layers);
    }

    pub(super) fn row(&self) -> Arc<SandboxRow> {
        self.row.load_full()
    }

    /// Takes a newer row in; one that is older than what is known changes nothing.
    pub(super) fn learn(&self, row: SandboxRow) {
        let row = Arc::new(row);
        self.row.rcu(|known| {
            if row.revision <= known.revision {
                return Arc::clone(known);
            }
            if row.expires_at != known.expires_at {
                self.expires.store(in_own_time(row.expires_at), Ordering::Release);
            }
            if row.state != known.state {
                self.since.store(steady::now().millis(), Ordering::Release);
            }
            Arc::clone(&row)
        });
    }

    pub(super) fn touch(&self) {
        self.last_used.fetch_max(steady::now().millis(), Ordering::AcqRel);
    }

    pub(super) fn last_used(&self) -> Timestamp {
        Timestamp::from_millis(self.last_used.load(Ordering::Acquire))
    }

    /// When its lifetime is over, by the wall clock as it stands now. The record has it by the clock of when it was written,
    /// which somebody may have set since.
    pub(super) fn expires_at(&self) -> Option<Timestamp> {
        let recorded = self.row.load().expires_at?;
        let now = steady::to_wall(Timestamp::from_millis(self.expires.load(Ordering::Acquire)));
        let set = now.since(recorded).max(recorded.since(now)) > CLOCK_SET;
        Some(if set { now } else { recorded })
    }

    /// Its record is by a clock that was set by so many milliseconds since.
    pub(super) fn was_recorded_before(&self, set_by: i64) {
        let row = self.row.load();
        let used = steady::of_wall(moved(row.last_used_at, set_by)).min(steady::now());
        self.last_used.store(used.millis(), Ordering::Release);
        self.written_use.store(used.millis(), Ordering::Release);
        self.expires.store(in_own_time(row.expires_at.map(|at| moved(at, set_by))), Ordering::Release);
    }

    /// What was recorded by a clock that was set since is no reason to let it live longer than anything may.
    pub(super) fn lives_at_most(&self, span: Duration) {
        self.expires.fetch_min(steady::now().after(span).millis(), Ordering::AcqRel);
    }

    /// By the wall clock.
    pub(super) fn set_since(&self, at: Timestamp) {
        let at = steady::of_wall(at).min(steady::now());
        self.since.store(at.millis(), Ordering::Release);
    }

    pub(super) fn try_again_after(&self, span: Duration) {
        self.not_before.store(steady::now().after(span).millis(), Ordering::Release);
    }

    pub(super) fn execs(&self) -> usize {
        self.execs.load(Ordering::Acquire)
    }

    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.execs.fetch_add(1, Ordering::AcqRel);
        Busy(Arc::clone(self))
    }

    pub(super) fn watcher(self: &Arc<Self>) -> Watcher {
        self.watchers.fetch_add(1, Ordering::AcqRel);
        Watcher(Arc::clone(self))
    }

    pub(super) fn watchers(&self) -> usize {
        self.watchers.load(Ordering::Acquire)
    }

    pub(super) fn seen_cpu_ms(&self) -> u64 {
        self.seen_cpu_ms.load(Ordering::Acquire)
    }

    pub(super) fn see_cpu_ms(&self, millis: u64) {
        self.seen_cpu_ms.fetch_max(millis, Ordering::AcqRel);
    }

    /// Whether one more denied connection is told in this second.
    pub(super) fn tells_denial(&self, most: u32) -> bool {
        let second = steady::now().millis().div_euclid(1000);
        let mut denials = self.denials.lock().unwrap_or_else(PoisonError::into_inner);
        if denials.0 != second {
            *denials = (second, 0);
        }
        denials.1 += 1;
        denials.1 <= most
    }

    /// What is due next, and when. `None`: nothing, until something changes.
    pub(super) fn due(&self, paused_for: Duration) -> Option<(Timestamp, Due)> {
        let row = self.row();
        let since = Timestamp::from_millis(self.since.load(Ordering::Acquire));
        let not_before = Timestamp::from_millis(self.not_before.load(Ordering::Acquire));
        let (at, what) = match row.state {
            State::Ready => {
                let idle = row.idle_timeout_ms.filter(|_| self.execs() == 0).map(|millis| {
                    self.last_used().after(Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
                });
                let expires =
                    row.expires_at.map(|_| Timestamp::from_millis(self.expires.load(Ordering::Acquire)));
                let first = [expires, idle].into_iter().flatten().min()?;
                (first, Due::LifeOver)
            }
            State::Paused => (since.after(paused_for), Due::PauseOver),
            State::Terminating => (since.after(Duration::from_secs(30)), Due::EndAgain),
            _ => return None,
        };
        Some((at.max(not_before), what))
    }
}

fn in_own_time(expires_at: Option<Timestamp>) -> i64 {
    expires_at.map_or(i64::MAX, |at| steady::of_wall(at).millis())
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.watchers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.touch();
        self.0.execs.fetch_sub(1, Ordering::AcqRel);
    }
}

/// All that live on this server.
#[derive(Debug, Default)]
pub(super) struct Register(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    living: HashMap<SandboxId, Arc<Living>>,
    /// How many a tenant has, and what they are promised: a run need not look at each of thousands.
    promised: HashMap<TenantId, (u32, u64, u64)>,
}

impl All {
    /// Limits are for life, so what is counted when it comes is what is taken back when it goes.
    fn add(&mut self, living: Arc<Living>) {
        self.remove(living.id);
        let limits = living.row.load().spec.limits;
        let (count, cpu, memory) = self.promised.entry(living.tenant).or_default();
        *count += 1;
        *cpu += u64::from(limits.cpus.milli());
        *memory += limits.memory.as_u64();
        self.living.insert(living.id, living);
    }

    fn remove(&mut self, id: SandboxId) -> Option<Arc<Living>> {
        let living = self.living.remove(&id)?;
        let limits = living.row.load().spec.limits;
        if let Entry::Occupied(mut promised) = self.promised.entry(living.tenant) {
            let (count, cpu, memory) = promised.get_mut();
            *count -= 1;
            *cpu -= u64::from(limits.cpus.milli());
            *memory -= limits.memory.as_u64();
            if *count == 0 {
                promised.remove();
            }
        }
        Some(living)
    }
}

impl Register {
    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, living: Arc<Living>) {
        let count = {
            let mut all = self.all();
            all.add(living);
            all.living.len()
        };
        metrics::gauge!("sandstorm_sandboxes_living").set(count as f64);
    }

    pub(super) fn remove(&self, id: SandboxId) -> Option<Arc<Living>> {
        let (removed, count) = {
            let mut all = self.all();
            (all.remove(id), all.living.len())
        };
        metrics::gauge!("sandstorm_sandboxes_living").set(count as f64);
        removed
    }

    /// By tenant and id, as everything is looked up.
    pub(super) fn get(&self, tenant: TenantId, id: SandboxId) -> Option<Arc<Living>> {
        self.all().living.get(&id).filter(|living| living.tenant == tenant).cloned()
    }

    /// For the server's own clocks and the provider's events, which know ids only.
    pub(super) fn of_any_tenant(&self, id: SandboxId) -> Option<Arc<Living>> {
        self.all().living.get(&id).cloned()
    }

    pub(super) fn count(&self) -> usize {
        self.all().living.len()
    }

    pub(super) fn list(&self) -> Vec<Arc<Living>> {
        self.all().living.values().cloned().collect()
    }

    /// Those for which it holds, without a hand on all the others.
    pub(super) fn which(&self, holds: impl Fn(&Living) -> bool) -> Vec<Arc<Living>> {
        self.all().living.values().filter(|living| holds(living)).cloned().collect()
    }

    /// How many sandboxes a tenant has, and what they are promised: processor and memory.
    pub(super) fn promised(&self, tenant: TenantId) -> (u32, u64, u64) {
        self.all().promised.get(&tenant).copied().unwrap_or_default()
    }
}

/// Ids that were given to sandboxes which are not in the register yet, and what those are promised.
#[derive(Debug, Clone, Default)]
pub(super) struct Making(Arc<Mutex<HashMap<SandboxId, Option<Promised>>>>);

/// What a sandbox that is being made is promised: processor and memory.
#[derive(Debug, Clone, Copy)]
struct Promised {
    tenant: TenantId,
    /// In all, until the register knows of it.
    all: (u64, u64),
    /// What of it its record does not have: others install packages for it first, which takes more than it may use itself.
    beyond: (u64, u64),
}

/// An id that is being given.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) id: SandboxId,
    making: Making,
}

impl Making {
    pub(super) fn begin(&self, id: SandboxId) -> Given {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id, None);
        Given { id, making: self.clone() }
    }

    pub(super) fn contains(&self, id: SandboxId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&id)
    }

    /// Processor and memory that sandboxes of a tenant are promised before the register knows of them.
    pub(super) fn promised(&self, tenant: TenantId) -> (u64, u64) {
        self.sum(tenant, |promised| promised.all)
    }

    /// The part of that which their records do not have.
    pub(super) fn beyond(&self, tenant: TenantId) -> (u64, u64) {
        self.sum(tenant, |promised| promised.beyond)
    }

    fn sum(&self, tenant: TenantId, part: impl Fn(&Promised) -> (u64, u64)) -> (u64, u64) {
        let making = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = making.values().flatten().filter(|promised| promised.tenant == tenant).map(part);
        own.fold((0, 0), |(cpu, memory), (more_cpu, more_memory)| (cpu + more_cpu, memory + more_memory))
    }
}

/// Processor and memory.
fn amounts(limits: &Limits) -> (u64, u64) {
    (u64::from(limits.cpus.milli()), limits.memory.as_u64())
}

impl Given {
    /// Counts what it will be promised, and at its `height` while it is made. To be done before what runs hold is looked at: a
    /// run does it the other way round, so that of two at the same time at least one sees the other.
    pub(super) fn promise(&self, tenant: TenantId, limits: &Limits, height: &Limits) {
        let (own, all) = (amounts(limits), amounts(height));
        let beyond = (all.0.saturating_sub(own.0), all.1.saturating_sub(own.1));
        self.set(Some(Promised { tenant, all, beyond }));
    }

    /// The register knows of it, and what it needs beyond its limits is still to be made.
    pub(super) fn is_registered(&self) {
        let promised = self.making.0.lock().unwrap_or_else(PoisonError::into_inner).get(&self.id).copied();
        self.set(promised.flatten().map(|promised| Promised { all: promised.beyond, ..promised }));
    }

    fn set(&self, promised: Option<Promised>) {
        self.making.0.lock().unwrap_or_else(PoisonError::into_inner).insert(self.id, promised);
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.making.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}
