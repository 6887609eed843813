//! Results of runs that asked for it, for whoever asks for the same again.
//!
//! Kept in memory, by tenant and by everything that a result can depend on; a run of another tenant is another run. Of
//! several that ask for the same at the same time one is carried out, and the others wait for it.
//!
//! Kept is what ended by itself with success, touched no limit and lost none of its output. A program that fails is
//! carried out again: whoever asks again after a failure wants another try.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandstorm_types::{NetworkPolicy, RunResult, RunSpec, Status, TenantId};
use tokio::sync::watch;

use crate::prepare::Prepared;

/// What an entry takes beside its output, about.
const ENTRY: u64 = 2048;
/// One tenant's share.
const SHARE: u64 = 4;

/// What the operator allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunCacheLimits {
    /// Of all tenants together; one has at most a quarter of it. 0: nothing is kept, and nobody waits for another.
    pub max_bytes: u64,
    pub max_age: Duration,
}

impl Default for RunCacheLimits {
    fn default() -> Self {
        Self { max_bytes: 64 << 20, max_age: Duration::from_secs(3600) }
    }
}

/// A run by everything that its result can depend on, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    tenant: TenantId,
    hash: [u8; 32],
}

impl Key {
    /// `None`: what it gives depends on more than can be known here.
    pub(super) fn of(tenant: TenantId, spec: &RunSpec, prepared: &Prepared) -> Option<Self> {
        if spec.network != NetworkPolicy::None {
            return None;
        }
        // Limits and enforcement are filled in by now. The toolchain carries size and time of its programs, so that
        // another version is another run. What is compared lives no longer than this process, so its form may change.
        let spec = serde_json::to_vec(spec).ok()?;
        let toolchain = format!("{:?} {:?}", prepared.toolchain, prepared.run);
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(spec.len() as u64).to_le_bytes());
        hasher.update(&spec);
        hasher.update(toolchain.as_bytes());
        Some(Self { tenant, hash: *hasher.finalize().as_bytes() })
    }
}

/// A result and, by its id, the run that made it.
pub(super) type Made = Arc<RunResult>;

#[derive(Debug)]
pub(super) struct RunCache {
    limits: RunCacheLimits,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    kept: HashMap<Key, Entry>,
    /// By when they were used last.
    order: BTreeMap<u64, Key>,
    uses: u64,
    bytes: u64,
    by_tenant: HashMap<TenantId, u64>,
    /// Runs that others wait for.
    under_way: HashMap<Key, watch::Receiver<Option<Made>>>,
}

#[derive(Debug)]
struct Entry {
    made: Made,
    bytes: u64,
    at: Instant,
    used: u64,
}

/// What is known of a run.
#[derive(Debug)]
pub(super) enum Sought {
    Found(Made),
    /// Carry it out; others wait for it.
    Lead(Lead),
    /// It is under way.
    Wait(Awaited),
    /// Nothing is kept.
    Off,
}

/// A run that is under way for somebody else too.
#[derive(Debug)]
pub(super) struct Awaited(watch::Receiver<Option<Made>>);

impl Awaited {
    /// `None`: it came to nothing that can be given to others.
    pub(super) async fn result(mut self) -> Option<Made> {
        self.0.wait_for(Option::is_some).await.ok()?.clone()
    }
}

/// The one that carries a run out. Whoever waits is released when it is dropped.
#[derive(Debug)]
pub(super) struct Lead {
    key: Key,
    limits: RunCacheLimits,
    state: Arc<Mutex<State>>,
    told: watch::Sender<Option<Made>>,
}

impl RunCache {
    pub(super) fn new(limits: RunCacheLimits) -> Self {
        Self { limits, state: Arc::default() }
    }

