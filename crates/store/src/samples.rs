//! What sandboxes used, over time.

use sandstorm_types::{SandboxId, TenantId, Timestamp};

use crate::database::{Row, sql};
use crate::writing::Done;
use crate::{Result, Store};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleRow {
    pub sandbox: SandboxId,
    pub at: Timestamp,
    pub cpu_ms: u64,
    pub memory_bytes: u64,
    pub peak_memory_bytes: u64,
    pub processes: u64,
    pub disk_bytes: u64,
    pub inodes: u64,
}

impl SampleRow {
    fn read(row: &Row) -> Result<Self> {
        Ok(Self {
            sandbox: row.get("sandbox")?,
            at: row.get("at")?,
            cpu_ms: row.get("cpu_ms")?,
            memory_bytes: row.get("memory_bytes")?,
            peak_memory_bytes: row.get("peak_memory_bytes")?,
            processes: row.get("processes")?,
            disk_bytes: row.get("disk_bytes")?,
            inodes: row.get("inodes")?,
        })
    }
}

impl Store {
    /// Samples of sandboxes that are gone are left out, and so is a second one of the same moment.
    pub async fn add_samples(&self, rows: &[SampleRow]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        // PostgreSQL cannot tell the type of a placeholder in a list of columns by itself.
        let text =
            "INSERT INTO samples (tenant, sandbox, at, cpu_ms, memory_bytes, peak_memory_bytes, processes,
                disk_bytes, inodes)
                SELECT tenant, id, CAST($2 AS BIGINT), CAST($3 AS BIGINT), CAST($4 AS BIGINT), CAST($5 AS BIGINT),
                CAST($6 AS BIGINT), CAST($7 AS BIGINT), CAST($8 AS BIGINT) FROM sandboxes WHERE id = $1
                ON CONFLICT (tenant, sandbox, at) DO NOTHING";
        let inserts = rows.iter().map(|row| {
            sql(text)
                .bind(row.sandbox)
                .bind(row.at)
                .bind(row.cpu_ms)
                .bind(row.memory_bytes)
                .bind(row.peak_memory_bytes)
                .bind(row.processes)
                .bind(row.disk_bytes)
                .bind(row.inodes)
        });
        let inserts: Vec<_> = inserts.collect();
        self.write_long(None, async move |writing| {
            for insert in &inserts {
                writing.run(insert.clone()).await?;
            }
            Ok(Done::Keep(()))
        })
        .await
    }

    /// From `from` to before `to`, oldest first.
    pub async fn samples(
        &self,
        tenant: TenantId,
        sandbox: SandboxId,
        from: Timestamp,
        to: Timestamp,
        limit: u32,
    ) -> Result<Vec<SampleRow>> {
        let query = sql("SELECT * FROM samples WHERE tenant = $1 AND sandbox = $2 AND at >= $3 AND at < $4
            ORDER BY at LIMIT $5");
        let rows =
            self.database().rows(query.bind(tenant).bind(sandbox).bind(from).bind(to).bind(limit)).await?;
        rows.iter().map(SampleRow::read).collect()
    }
}
