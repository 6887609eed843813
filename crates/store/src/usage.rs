//! What tenants used, by day.

use sandstorm_types::TenantId;

use crate::database::{Row, sql};
use crate::writing::Done;
use crate::{Result, Store};

/// What to add to a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsageDelta {
    /// Carried out.
    pub runs: u64,
    /// Answered with an earlier result.
    pub cached_runs: u64,
    pub execs: u64,
    pub sandboxes_created: u64,
    pub cpu_ms: u64,
    pub memory_mib_seconds: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageRow {
    /// Days since 1970, UTC.
    pub day: i64,
    pub used: UsageDelta,
}

impl UsageRow {
    fn read(row: &Row) -> Result<Self> {
        Ok(Self {
            day: row.get("day")?,
            used: UsageDelta {
                runs: row.get("runs")?,
                cached_runs: row.get("cached_runs")?,
                execs: row.get("execs")?,
                sandboxes_created: row.get("sandboxes_created")?,
                cpu_ms: row.get("cpu_ms")?,
                memory_mib_seconds: row.get("memory_mib_seconds")?,
            },
        })
    }
}

impl Store {
    /// `day` counts from 1970, UTC.
    pub async fn add_usage(&self, tenant: TenantId, day: i64, used: UsageDelta) -> Result<()> {
        let text =
            "INSERT INTO usage (tenant, day, runs, execs, sandboxes_created, cpu_ms, memory_mib_seconds,
            cached_runs) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
            ON CONFLICT (tenant, day) DO UPDATE SET runs = usage.runs + excluded.runs,
            execs = usage.execs + excluded.execs,
            sandboxes_created = usage.sandboxes_created + excluded.sandboxes_created,
            cpu_ms = usage.cpu_ms + excluded.cpu_ms,
            memory_mib_seconds = usage.memory_mib_seconds + excluded.memory_mib_seconds,
            cached_runs = usage.cached_runs + excluded.cached_runs";
        let add = sql(text)
            .bind(tenant)
            .bind(day)
            .bind(used.runs)
            .bind(used.execs)
            .bind(used.sandboxes_created)
            .bind(used.cpu_ms)
            .bind(used.memory_mib_seconds)
            .bind(used.cached_runs);
        self.write(None, async move |writing| {
            writing.run(add.clone()).await?;
            Ok(Done::Keep(()))
        })
        .await
    }

    /// Both days included; days without use are left out.
    pub async fn usage(&self, tenant: TenantId, from_day: i64, to_day: i64) -> Result<Vec<UsageRow>> {
        let query = sql("SELECT * FROM usage WHERE tenant = $1 AND day >= $2 AND day <= $3 ORDER BY day");
        let rows = self.database().rows(query.bind(tenant).bind(from_day).bind(to_day)).await?;
        rows.iter().map(UsageRow::read).collect()
    }
}