    pub(super) fn seek(&self, key: Key) -> Sought {
        if self.limits.max_bytes == 0 {
            return Sought::Off;
        }
        let mut state = lock(&self.state);
        state.forget_old(&key, self.limits.max_age);
        if let Some(made) = state.touch(&key) {
            return Sought::Found(made);
        }
        if let Some(awaited) = state.under_way.get(&key) {
            return Sought::Wait(Awaited(awaited.clone()));
        }
        let (told, heard) = watch::channel(None);
        state.under_way.insert(key, heard);
        Sought::Lead(Lead { key, limits: self.limits, state: Arc::clone(&self.state), told })
    }
}

impl Lead {
    /// Gives the result to who waits, and keeps it, if it is one to keep.
    pub(super) fn finish(self, result: &RunResult) {
        let bytes = size(result);
        if !is_kept(result) || bytes > self.limits.max_bytes / SHARE {
            return;
        }
        let made = Arc::new(result.clone());
        lock(&self.state).keep(self.key, Arc::clone(&made), bytes, self.limits.max_bytes);
        let _ = self.told.send(Some(made));
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        lock(&self.state).under_way.remove(&self.key);
    }
}

impl State {
    fn touch(&mut self, key: &Key) -> Option<Made> {
        let entry = self.kept.get_mut(key)?;
        self.uses += 1;
        self.order.remove(&entry.used);
        entry.used = self.uses;
        self.order.insert(self.uses, *key);
        Some(Arc::clone(&entry.made))
    }

    fn keep(&mut self, key: Key, made: Made, bytes: u64, most: u64) {
        self.remove(&key);
        // The tenant makes room for its own first, so that one cannot push out the others.
        while self.by_tenant.get(&key.tenant).copied().unwrap_or(0) + bytes > most / SHARE {
            let Some(oldest) = self.order.values().find(|old| old.tenant == key.tenant).copied() else {
                break;
            };
            self.remove(&oldest);
        }
        while self.bytes + bytes > most {
            let Some(oldest) = self.order.values().next().copied() else { break };
            self.remove(&oldest);
        }
        self.uses += 1;
        self.order.insert(self.uses, key);
        self.kept.insert(key, Entry { made, bytes, at: Instant::now(), used: self.uses });
        self.bytes += bytes;
        *self.by_tenant.entry(key.tenant).or_default() += bytes;
        metrics::gauge!("sandstorm_run_cache_bytes").set(self.bytes as f64);
    }

    fn remove(&mut self, key: &Key) {
        let Some(entry) = self.kept.remove(key) else { return };
        self.order.remove(&entry.used);
        self.bytes -= entry.bytes;
        if let Some(bytes) = self.by_tenant.get_mut(&key.tenant) {
            *bytes -= entry.bytes;
            if *bytes == 0 {
                self.by_tenant.remove(&key.tenant);
            }
        }
        metrics::gauge!("sandstorm_run_cache_bytes").set(self.bytes as f64);
    }

    /// The one that is asked for, and a few of those that were not for the longest time.
    fn forget_old(&mut self, asked: &Key, age: Duration) {
        let few: Vec<Key> = self.order.values().take(8).chain([asked]).copied().collect();
        for key in few {
            if self.kept.get(&key).is_some_and(|entry| entry.at.elapsed() >= age) {
                self.remove(&key);
            }
        }
    }
}

fn is_kept(result: &RunResult) -> bool {
    result.status == Status::Ok
        && result.limits_hit.is_empty()
        && result.denied.is_empty()
        && !result.truncated.stdout
        && !result.truncated.stderr
}

