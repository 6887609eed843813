//! What each tenant may use: its rates, its open streams, and what its runs hold.
//!
//! Sandboxes are counted by the store, in the transaction that makes one. What lives shorter than a record is worth,
//! requests, runs and streams, is counted here.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota as Rate, RateLimiter};
use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, Limits, TenantId};

use super::Quota;
use super::bodies::Bodies;

type Limiter = RateLimiter<NotKeyed, InMemoryState, DefaultClock>;

/// The tenants that have been here.
#[derive(Debug)]
pub(super) struct Quotas {
    usual: Quota,
    local: Quota,
    tenants: Mutex<HashMap<TenantId, Arc<Tenant>>>,
}

/// One tenant's counters.
pub(super) struct Tenant {
    pub(super) quota: Quota,
    requests: Limiter,
    /// Requests of visitors, who may be anybody: they leave the tenant's own alone.
    visits: Limiter,
    runs: Limiter,
    held: Arc<Held>,
}

/// What a tenant holds at the moment, whatever its quota is changed to meanwhile.
#[derive(Debug, Default)]
struct Held {
    streams: AtomicU32,
    cpu_milli: AtomicU64,
    memory_bytes: AtomicU64,
    bodies: Bodies,
}

/// One of a tenant's open streams.
#[derive(Debug)]
pub struct StreamGuard(Arc<Held>);

/// What a run holds of its tenant's quota.
#[derive(Debug)]
pub(crate) struct RunGuard {
    held: Arc<Held>,
    /// What it holds at its height.
    height: Limits,
    cpu_milli: AtomicU64,
    memory_bytes: AtomicU64,
}

impl Quotas {
    pub(super) fn new(usual: Quota, local: Quota) -> Self {
        Self { usual, local, tenants: Mutex::default() }
    }

    fn usual(&self, tenant: TenantId) -> Quota {
        if tenant == TenantId::LOCAL { self.local } else { self.usual }
    }

    /// Takes a tenant's quota as its row says; `None` is the usual one.
    pub(super) fn learn(&self, tenant: TenantId, own: Option<Quota>) {
        let quota = own.unwrap_or_else(|| self.usual(tenant));
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let known = tenants.get(&tenant);
        if known.is_some_and(|known| known.quota == quota) {
            return;
        }
        let held = known.map(|known| Arc::clone(&known.held)).unwrap_or_default();
        tenants.insert(tenant, Arc::new(Tenant::new(quota, held)));
    }

    pub(super) fn of(&self, tenant: TenantId) -> Arc<Tenant> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Tenant::new(self.usual(tenant), Arc::default()));
        Arc::clone(tenants.entry(tenant).or_insert_with(new))
    }
}

impl Tenant {
    fn new(quota: Quota, held: Arc<Held>) -> Self {
        let limiter = |count: Option<u32>, rate: fn(NonZeroU32) -> Rate| {
            RateLimiter::direct(rate(count.and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)))
        };
        let per_second = || limiter(quota.requests_per_second, Rate::per_second);
        let (requests, visits) = (per_second(), per_second());
        let runs = limiter(quota.runs_per_minute, Rate::per_minute);
        Self { quota, requests, visits, runs, held }
    }

    pub(super) fn count_request(&self) -> Result<()> {
        within(&self.requests, "too many requests per second", self.quota.requests_per_second)
    }

    pub(super) fn count_visit(&self) -> Result<()> {
        within(&self.visits, "too many requests of visitors per second", self.quota.requests_per_second)
    }

    pub(super) fn count_run(&self) -> Result<()> {
        within(&self.runs, "too many runs per minute", self.quota.runs_per_minute)
    }

    pub(super) fn open_stream(&self) -> Result<StreamGuard> {
        let most = self.quota.open_streams;
        let add = |open: u32| (open < most).then_some(open + 1);
        match self.held.streams.fetch_update(Ordering::AcqRel, Ordering::Acquire, add) {
            Ok(_) => Ok(StreamGuard(Arc::clone(&self.held))),
            Err(_) => Err(over("too many open streams").with("allowed", most)),
        }
    }

    /// What its request bodies take.
    pub(super) fn bodies(&self) -> Bodies {
        self.held.bodies.clone()
    }

    /// Reserves what a run needs beside what the tenant's sandboxes are promised. That is looked at again once the run is
    /// counted: a sandbox that is made meanwhile is either seen there or sees the run.
    pub(super) fn hold_run(&self, limits: &Limits, sandboxes: impl Fn() -> (u64, u64)) -> Result<RunGuard> {
        let (cpu_milli, memory_bytes) = (u64::from(limits.cpus.milli()), limits.memory.as_u64());
        let fits = |more_cpu: u64, more_memory: u64| {
            let ((beside_cpu, beside_memory), (cpu, memory)) = (sandboxes(), self.held_by_runs());
            if cpu.saturating_add(more_cpu).saturating_add(beside_cpu) > self.quota.cpu_milli {
                return Err(over("the quota of cpu is used up").with("allowed", self.quota.cpu_milli));
            }
            if memory.saturating_add(more_memory).saturating_add(beside_memory) > self.quota.memory_bytes {
                return Err(over("the quota of memory is used up").with("allowed", self.quota.memory_bytes));
            }
            Ok(())
        };
        // Who surely does not fit is not counted for a moment, in which others would be refused.
        fits(cpu_milli, memory_bytes)?;
        let guard = RunGuard {
            held: Arc::clone(&self.held),
            height: *limits,
            cpu_milli: AtomicU64::new(0),
            memory_bytes: AtomicU64::new(0),
        };
        guard.hold_height();
        fits(0, 0)?;
        Ok(guard)
    }

    /// What runs leave to sandboxes: processor and memory.
    pub(super) fn left_by_runs(&self) -> (u64, u64) {
        let (cpu, memory) = self.held_by_runs();
        (self.quota.cpu_milli.saturating_sub(cpu), self.quota.memory_bytes.saturating_sub(memory))
    }

    pub(super) fn held_by_runs(&self) -> (u64, u64) {
        (self.held.cpu_milli.load(Ordering::Acquire), self.held.memory_bytes.load(Ordering::Acquire))
    }
}

