//! Who owns things. The local tenant is always there.

use sandstorm_types::{TenantId, Timestamp};

use crate::database::{Row, sql};
use crate::writing::Done;
use crate::{Audit, Json, Result, Store};

#[derive(Debug, Clone, PartialEq)]
pub struct TenantRow {
    pub id: TenantId,
    pub name: String,
    /// Ceilings of its own; without them those of the server hold.
    pub quota: Option<Json>,
    pub created_at: Timestamp,
}

impl TenantRow {
    fn read(row: &Row) -> Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            name: row.get("name")?,
            quota: row.optional("quota")?,
            created_at: row.get("created_at")?,
        })
    }
}

impl Store {
    /// `Conflict` when the id or the name is taken.
    pub async fn create_tenant(&self, row: &TenantRow, audit: &Audit) -> Result<()> {
        let insert = sql("INSERT INTO tenants (id, name, quota, created_at) VALUES ($1, $2, $3, $4)");
        let insert = insert.bind(row.id).bind(&*row.name).bind(row.quota.as_ref()).bind(row.created_at);
        let audit = audit.clone();
        self.write(None, async move |writing| {
            writing.run(insert.clone()).await?;
            writing.audit(&audit).await?;
            Ok(Done::Keep(()))
        })
        .await
    }

    pub async fn tenant(&self, id: TenantId) -> Result<Option<TenantRow>> {
        let row = self.database().row(sql("SELECT * FROM tenants WHERE id = $1").bind(id)).await?;
        row.as_ref().map(TenantRow::read).transpose()
    }

    /// Oldest first.
    pub async fn tenants(&self) -> Result<Vec<TenantRow>> {
        let rows = self.database().rows(sql("SELECT * FROM tenants ORDER BY created_at, id")).await?;
        rows.iter().map(TenantRow::read).collect()
    }

    /// Whether there is such a tenant.
    pub async fn set_tenant_quota(&self, id: TenantId, quota: Option<&Json>, audit: &Audit) -> Result<bool> {
        let update = sql("UPDATE tenants SET quota = $2 WHERE id = $1").bind(id).bind(quota);
        let audit = audit.clone();
        self.write(Some(id), async move |writing| {
            if writing.run(update.clone()).await? == 0 {
                return Ok(Done::Undo(false));
            }
            writing.audit(&audit).await?;
            Ok(Done::Keep(true))
        })
        .await
    }
}
