//! Living interpreters of sandboxes, and their cells.

use sandstorm_types::{ContextId, ExecId, SandboxId, TenantId, Timestamp};

use crate::database::{Row, sql};
use crate::writing::{Done, Writing};
use crate::{Audit, ExecEnd, ExecRow, Json, Result, Store, StoreError};

#[derive(Debug, Clone, PartialEq)]
pub struct ContextRow {
    pub id: ContextId,
    pub tenant: TenantId,
    pub sandbox: SandboxId,
    pub language: String,
    pub cwd: String,
    pub env: Json,
    /// The interpreter's own exec.
    pub exec: ExecId,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// How far the interpreter's side channel was read.
    pub position: i64,
    pub next_cell: i64,
    /// The exec of the cell that runs.
    pub cell_exec: Option<ExecId>,
    pub execution_count: i64,
}

/// What changes. `None` leaves a field as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContextChanges {
    pub exec: Option<ExecId>,
    pub position: Option<i64>,
    pub next_cell: Option<i64>,
    /// `Some(None)`: no cell runs.
    pub cell_exec: Option<Option<ExecId>>,
    pub execution_count: Option<i64>,
    /// The first end stands.
    pub ended_at: Option<Timestamp>,
}

/// A cell that ended before its beginning was recorded: both, and what it changed of its context, are one record.
#[derive(Debug, Clone, PartialEq)]
pub struct WholeCell {
    pub row: ExecRow,
    /// The events that tell of its beginning, and of its end.
    pub started: Vec<Json>,
    pub audit: Audit,
    pub end: ExecEnd,
    pub changes: ContextChanges,
    pub ended: Vec<Json>,
}

impl WholeCell {
    /// As part of a transaction.
    pub(crate) async fn store(&self, writing: &mut Writing) -> Result<Vec<u64>> {
        let Self { row, started, audit, end, changes, ended } = self;
        let context = row.context.ok_or_else(no_context)?;
        let seqs = row.insert_ended(writing, started, end, ended).await?;
        let changed = changes.apply(writing, row.tenant, context).await?;
        changed.filter(|context| context.sandbox == row.sandbox).ok_or_else(no_context)?;
        writing.audit(audit).await?;
        Ok(seqs)
    }
}

pub(crate) fn no_context() -> StoreError {
    StoreError::Invalid { what: "a cell needs a context that exists".to_owned() }
}

impl ContextRow {
    fn read(row: &Row) -> Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            tenant: row.get("tenant")?,
            sandbox: row.get("sandbox")?,
            language: row.get("language")?,
            cwd: row.get("cwd")?,
            env: row.get("env")?,
            exec: row.get("exec")?,
            created_at: row.get("created_at")?,
            ended_at: row.optional("ended_at")?,
            position: row.get("position")?,
            next_cell: row.get("next_cell")?,
            cell_exec: row.optional("cell_exec")?,
            execution_count: row.get("execution_count")?,
        })
    }
}

impl ContextChanges {
    /// As part of a transaction.
    async fn apply(
        &self,
        writing: &mut Writing,
        tenant: TenantId,
        id: ContextId,
    ) -> Result<Option<ContextRow>> {
        // `$6` says whether the running cell changes, since it may change to none. Whoever does not end it does not name
        // its end either, or SQLite would write the index of those that live.
        const CHANGES: &str =
            "UPDATE contexts SET exec = COALESCE($3, exec), position = COALESCE($4, position),
            next_cell = COALESCE($5, next_cell), cell_exec = CASE WHEN $6 = 1 THEN $7 ELSE cell_exec END,
            execution_count = COALESCE($8, execution_count)";
        const WHICH: &str = "WHERE tenant = $1 AND id = $2";
        let ended = if self.ended_at.is_some() { ", ended_at = COALESCE(ended_at, $9)" } else { "" };
        let ours = if writing.is_fenced() { writing.in_ours("contexts.sandbox") } else { String::new() };
        let text = format!("{CHANGES}{ended} {WHICH}{ours} RETURNING *");
        let update = sql(text)
            .bind(tenant)
            .bind(id)
            .bind(self.exec)
            .bind(self.position)
            .bind(self.next_cell)
            .bind(self.cell_exec.is_some())
            .bind(self.cell_exec.flatten())
            .bind(self.execution_count);
        let update = if self.ended_at.is_some() { update.bind(self.ended_at) } else { update };
        writing.row(update).await?.as_ref().map(ContextRow::read).transpose()
    }
}