fn within(limiter: &Limiter, message: &'static str, allowed: Option<u32>) -> Result<()> {
    let Some(allowed) = allowed else { return Ok(()) };
    if allowed == 0 {
        return Err(over(message).with("allowed", 0));
    }
    limiter.check().map_err(|not_until| {
        let wait = not_until.wait_time_from(DefaultClock::default().now());
        Error::new(ErrorKind::Quota, message).with("allowed", allowed).with_retry_after(wait)
    })
}

/// A refusal where nobody knows when something comes free.
fn over(message: &'static str) -> Error {
    Error::new(ErrorKind::Quota, message).with_retry_after(Duration::from_secs(1))
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::AcqRel);
    }
}

impl RunGuard {
    /// Everything was built: what is left to do is limited like this.
    pub(crate) fn hold(&self, limits: &Limits) {
        self.set(u64::from(limits.cpus.milli()), limits.memory.as_u64());
    }

    /// Something may have to be built again. It was granted before, so it is not asked for.
    pub(crate) fn hold_height(&self) {
        self.hold(&self.height);
    }

    fn set(&self, cpu_milli: u64, memory_bytes: u64) {
        for (held, own, now) in [
            (&self.held.cpu_milli, &self.cpu_milli, cpu_milli),
            (&self.held.memory_bytes, &self.memory_bytes, memory_bytes),
        ] {
            let before = own.swap(now, Ordering::AcqRel);
            match now.checked_sub(before) {
                Some(more) => held.fetch_add(more, Ordering::AcqRel),
                None => held.fetch_sub(before - now, Ordering::AcqRel),
            };
        }
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        self.set(0, 0);
    }
}

