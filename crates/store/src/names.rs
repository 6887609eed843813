//! Names that tenants give to sandboxes, unique by kind.

use sandstorm_types::{SandboxId, TenantId};

use crate::database::sql;
use crate::writing::Done;
use crate::{Result, Store};

/// Whether a name could be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    Claimed,
    /// By this one.
    Taken(SandboxId),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameRow {
    pub name: String,
    pub sandbox: SandboxId,
}

impl Store {
    /// Atomic: of two callers one gets the name. The sandbox need not exist yet, and a name of one that ended is taken
    /// until it is released.
    pub async fn claim_name(
        &self,
        tenant: TenantId,
        kind: &str,
        name: &str,
        id: SandboxId,
    ) -> Result<Claimed> {
        let claim = "INSERT INTO names (tenant, kind, name, sandbox, node) VALUES ($1, $2, $3, $4, $5)
            ON CONFLICT (tenant, kind, name) DO NOTHING";
        loop {
            let claim = sql(claim).bind(tenant).bind(kind).bind(name).bind(id);
            let claimed = self.write(None, async move |writing| {
                let claim = claim.clone().bind(writing.owner());
                Ok(Done::Keep(writing.run(claim).await? == 1))
            });
            if claimed.await? {
                return Ok(Claimed::Claimed);
            }
            // Released in between: try again.
            if let Some(owner) = self.name(tenant, kind, name).await? {
                return Ok(if owner == id { Claimed::Claimed } else { Claimed::Taken(owner) });
            }
        }
    }

    pub async fn name(&self, tenant: TenantId, kind: &str, name: &str) -> Result<Option<SandboxId>> {
        let query = sql("SELECT sandbox FROM names WHERE tenant = $1 AND kind = $2 AND name = $3");
        let row = self.database().row(query.bind(tenant).bind(kind).bind(name)).await?;
        row.map(|row| row.get("sandbox")).transpose()
    }

    /// Only if it still belongs to `id`, so that a late release cannot take it from its next owner.
    pub async fn release_name(
        &self,
        tenant: TenantId,
        kind: &str,
        name: &str,
        id: SandboxId,
    ) -> Result<bool> {
        let release = sql("DELETE FROM names WHERE tenant = $1 AND kind = $2 AND name = $3 AND sandbox = $4");
        let release = release.bind(tenant).bind(kind).bind(name).bind(id);
        self.write(None, async move |writing| Ok(Done::Keep(writing.run(release.clone()).await? == 1))).await
    }

    /// The same for a name whose sandbox is not on record. It is left alone if a server that lives has claimed it, which
    /// may be about to make the sandbox.
    pub async fn release_unmade(
        &self,
        tenant: TenantId,
        kind: &str,
        name: &str,
        id: SandboxId,
    ) -> Result<bool> {
        let release = "DELETE FROM names WHERE tenant = $1 AND kind = $2 AND name = $3 AND sandbox = $4";
        let values = sql(release).bind(tenant).bind(kind).bind(name).bind(id);
        self.write(None, async move |writing| {
            let release = match writing.is_fenced() {
                true => values
                    .clone()
                    .and(format!(" AND ({} OR node NOT IN (SELECT node FROM leases))", writing.ours("node"))),
                false => values.clone(),
            };
            Ok(Done::Keep(writing.run(release).await? == 1))
        })
        .await
    }

    /// By name.
    pub async fn names(&self, tenant: TenantId, kind: &str) -> Result<Vec<NameRow>> {
        let query = sql("SELECT name, sandbox FROM names WHERE tenant = $1 AND kind = $2 ORDER BY name");
        let rows = self.database().rows(query.bind(tenant).bind(kind)).await?;
        rows.iter().map(|row| Ok(NameRow { name: row.get("name")?, sandbox: row.get("sandbox")? })).collect()
    }
}
