//! Programs and pieces of code in sandboxes.

use sandstorm_types::{ContextId, ExecId, SandboxId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::database::{Row, sql};
use crate::writing::{Done, Writing};
use crate::{Audit, Json, Result, Store};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecRow {
    pub id: ExecId,
    pub tenant: TenantId,
    pub sandbox: SandboxId,
    pub context: Option<ContextId>,
    pub title: String,
    pub kind: String,
    pub background: bool,
    pub tty: bool,
    pub lasting: bool,
    pub timeout_ms: Option<i64>,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub status: Option<String>,
    pub result: Option<Json>,
    pub detail: Option<Json>,
}

/// How an exec ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecEnd {
    pub status: String,
    /// JSON, as text.
    pub result: Option<String>,
    pub at: Timestamp,
}

impl ExecRow {
    fn read(row: &Row) -> Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            tenant: row.get("tenant")?,
            sandbox: row.get("sandbox")?,
            context: row.optional("context")?,
            title: row.get("title")?,
            kind: row.get("kind")?,
            background: row.get("background")?,
            tty: row.get("tty")?,
            lasting: row.get("lasting")?,
            timeout_ms: row.optional("timeout_ms")?,
            started_at: row.get("started_at")?,
            ended_at: row.optional("ended_at")?,
            status: row.optional("status")?,
            result: row.optional("result")?,
            detail: row.optional("detail")?,
        })
    }

    /// Row and events, as part of a transaction.
    pub(crate) async fn insert(&self, writing: &mut Writing, events: &[Json]) -> Result<Vec<u64>> {
        let seqs = writing.events(self.tenant, Some(self.sandbox), self.started_at, events).await?;
        let result = self.result.as_ref().map(Json::to_string);
        self.insert_row(writing, self.ended_at, self.status.clone(), result).await?;
        Ok(seqs)
    }

    /// The same of one that has ended.
    pub(crate) async fn insert_ended(
        &self,
        writing: &mut Writing,
        started: &[Json],
        end: &ExecEnd,
        ended: &[Json],
    ) -> Result<Vec<u64>> {
        let mut seqs = writing.events(self.tenant, Some(self.sandbox), self.started_at, started).await?;
        seqs.extend(writing.events(self.tenant, Some(self.sandbox), end.at, ended).await?);
        self.insert_row(writing, Some(end.at), Some(end.status.clone()), end.result.clone()).await?;
        Ok(seqs)
    }

    async fn insert_row(
        &self,
        writing: &mut Writing,
        ended_at: Option<Timestamp>,
        status: Option<String>,
        result: Option<String>,
    ) -> Result<()> {
        let text = "INSERT INTO execs (tenant, sandbox, id, context, title, kind, background, tty, lasting, timeout_ms,
            started_at, ended_at, status, result, detail)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)";
        let insert = sql(text)
            .bind(self.tenant)
            .bind(self.sandbox)
            .bind(self.id)
            .bind(self.context)
            .bind(&*self.title)
            .bind(&*self.kind)
            .bind(self.background)
            .bind(self.tty)
            .bind(self.lasting)
            .bind(self.timeout_ms)
            .bind(self.started_at)
            .bind(ended_at)
            .bind(status)
            .bind(result)
            .bind(self.detail.as_ref());
        writing.run(insert).await.map(drop)
    }
}

impl ExecEnd {
    /// Row and events, as part of a transaction; `None` when it had ended already or is unknown.
    pub(crate) async fn store(
        &self,
        writing: &mut Writing,
        tenant: TenantId,
        id: ExecId,
        events: &[Json],
    ) -> Result<Option<Vec<u64>>> {
        // The sandbox of the events, read before the tenant is held and the row changed.
        let mut running =
            "SELECT sandbox FROM execs WHERE tenant = $1 AND id = $2 AND ended_at IS NULL".to_owned();
        if writing.is_fenced() {
            running += &writing.in_ours("execs.sandbox");
        }
        let running = sql(running);
        let Some(row) = writing.row(running.bind(tenant).bind(id)).await? else { return Ok(None) };
        let seqs = writing.events(tenant, Some(row.get("sandbox")?), self.at, events).await?;
        let end = "UPDATE execs SET ended_at = $3, status = $4, result = $5
            WHERE tenant = $1 AND id = $2 AND ended_at IS NULL";
        let end = sql(end).bind(tenant).bind(id).bind(self.at).bind(&*self.status).bind(self.result.clone());
        Ok((writing.run(end).await? == 1).then_some(seqs))
    }
}

impl Store {
    /// Row, events and audit in one transaction; gives the numbers of the events.
    pub async fn insert_exec(&self, row: &ExecRow, events: &[Json], audit: &Audit) -> Result<Vec<u64>> {
        let (row, events, audit) = (row.clone(), events.to_vec(), audit.clone());
        self.write(Some(row.tenant), async move |writing| {
            let seqs = row.insert(writing, &events).await?;
            writing.audit(&audit).await?;
            Ok(Done::Keep(seqs))
        })
        .await
    }

    /// The first end stands: `None` when it had ended already or is unknown, and then no event was stored.
    pub async fn end_exec(
        &self,
        tenant: TenantId,
        id: ExecId,
        end: &ExecEnd,
        events: &[Json],
    ) -> Result<Option<Vec<u64>>> {
        let (end, events) = (end.clone(), events.to_vec());
        self.write(Some(tenant), async move |writing| {
            let seqs = end.store(writing, tenant, id, &events).await?;
            Ok(if seqs.is_some() { Done::Keep(seqs) } else { Done::Undo(None) })
        })
        .await
    }

    pub async fn exec(&self, tenant: TenantId, sandbox: SandboxId, id: ExecId) -> Result<Option<ExecRow>> {
        let query = sql("SELECT * FROM execs WHERE tenant = $1 AND sandbox = $2 AND id = $3");
        let row = self.settled().await?.row(query.bind(tenant).bind(sandbox).bind(id)).await?;
        row.as_ref().map(ExecRow::read).transpose()
    }

    /// Newest first.
    pub async fn list_execs(
        &self,
        tenant: TenantId,
        sandbox: SandboxId,
        running_only: bool,
        limit: u32,
    ) -> Result<Vec<ExecRow>> {
        let query = sql(if running_only {
            "SELECT * FROM execs WHERE tenant = $1 AND sandbox = $2 AND ended_at IS NULL
                ORDER BY started_at DESC, id DESC LIMIT $3"
        } else {
            "SELECT * FROM execs WHERE tenant = $1 AND sandbox = $2 ORDER BY started_at DESC, id DESC LIMIT $3"
        });
        let rows = self.settled().await?.rows(query.bind(tenant).bind(sandbox).bind(limit)).await?;
        rows.iter().map(ExecRow::read).collect()
    }

    /// Of all tenants, in this server's sandboxes: for recovery.
    pub async fn running_execs(&self) -> Result<Vec<ExecRow>> {
        self.running_execs_of(self.fence().own_node()).await
    }

    pub(crate) async fn running_execs_of(&self, node: Option<&str>) -> Result<Vec<ExecRow>> {
        let query = match node {
            Some(node) => {
                sql("SELECT e.* FROM execs e JOIN sandboxes s ON s.tenant = e.tenant AND s.id = e.sandbox
                WHERE e.ended_at IS NULL AND s.node = $1 ORDER BY e.id")
                .bind(node)
            }
            None => sql("SELECT * FROM execs WHERE ended_at IS NULL ORDER BY id"),
        };
        self.database().rows(query).await?.iter().map(ExecRow::read).collect()
    }
}