impl std::fmt::Debug for Tenant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tenant").field("quota", &self.quota).field("held", &self.held).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: Quota = Quota {
        sandboxes: 2,
        cpu_milli: 2000,
        memory_bytes: 1 << 30,
        runs_per_minute: Some(2),
        requests_per_second: Some(3),
        open_streams: 1,
    };

    #[test]
    fn rates_say_exactly_when_to_come_back() {
        let quotas = Quotas::new(QUOTA, QUOTA);
        let tenant = quotas.of(TenantId::LOCAL);
        for _ in 0..3 {
            tenant.count_request().unwrap();
        }
        // A third of a second may pass meanwhile, and one more is good then.
        let error = (0..1000).find_map(|_| tenant.count_request().err()).unwrap();
        assert_eq!(error.kind(), ErrorKind::Quota);
        let wait = error.retry_after().unwrap();
        assert!(wait > Duration::ZERO && wait <= Duration::from_millis(334), "{wait:?}");
        tenant.count_run().unwrap();
        tenant.count_run().unwrap();
        let wait = tenant.count_run().unwrap_err().retry_after().unwrap();
        assert!(wait > Duration::from_secs(5) && wait <= Duration::from_secs(30), "{wait:?}");
        // Another tenant has counters of its own.
        quotas.of(TenantId::from_bits(1)).count_request().unwrap();
    }

    #[test]
    fn a_tenant_without_rates_still_has_its_walls_and_leaves_others_theirs() {
        let local = Quota { runs_per_minute: None, requests_per_second: None, ..QUOTA };
        let quotas = Quotas::new(QUOTA, local);
        // Also after its row was read, which says nothing.
        quotas.learn(TenantId::LOCAL, None);
        let tenant = quotas.of(TenantId::LOCAL);
        for _ in 0..10_000 {
            tenant.count_request().unwrap();
            tenant.count_run().unwrap();
        }
        let _stream = tenant.open_stream().unwrap();
        assert!(tenant.open_stream().is_err());
        assert!(tenant.hold_run(&Limits::default(), || (2000, 0)).is_err());
        let made = quotas.of(TenantId::from_bits(1));
        assert!((0..100).any(|_| made.count_request().is_err()));
        assert!((0..3).any(|_| made.count_run().is_err()));
        // A quota of its own binds the local tenant like any other.
        quotas.learn(TenantId::LOCAL, Some(QUOTA));
        assert!((0..3).any(|_| quotas.of(TenantId::LOCAL).count_run().is_err()));
    }

    #[test]
    fn what_is_held_is_given_back_and_survives_a_new_quota() {
        let quotas = Quotas::new(QUOTA, QUOTA);
        let stream = quotas.of(TenantId::LOCAL).open_stream().unwrap();
        assert_eq!(quotas.of(TenantId::LOCAL).open_stream().unwrap_err().kind(), ErrorKind::Quota);
        quotas.learn(TenantId::LOCAL, Some(Quota { open_streams: 2, ..QUOTA }));
        let second = quotas.of(TenantId::LOCAL).open_stream().unwrap();
        assert!(quotas.of(TenantId::LOCAL).open_stream().is_err());
        drop((stream, second));
        quotas.of(TenantId::LOCAL).open_stream().unwrap();
    }

    #[test]
    fn runs_count_beside_sandboxes() {
        let quotas = Quotas::new(QUOTA, QUOTA);
        let tenant = quotas.of(TenantId::LOCAL);
        let limits = Limits::default();
        let first = tenant.hold_run(&limits, || (0, 0)).unwrap();
        assert_eq!(tenant.left_by_runs(), (1000, (1 << 30) - limits.memory.as_u64()));
        assert!(tenant.hold_run(&limits, || (1001, 0)).is_err());
        assert!(tenant.hold_run(&limits, || (0, (512 << 20) + 1)).is_err());
        // The refusals took nothing.
        let second = tenant.hold_run(&limits, || (0, 0)).unwrap();
        assert!(tenant.hold_run(&limits, || (0, 0)).is_err());
        drop((first, second));
        assert_eq!(tenant.left_by_runs(), (2000, 1 << 30));
    }

    #[test]
    fn a_run_holds_its_height_until_everything_is_built() {
        let quotas = Quotas::new(QUOTA, QUOTA);
        let tenant = quotas.of(TenantId::LOCAL);
        let own = Limits { cpus: "1".parse().unwrap(), memory: "256M".parse().unwrap(), ..Limits::default() };
        let height = Limits { cpus: "2".parse().unwrap(), memory: "1G".parse().unwrap(), ..own };
        let run = tenant.hold_run(&height, || (0, 0)).unwrap();
        assert!(tenant.hold_run(&own, || (0, 0)).is_err());
        run.hold(&own);
        assert_eq!(tenant.held_by_runs(), (1000, 256 << 20));
        let beside = tenant.hold_run(&own, || (0, 0)).unwrap();
        // To be built again.
        run.hold_height();
        assert_eq!(tenant.held_by_runs(), (3000, (1 << 30) + (256 << 20)));
        drop(run);
        assert_eq!(tenant.held_by_runs(), (1000, 256 << 20));
        drop(beside);
        assert_eq!(tenant.held_by_runs(), (0, 0));
    }

    #[test]
    fn what_is_installed_for_a_sandbox_counts_until_it_is_there() {
        use super::super::living::Making;
        let making = Making::default();
        let limits =
            Limits { cpus: "1".parse().unwrap(), memory: "512M".parse().unwrap(), ..Limits::default() };
        let height = Limits { cpus: "2".parse().unwrap(), memory: "5G".parse().unwrap(), ..limits };
        let beyond = (1000, height.memory.as_u64() - limits.memory.as_u64());
        let seen = || (making.promised(TenantId::LOCAL), making.beyond(TenantId::LOCAL));
        let given = making.begin(sandstorm_types::SandboxId::random());
        given.promise(TenantId::LOCAL, &limits, &height);
        assert_eq!(seen(), ((2000, height.memory.as_u64()), beyond));
        assert_eq!(making.beyond(TenantId::from_bits(1)), (0, 0), "it is another's");
        given.is_registered();
        assert_eq!(seen(), (beyond, beyond), "the rest is counted with all that live");
        drop(given);
        assert_eq!(seen(), ((0, 0), (0, 0)));
    }

    #[test]
    fn a_sandbox_that_is_made_beside_a_run_is_seen_by_it() {
        use super::super::living::Making;
        let quotas = Quotas::new(QUOTA, QUOTA);
        let tenant = quotas.of(TenantId::LOCAL);
        let limits = Limits { cpus: "2".parse().unwrap(), ..Limits::default() };
        let making = Making::default();
        let given = making.begin(sandstorm_types::SandboxId::random());
        let looks = std::cell::Cell::new(0);
        // It comes when the run has been found to fit and is not counted yet.
        let refused = tenant.hold_run(&limits, || {
            looks.set(looks.get() + 1);
            let promised = making.promised(TenantId::LOCAL);
            if looks.get() == 1 {
                given.promise(TenantId::LOCAL, &limits, &limits);
                assert_eq!(tenant.left_by_runs().0, 2000, "the sandbox does not see the run");
            }
            promised
        });
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Quota);
        assert_eq!(tenant.left_by_runs().0, 2000);
        drop(given);
        let run = tenant.hold_run(&limits, || making.promised(TenantId::LOCAL)).unwrap();
        assert_eq!(tenant.left_by_runs().0, 0, "a sandbox that is made now sees the run");
        drop(run);
    }
}
