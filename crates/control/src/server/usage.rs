//! What was used: per sandbox over time, per tenant in sum.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use sandstorm_provider::Result;
use sandstorm_store::{SampleRow, UsageDelta};
use sandstorm_types::{SandboxId, TenantId, Timestamp};

use super::failure::{invalid, not_found, stored};
use super::living::Living;
use super::steady;
use super::{Caller, Control, Inner, Quota, Scope, Verb};

const DAY: i64 = 86_400_000;
/// Samples that one answer holds.
const MOST: usize = 1000;
/// Samples that are read at once.
const READ: u32 = 20_000;

/// One reading of a sandbox's counters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    pub at: Timestamp,
    pub cpu_ms: u64,
    pub memory_bytes: u64,
    pub peak_memory_bytes: u64,
    pub processes: u32,
    pub disk_bytes: u64,
    pub inodes: u64,
}

/// What a tenant uses and may use.
#[derive(Debug, Clone, PartialEq)]
pub struct UsageView {
    pub quota: Quota,
    pub sandboxes: u32,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// Since the first of the month, UTC.
    pub since: Timestamp,
    /// Carried out.
    pub runs: u64,
    /// Answered with an earlier result.
    pub cached_runs: u64,
    pub execs: u64,
    pub sandboxes_created: u64,
    pub cpu_ms: u64,
    /// Promised memory times time.
    pub memory_mib_seconds: u64,
}

/// What was used and is not written yet, by tenant and day.
#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<HashMap<(TenantId, i64), UsageDelta>>);

impl Ledger {
    fn add(&self, tenant: TenantId, used: UsageDelta) {
        let day = Timestamp::now().millis().div_euclid(DAY);
        self.put_back(tenant, day, used);
    }

    fn take(&self) -> HashMap<(TenantId, i64), UsageDelta> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put_back(&self, tenant: TenantId, day: i64, used: UsageDelta) {
        let mut ledger = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = ledger.entry((tenant, day)).or_default();
        sum.runs += used.runs;
        sum.cached_runs += used.cached_runs;
        sum.execs += used.execs;
        sum.sandboxes_created += used.sandboxes_created;
        sum.cpu_ms += used.cpu_ms;
        sum.memory_mib_seconds += used.memory_mib_seconds;
    }
}

impl Inner {
    /// Notes what was used; written with the next batch.
    pub(super) fn add_usage(&self, tenant: TenantId, used: UsageDelta) {
        self.ledger.add(tenant, used);
    }

    /// Notes the memory that a sandbox was promised since the last time.
    pub(super) fn account_memory(&self, living: &Living) {
        let now = steady::now();
        let before = living.accounted_until.swap(now.millis(), Ordering::AcqRel);
        let span = now.since(Timestamp::from_millis(before));
        let mib = living.row().spec.limits.memory.as_u64() >> 20;
        let memory_mib_seconds = mib.saturating_mul(u64::try_from(span.as_millis()).unwrap_or(0)) / 1000;
        self.add_usage(living.tenant, UsageDelta { memory_mib_seconds, ..UsageDelta::default() });
    }

    /// Notes the processor time that a sandbox used since the last time.
    pub(super) fn account_cpu(&self, living: &Living, cpu_ms: u64) {
        living.see_cpu_ms(cpu_ms);
        let before = living.accounted_cpu_ms.fetch_max(cpu_ms, Ordering::AcqRel);
        let cpu_ms = cpu_ms.saturating_sub(before);
        self.add_usage(living.tenant, UsageDelta { cpu_ms, ..UsageDelta::default() });
    }

    /// Writes what was noted. What cannot be written is kept for the next time.
    pub(super) async fn write_usage(&self) {
        for ((tenant, day), used) in self.ledger.take() {
            if used == UsageDelta::default() {
                continue;
            }
            if let Err(error) = self.store.add_usage(tenant, day, used).await {
                tracing::warn!(%error, "usage could not be written");
                self.ledger.put_back(tenant, day, used);
            }
        }
    }
}

