//! What happened, numbered within a tenant without gaps.

use sandstorm_types::{SandboxId, TenantId, Timestamp};

use crate::database::{Row, sql};
use crate::writing::Done;
use crate::{Json, Result, Store};

#[derive(Debug, Clone, PartialEq)]
pub struct EventRow {
    pub tenant: TenantId,
    /// From 1, without gaps; whoever saw one has seen all before it.
    pub seq: u64,
    pub at: Timestamp,
    pub sandbox: Option<SandboxId>,
    pub body: Json,
}

impl EventRow {
    fn read(row: &Row) -> Result<Self> {
        Ok(Self {
            tenant: row.get("tenant")?,
            seq: row.get("seq")?,
            at: row.get("at")?,
            sandbox: row.optional("sandbox")?,
            body: row.get("body")?,
        })
    }
}

impl Store {
    /// Gives its number.
    pub async fn append_event(
        &self,
        tenant: TenantId,
        sandbox: Option<SandboxId>,
        at: Timestamp,
        body: &Json,
    ) -> Result<u64> {
        let body = body.clone();
        self.write(Some(tenant), async move |writing| {
            let seqs = writing.events(tenant, sandbox, at, std::slice::from_ref(&body)).await?;
            Ok(Done::Keep(*seqs.first().expect("one body gives one number")))
        })
        .await
    }

    /// Oldest first.
    pub async fn events_after(
        &self,
        tenant: TenantId,
        sandbox: Option<SandboxId>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<EventRow>> {
        let query = match sandbox {
            Some(sandbox) => {
                let by_sandbox = self.database().by_index("events_by_sandbox");
                let text = format!(
                    "SELECT * FROM events {by_sandbox} WHERE tenant = $1 AND seq > $2 AND sandbox = $4
                    ORDER BY seq LIMIT $3"
                );
                sql(text).bind(tenant).bind(after).bind(limit).bind(sandbox)
            }
            None => sql("SELECT * FROM events WHERE tenant = $1 AND seq > $2 ORDER BY seq LIMIT $3")
                .bind(tenant)
                .bind(after)
                .bind(limit),
        };
        self.settled().await?.rows(query).await?.iter().map(EventRow::read).collect()
    }

    /// The newest number; 0 before the first.
    pub async fn last_event(&self, tenant: TenantId) -> Result<u64> {
        let query = sql("SELECT MAX(last) AS last FROM (SELECT event_seq AS last FROM tenants WHERE id = $1
            UNION ALL SELECT MAX(seq) AS last FROM events WHERE tenant = $1) AS counted");
        let row = self.settled().await?.row(query.bind(tenant)).await?;
        Ok(row.map_or(Ok(None), |row| row.optional("last"))?.unwrap_or(0))
    }
}
