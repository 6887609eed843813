//! Ceilings of a tenant, counted where nobody can count at the same time.

use sandstorm_types::{Limits, TenantId};

use crate::database::sql;
use crate::writing::Writing;
use crate::{QuotaKind, Result, StoreError};

/// Ceilings of a tenant, over all of its sandboxes that have not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    pub sandboxes: u32,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

impl Reservation {
    /// Whether one more fits. The caller holds the tenant's row.
    pub(super) async fn check(self, writing: &mut Writing, tenant: TenantId, limits: &Limits) -> Result<()> {
        // Sums of whole numbers are of a wider type in PostgreSQL.
        let text = "SELECT COUNT(*) AS sandboxes, CAST(COALESCE(SUM(cpu_milli), 0) AS BIGINT) AS cpu_milli,
            CAST(COALESCE(SUM(memory_bytes), 0) AS BIGINT) AS memory_bytes
            FROM sandboxes WHERE tenant = $1 AND ended_at IS NULL";
        let row = writing.row(sql(text).bind(tenant)).await?;
        let row = row.ok_or_else(|| StoreError::corrupt("a count gave no row"))?;
        let cpu = u64::from(limits.cpus.milli());
        for (which, used, wanted, limit) in [
            (QuotaKind::Sandboxes, row.get("sandboxes")?, 1, u64::from(self.sandboxes)),
            (QuotaKind::Cpu, row.get("cpu_milli")?, cpu, self.cpu_milli),
            (QuotaKind::Memory, row.get("memory_bytes")?, limits.memory.as_u64(), self.memory_bytes),
        ] {
            let used: u64 = used;
            if used.saturating_add(wanted) > limit {
                return Err(StoreError::QuotaExceeded { which, used, wanted, limit });
            }
        }
        Ok(())
    }
}
