//! One-shot runs.

use sandstorm_types::{RunId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::database::{Row, sql};
use crate::writing::{Done, Writing};
use crate::{Audit, Json, LedgerBill, LedgerEntry, Result, Store};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// Its entry in the ledger, on the way there; a row that was read has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<Box<LedgerEntry>>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunEnd {
    pub status: Option<String>,
    /// JSON, as text.
    pub result: Option<String>,
    pub problem: Option<Json>,
    pub at: Timestamp,
    /// What it cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bill: Option<LedgerBill>,
    /// What attempts of it cost that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<LedgerEntry>,
}

/// A run that ended before its beginning was recorded: both are one record.
#[derive(Debug, Clone, PartialEq)]
pub struct WholeRun {
    pub row: RunRow,
    /// The events that tell of its beginning, and of its end.
    pub started: Vec<Json>,
    pub audit: Audit,
    pub end: RunEnd,
    pub ended: Vec<Json>,
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
            entry: None,
        })
    }

    /// The row, which may have ended already, and the events that tell of it; gives their numbers.
    async fn insert(
        &self,
        writing: &mut Writing,
        events: &[Json],
        end: Option<(&RunEnd, &[Json])>,
    ) -> Result<Vec<u64>> {
        let text = "INSERT INTO runs (tenant, id, language, created_at, ended_at, status, result, problem, request_hash,
            node) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
        let insert = sql(text).bind(self.tenant).bind(self.id).bind(&*self.language).bind(self.created_at);
        let insert = match end {
            Some((RunEnd { status, result, problem, at, .. }, _)) => {
                insert.bind(*at).bind(status.clone()).bind(result.clone()).bind(problem.as_ref())
            }
            None => insert
                .bind(self.ended_at)
                .bind(self.status.clone())
                .bind(self.result.as_ref())
                .bind(self.problem.as_ref()),
        };
        let mut seqs = writing.events(self.tenant, None, self.created_at, events).await?;
        if let Some((end, events)) = end {
            seqs.extend(writing.events(self.tenant, None, end.at, events).await?);
        }
        writing.run(insert.bind(self.request_hash.clone()).bind(writing.owner())).await?;
        if let Some(entry) = &self.entry {
            let bill = end.and_then(|(end, _)| end.bill.as_ref());
            writing.ledger_entry(self.tenant, entry, bill.or(entry.bill.as_ref())).await?;
        }
        for attempt in end.iter().flat_map(|(end, _)| &end.attempts) {
            writing.ledger_entry(self.tenant, attempt, attempt.bill.as_ref()).await?;
        }
        Ok(seqs)
    }
}

impl RunEnd {
    /// The end and the events that tell of it; `None` when it had ended already or is unknown.
    async fn store(
        &self,
        writing: &mut Writing,
        tenant: TenantId,
        id: RunId,
        events: &[Json],
    ) -> Result<Option<Vec<u64>>> {
        let text = "UPDATE runs SET ended_at = $3, status = $4, result = $5, problem = $6
            WHERE tenant = $1 AND id = $2 AND ended_at IS NULL";
        let ours = if writing.is_fenced() { format!(" AND {}", writing.ours("node")) } else { String::new() };
        let update = sql(format!("{text}{ours}"))
            .bind(tenant)
            .bind(id)
            .bind(self.at)
            .bind(self.status.clone())
            .bind(self.result.clone())
            .bind(self.problem.as_ref());
        let seqs = writing.events(tenant, None, self.at, events).await?;
        if writing.run(update).await? != 1 {
            return Ok(None);
        }
        if let Some(bill) = &self.bill {
            writing.ledger_bill(tenant, &id.to_string(), bill).await?;
        }
        for attempt in &self.attempts {
            writing.ledger_entry(tenant, attempt, attempt.bill.as_ref()).await?;
        }
        Ok(Some(seqs))
    }
}

impl WholeRun {
    /// As part of a transaction.
    pub(crate) async fn store(&self, writing: &mut Writing) -> Result<Vec<u64>> {
        let seqs = self.row.insert(writing, &self.started, Some((&self.end, &self.ended))).await?;
        writing.audit(&self.audit).await?;
        Ok(seqs)
    }
}

impl Store {
    /// Row, events and audit in one transaction; gives the numbers of the events.
    pub async fn insert_run(&self, row: &RunRow, events: &[Json], audit: &Audit) -> Result<Vec<u64>> {
        let (row, events, audit) = (row.clone(), events.to_vec(), audit.clone());
        self.write(Some(row.tenant), async move |writing| {
            let seqs = row.insert(writing, &events, None).await?;
            writing.audit(&audit).await?;
            Ok(Done::Keep(seqs))
        })
        .await
    }

    /// All of a run in one transaction; gives the numbers of the events.
    pub async fn whole_run(&self, run: &WholeRun) -> Result<Vec<u64>> {
        let run = run.clone();
        self.write(Some(run.row.tenant), async move |writing| run.store(writing).await.map(Done::Keep)).await
    }

    /// The first end stands: `None` when it had ended already or is unknown, and then no event was stored.
    pub async fn end_run(
        &self,
        tenant: TenantId,
        id: RunId,
        end: &RunEnd,
        events: &[Json],
    ) -> Result<Option<Vec<u64>>> {
        let (end, events) = (end.clone(), events.to_vec());
        self.write(Some(tenant), async move |writing| {
            Ok(match end.store(writing, tenant, id, &events).await? {
                Some(seqs) => Done::Keep(Some(seqs)),
                None => Done::Undo(None),
            })
        })
        .await
    }

    pub async fn run(&self, tenant: TenantId, id: RunId) -> Result<Option<RunRow>> {
        let query = sql("SELECT * FROM runs WHERE tenant = $1 AND id = $2").bind(tenant).bind(id);
        self.settled().await?.row(query).await?.as_ref().map(RunRow::read).transpose()
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
        self.settled().await?.rows(query).await?.iter().map(RunRow::read).collect()
    }

    /// The other server that carries out a run which has not ended.
    pub async fn run_elsewhere(&self, tenant: TenantId, id: RunId) -> Result<Option<String>> {
        let Some(node) = self.fence().own_node() else { return Ok(None) };
        let text = "SELECT node FROM runs WHERE tenant = $1 AND id = $2 AND ended_at IS NULL AND node <> $3";
        let row = self.database().row(sql(text).bind(tenant).bind(id).bind(node)).await?;
        row.map(|row| row.get("node")).transpose()
    }

    /// Of all tenants, this server's: for recovery.
    pub async fn unfinished_runs(&self) -> Result<Vec<RunRow>> {
        self.unfinished_runs_of(self.fence().own_node()).await
    }

    pub(crate) async fn unfinished_runs_of(&self, node: Option<&str>) -> Result<Vec<RunRow>> {
        let query = match node {
            Some(node) => {
                sql("SELECT * FROM runs WHERE ended_at IS NULL AND node = $1 ORDER BY id").bind(node)
            }
            None => sql("SELECT * FROM runs WHERE ended_at IS NULL ORDER BY id"),
        };
        self.database().rows(query).await?.iter().map(RunRow::read).collect()
    }
}
