//! One-shot runs.

use sandstorm_types::{RunId, TenantId, Timestamp};

use crate::database::{Row, sql};
use crate::writing::Done;
use crate::{Audit, Json, Result, Store};

#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    pub id: RunId,
    pub tenant: TenantId,
    pub language: String,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub status: Option<String>,
    pub result: Option<Json>,
    /// Why Sandstorm itself failed, when it did.
    pub problem: Option<Json>,
    pub request_hash: Option<String>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEnd {
    pub status: Option<String>,
    /// JSON, as text.
    pub result: Option<String>,
    pub problem: Option<Json>,
    pub at: Timestamp,
}

impl RunRow {
    fn read(row: &Row) -> Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            tenant: row.get("tenant")?,
            language: row.get("language")?,
            created_at: row.get("created_at")?,
            ended_at: row.optional("ended_at")?,
            status: row.optional("status")?,
            result: row.optional("result")?,
            problem: row.optional("problem")?,
            request_hash: row.optional("request_hash")?,
        })
    }
}

impl Store {
    /// Row, events and audit in one transaction; gives the numbers of the events.
    pub async fn insert_run(&self, row: &RunRow, events: &[Json], audit: &Audit) -> Result<Vec<u64>> {
        let text = "INSERT INTO runs (tenant, id, language, created_at, ended_at, status, result, problem, request_hash)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let insert = sql(text)
            .bind(row.tenant)
            .bind(row.id)
            .bind(&*row.language)
            .bind(row.created_at)
            .bind(row.ended_at)
            .bind(row.status.clone())
            .bind(row.result.as_ref())
            .bind(row.problem.as_ref())
            .bind(row.request_hash.clone());
        let (tenant, at, events, audit) = (row.tenant, row.created_at, events.to_vec(), audit.clone());
        self.write(Some(tenant), async move |writing| {
            let seqs = writing.events(tenant, None, at, &events).await?;
            writing.run(insert.clone()).await?;
            writing.audit(&audit).await?;
            Ok(Done::Keep(seqs))
        })
        .await
    }

    /// The first end stands: `None` when it had ended already or is unknown, and then no event was stored.
    pub async fn end_run(
        &self,
        tenant: TenantId,
        id: RunId,
        end: &RunEnd,
        events: &[Json],
    ) -> Result<Option<Vec<u64>>> {
        let text = "UPDATE runs SET ended_at = $3, status = $4, result = $5, problem = $6
            WHERE tenant = $1 AND id = $2 AND ended_at IS NULL";
        let update = sql(text)
            .bind(tenant)
            .bind(id)
            .bind(end.at)
            .bind(end.status.clone())
            .bind(end.result.clone())
            .bind(end.problem.as_ref());
        let (at, events) = (end.at, events.to_vec());
        self.write(Some(tenant), async move |writing| {
            let seqs = writing.events(tenant, None, at, &events).await?;
            let ended = writing.run(update.clone()).await? == 1;
            Ok(if ended { Done::Keep(Some(seqs)) } else { Done::Undo(None) })
        })
        .await
    }

    pub async fn run(&self, tenant: TenantId, id: RunId) -> Result<Option<RunRow>> {
        let query = sql("SELECT * FROM runs WHERE tenant = $1 AND id = $2").bind(tenant).bind(id);
        self.database().row(query).await?.as_ref().map(RunRow::read).transpose()
    }

    /// Newest first; only what comes after `before` in the list.
    pub async fn list_runs(
        &self,
        tenant: TenantId,
        running_only: bool,
        before: Option<(Timestamp, RunId)>,
        limit: u32,
    ) -> Result<Vec<RunRow>> {
        // Two texts, since each has an index of its own.
        let text = if running_only {
            "SELECT * FROM runs WHERE tenant = $1 AND ended_at IS NULL AND (created_at, id) < ($2, $3)
                ORDER BY created_at DESC, id DESC LIMIT $4"
        } else {
            "SELECT * FROM runs WHERE tenant = $1 AND (created_at, id) < ($2, $3)
                ORDER BY created_at DESC, id DESC LIMIT $4"
        };
        // Without a place to go on from, one behind every other.
        let (at, id) = before.unwrap_or((Timestamp::from_millis(i64::MAX), RunId::from_bits(u128::MAX)));
        let query = sql(text).bind(tenant).bind(at).bind(id).bind(limit);
        self.database().rows(query).await?.iter().map(RunRow::read).collect()
    }

    /// Of all tenants, for recovery.
    pub async fn unfinished_runs(&self) -> Result<Vec<RunRow>> {
        let rows = self.database().rows(sql("SELECT * FROM runs WHERE ended_at IS NULL ORDER BY id")).await?;
        rows.iter().map(RunRow::read).collect()
    }
}