impl Control {
    /// Samples between two moments, oldest first, at most 1,000; thinned when there are more.
    pub async fn metrics(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Result<Vec<Sample>> {
        caller.require(Scope::Sandbox)?;
        let row = self.0.row(caller.tenant, sandbox).await?.ok_or_else(|| not_found("sandbox"))?;
        let from = from.unwrap_or(row.created_at);
        let to = to.unwrap_or_else(|| Timestamp::now().after(std::time::Duration::from_secs(1)));
        if to < from {
            return Err(invalid("the end of the time is before its beginning"));
        }
        let rows = stored(self.0.store.samples(caller.tenant, sandbox, from, to, READ).await)?;
        let every = rows.len().div_ceil(MOST).max(1);
        // The last one of each group, so that the newest is always there.
        let kept = rows.chunks(every).filter_map(<[SampleRow]>::last).copied();
        Ok(kept.map(sample).collect())
    }

    /// A reading of now, of a sandbox whose programs run. It is not among those of [`Control::metrics`].
    pub async fn sandbox_usage(&self, caller: &Caller, sandbox: SandboxId) -> Result<Sample> {
        caller.require_inside(sandbox, Verb::Look)?;
        self.0.ready(caller.tenant, sandbox).await?;
        let usage = self.0.provider.usage(&caller.operation(), &sandbox).await?;
        Ok(Sample {
            at: Timestamp::now(),
            cpu_ms: u64::try_from(usage.cpu.as_millis()).unwrap_or(u64::MAX),
            memory_bytes: usage.memory.as_u64(),
            peak_memory_bytes: usage.peak_memory.as_u64(),
            processes: usage.processes,
            disk_bytes: usage.disk.as_u64(),
            inodes: usage.inodes,
        })
    }

    pub async fn usage(&self, caller: &Caller) -> Result<UsageView> {
        caller.require_key()?;
        self.0.write_usage().await;
        let now = Timestamp::now();
        let since = month_of(now);
        let days = (since.millis().div_euclid(DAY), now.millis().div_euclid(DAY));
        let rows = stored(self.0.store.usage(caller.tenant, days.0, days.1).await)?;
        let (sandboxes, cpu_milli, memory_bytes) = self.0.sandboxes.promised(caller.tenant);
        let tenant = self.0.quotas.of(caller.tenant);
        let (run_cpu, run_memory) = tenant.held_by_runs();
        let mut view = UsageView {
            quota: tenant.quota,
            sandboxes,
            cpu_milli: cpu_milli + run_cpu,
            memory_bytes: memory_bytes + run_memory,
            since,
            runs: 0,
            cached_runs: 0,
            execs: 0,
            sandboxes_created: 0,
            cpu_ms: 0,
            memory_mib_seconds: 0,
        };
        for row in rows {
            view.runs += row.used.runs;
            view.cached_runs += row.used.cached_runs;
            view.execs += row.used.execs;
            view.sandboxes_created += row.used.sandboxes_created;
            view.cpu_ms += row.used.cpu_ms;
            view.memory_mib_seconds += row.used.memory_mib_seconds;
        }
        Ok(view)
    }
}

/// The first moment of a month, UTC.
pub(super) fn month_of(at: Timestamp) -> Timestamp {
    let text = at.to_string();
    // `2026-11-15T…`: the first day of the same month.
    let first = text.get(..8).map(|month| format!("{month}01T00:00:00Z"));
    first.and_then(|text| text.parse().ok()).unwrap_or(at)
}

fn sample(row: SampleRow) -> Sample {
    Sample {
        at: row.at,
        cpu_ms: row.cpu_ms,
        memory_bytes: row.memory_bytes,
        peak_memory_bytes: row.peak_memory_bytes,
        processes: u32::try_from(row.processes).unwrap_or(u32::MAX),
        disk_bytes: row.disk_bytes,
        inodes: row.inodes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_begin_on_the_first() {
        let at: Timestamp = "2026-11-15T12:03:43.123Z".parse().unwrap();
        assert_eq!(month_of(at).to_string(), "2026-11-01T00:00:00.000Z");
    }
}