impl Store {
    pub async fn insert_context(&self, row: &ContextRow, audit: &Audit) -> Result<()> {
        let text = "INSERT INTO contexts (tenant, sandbox, id, language, cwd, env, exec, created_at, ended_at, position,
            next_cell, cell_exec, execution_count) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
        let insert = sql(text)
            .bind(row.tenant)
            .bind(row.sandbox)
            .bind(row.id)
            .bind(&*row.language)
            .bind(&*row.cwd)
            .bind(&row.env)
            .bind(row.exec)
            .bind(row.created_at)
            .bind(row.ended_at)
            .bind(row.position)
            .bind(row.next_cell)
            .bind(row.cell_exec)
            .bind(row.execution_count);
        let audit = audit.clone();
        self.write(Some(row.tenant), async move |writing| {
            writing.run(insert.clone()).await?;
            writing.audit(&audit).await?;
            Ok(Done::Keep(()))
        })
        .await
    }

    /// The row after it; `None` when there is no such context.
    pub async fn update_context(
        &self,
        tenant: TenantId,
        id: ContextId,
        changes: &ContextChanges,
    ) -> Result<Option<ContextRow>> {
        let changes = changes.clone();
        self.write(Some(tenant), async move |writing| {
            changes.apply(writing, tenant, id).await.map(Done::Keep)
        })
        .await
    }

    /// Also one that has ended.
    pub async fn context(
        &self,
        tenant: TenantId,
        sandbox: SandboxId,
        id: ContextId,
    ) -> Result<Option<ContextRow>> {
        let query = sql("SELECT * FROM contexts WHERE tenant = $1 AND sandbox = $2 AND id = $3");
        let row = self.settled().await?.row(query.bind(tenant).bind(sandbox).bind(id)).await?;
        row.as_ref().map(ContextRow::read).transpose()
    }

    /// Those that have not ended, oldest first.
    pub async fn contexts(&self, tenant: TenantId, sandbox: SandboxId) -> Result<Vec<ContextRow>> {
        let query = sql("SELECT * FROM contexts WHERE tenant = $1 AND sandbox = $2 AND ended_at IS NULL
            ORDER BY created_at, id");
        let rows = self.settled().await?.rows(query.bind(tenant).bind(sandbox)).await?;
        rows.iter().map(ContextRow::read).collect()
    }

    /// Of all tenants, those in this server's sandboxes that have not ended: for recovery.
    pub async fn living_contexts(&self) -> Result<Vec<ContextRow>> {
        self.living_contexts_of(self.fence().own_node()).await
    }

    pub(crate) async fn living_contexts_of(&self, node: Option<&str>) -> Result<Vec<ContextRow>> {
        let query = match node {
            Some(node) => sql("SELECT c.* FROM contexts c
                JOIN sandboxes s ON s.tenant = c.tenant AND s.id = c.sandbox
                WHERE c.ended_at IS NULL AND s.node = $1 ORDER BY c.id")
            .bind(node),
            None => sql("SELECT * FROM contexts WHERE ended_at IS NULL ORDER BY id"),
        };
        self.database().rows(query).await?.iter().map(ContextRow::read).collect()
    }

    /// The exec row of a cell and what it changes of its context (`cell.context`), in one transaction.
    pub async fn begin_cell(
        &self,
        cell: &ExecRow,
        changes: &ContextChanges,
        events: &[Json],
        audit: &Audit,
    ) -> Result<Vec<u64>> {
        let context = cell.context.ok_or_else(no_context)?;
        let (cell, changes) = (cell.clone(), changes.clone());
        let (events, audit) = (events.to_vec(), audit.clone());
        self.write(Some(cell.tenant), async move |writing| {
            let seqs = cell.insert(writing, &events).await?;
            let row = changes.apply(writing, cell.tenant, context).await?;
            row.filter(|row| row.sandbox == cell.sandbox).ok_or_else(no_context)?;
            writing.audit(&audit).await?;
            Ok(Done::Keep(seqs))
        })
        .await
    }

    /// All of a cell in one transaction; gives the numbers of the events.
    pub async fn whole_cell(&self, cell: &WholeCell) -> Result<Vec<u64>> {
        let cell = cell.clone();
        self.write(Some(cell.row.tenant), async move |writing| cell.store(writing).await.map(Done::Keep))
            .await
    }

    /// The end of a cell and what it changes of its context, in one transaction. When the cell had ended already
    /// nothing is changed and the answer is `None`.
    pub async fn end_cell(
        &self,
        tenant: TenantId,
        cell: ExecId,
        end: &ExecEnd,
        context: ContextId,
        changes: &ContextChanges,
        events: &[Json],
    ) -> Result<Option<Vec<u64>>> {
        let (end, changes, events) = (end.clone(), changes.clone(), events.to_vec());
        self.write(Some(tenant), async move |writing| {
            let Some(seqs) = end.store(writing, tenant, cell, &events).await? else {
                return Ok(Done::Undo(None));
            };
            changes.apply(writing, tenant, context).await?;
            Ok(Done::Keep(Some(seqs)))
        })
        .await
    }
}