fn size(result: &RunResult) -> u64 {
    (result.stdout.len() + result.stderr.len()) as u64 + ENTRY
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use sandstorm_provider::ProviderInfo;
    use sandstorm_types::{Denied, DeniedProtocol, ExecId, LimitName, Timestamp, Walls};

    use super::super::ended::empty;
    use super::*;

    const LIMITS: RunCacheLimits =
        RunCacheLimits { max_bytes: 16 * ENTRY, max_age: Duration::from_secs(3600) };

    fn result(stdout: &str) -> RunResult {
        let info = ProviderInfo { name: "memory".to_owned(), kind: "memory".to_owned(), region: None };
        let mut result = empty(ExecId::random(), Status::Ok, &info, Walls::default());
        result.stdout = stdout.to_owned();
        result
    }

    fn key(tenant: u128, number: u8) -> Key {
        Key { tenant: TenantId::from_bits(tenant), hash: [number; 32] }
    }

    fn lead(cache: &RunCache, key: Key) -> Lead {
        match cache.seek(key) {
            Sought::Lead(lead) => lead,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_no_clean_success_is_not_kept() {
        let cache = RunCache::new(LIMITS);
        let mut bad = [result("x"), result("x"), result("x"), result("x"), result("x")];
        bad[0].status = Status::Error;
        bad[1].limits_hit = vec![LimitName::Disk];
        bad[2].truncated.stdout = true;
        bad[3].stdout = "x".repeat(usize::try_from(LIMITS.max_bytes / SHARE).unwrap());
        bad[4].denied = vec![Denied {
            host: Some("a.test".to_owned()),
            port: None,
            protocol: DeniedProtocol::Dns,
            reason: "not_allowed".to_owned(),
            message: "why".to_owned(),
            count: 1,
            at: Timestamp::from_millis(0),
        }];
        for result in &bad {
            lead(&cache, key(1, 1)).finish(result);
        }
        lead(&cache, key(1, 1)).finish(&result("good"));
        assert!(matches!(cache.seek(key(1, 1)), Sought::Found(made) if made.stdout == "good"));
        assert!(matches!(cache.seek(key(2, 1)), Sought::Lead(_)), "another tenant's run is another run");
    }

    #[test]
    fn it_is_bounded_by_bytes_and_a_tenant_by_its_share() {
        let cache = RunCache::new(LIMITS);
        for tenant in 1..=3 {
            lead(&cache, key(tenant, 0)).finish(&result(""));
        }
        for number in 1..=50 {
            lead(&cache, key(9, number)).finish(&result(""));
        }
        let state = lock(&cache.state);
        assert_eq!(state.by_tenant[&TenantId::from_bits(9)], 4 * ENTRY);
        assert_eq!((state.bytes, state.kept.len(), state.order.len()), (7 * ENTRY, 7, 7));
        assert!(state.kept.contains_key(&key(9, 50)) && !state.kept.contains_key(&key(9, 46)));
        drop(state);
        for tenant in 10..40 {
            lead(&cache, key(tenant, 0)).finish(&result(""));
        }
        assert_eq!(lock(&cache.state).bytes, 16 * ENTRY);
    }

    #[test]
    fn what_is_old_is_not_given() {
        let cache = RunCache::new(RunCacheLimits { max_age: Duration::ZERO, ..LIMITS });
        lead(&cache, key(1, 1)).finish(&result("x"));
        assert!(matches!(cache.seek(key(1, 1)), Sought::Lead(_)));
        assert_eq!(lock(&cache.state).bytes, 0);
        assert!(matches!(
            RunCache::new(RunCacheLimits { max_bytes: 0, ..LIMITS }).seek(key(1, 1)),
            Sought::Off
        ));
    }

    #[tokio::test]
    async fn who_waits_gets_the_result_or_is_released() {
        let cache = RunCache::new(LIMITS);
        let first = lead(&cache, key(1, 1));
        let Sought::Wait(waiting) = cache.seek(key(1, 1)) else { panic!("it is under way") };
        first.finish(&result("made"));
        assert_eq!(waiting.result().await.unwrap().stdout, "made");
        let second = lead(&cache, key(1, 2));
        let Sought::Wait(waiting) = cache.seek(key(1, 2)) else { panic!("it is under way") };
        drop(second);
        assert!(waiting.result().await.is_none());
        drop(lead(&cache, key(1, 2)));
    }
}
