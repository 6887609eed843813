//! Saved sandboxes: whose they are, who keeps them, and what they were.

use sandstorm_types::{SandboxId, SandboxSpec, SnapshotId, TenantId, Timestamp};

use crate::database::{Row, Statement, Value, sql};
use crate::writing::{Done, Writing};
use crate::{Audit, LedgerEntry, QuotaKind, Result, Store, StoreError};

#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotRow {
    pub id: SnapshotId,
    pub tenant: TenantId,
    /// The sandbox that was saved; it may be gone.
    pub sandbox: SandboxId,
    /// Of all of a tenant's, one has a name.
    pub name: Option<String>,
    /// Who keeps it.
    pub provider: String,
    /// What the sandbox was.
    pub spec: SandboxSpec,
    pub state: SnapshotState,
    /// Zero where nobody can tell.
    pub size_bytes: u64,
    pub created_at: Timestamp,
    /// Public id of the key that asked for it.
    pub key: String,
    /// Until then the ledger has what keeping it costs.
    pub charged_until: Timestamp,
}

/// How far a snapshot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotState {
    /// There may be something of it.
    Making,
    Ready,
    /// There may still be something of it.
    Ending,
}

impl SnapshotState {
    fn name(self) -> &'static str {
        match self {
            Self::Making => "making",
            Self::Ready => "ready",
            Self::Ending => "ending",
        }
    }

    fn parse(name: &str) -> Result<Self> {
        [Self::Making, Self::Ready, Self::Ending]
            .into_iter()
            .find(|state| state.name() == name)
            .ok_or_else(|| StoreError::corrupt(format!("there is no state {name} of a snapshot")))
    }
}

/// Ceilings of a tenant, over all of its snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotRoom {
    pub count: u32,
    pub bytes: u64,
}

/// Which snapshots to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapshotFilter {
    pub sandbox: Option<SandboxId>,
    pub name: Option<String>,
    /// Only what is kept there.
    pub provider: Option<String>,
    /// Only what comes after this one in the list.
    pub before: Option<(Timestamp, SnapshotId)>,
    pub limit: u32,
}

impl SnapshotRow {
    fn read(row: &Row) -> Result<Self> {
        let spec: String = row.get("spec")?;
        let spec = serde_json::from_str(&spec).map_err(|error| StoreError::Corrupt {
            what: "the spec of a snapshot cannot be read".to_owned(),
            source: Some(Box::new(error)),
        })?;
        Ok(Self {
            id: row.get("id")?,
            tenant: row.get("tenant")?,
            sandbox: row.get("sandbox")?,
            name: row.optional("name")?,
            provider: row.get("provider")?,
            spec,
            state: SnapshotState::parse(&row.get::<String>("state")?)?,
            size_bytes: row.get("size_bytes")?,
            created_at: row.get("created_at")?,
            key: row.get("key")?,
            charged_until: row.get("charged_until")?,
        })
    }
}

impl Store {
    /// The intent: written before anything is saved. Gives the bytes that are left of the ceiling; `QuotaExceeded` when
    /// there is none, or one snapshot too many. Counting and inserting are one transaction.
    pub async fn insert_snapshot(&self, row: &SnapshotRow, room: SnapshotRoom, audit: &Audit) -> Result<u64> {
        let spec = serde_json::to_string(&row.spec).map_err(|_| StoreError::Invalid {
            what: "the spec of a snapshot cannot be written".to_owned(),
        })?;
        let text =
            "INSERT INTO snapshots (tenant, id, sandbox, name, provider, spec, state, size_bytes, created_at, key, charged_until,
            node) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
        let insert = sql(text)
            .bind(row.tenant)
            .bind(row.id)
            .bind(row.sandbox)
            .bind(row.name.clone())
            .bind(&*row.provider)
            .bind(spec)
            .bind(row.state.name())
            .bind(row.size_bytes)
            .bind(row.created_at)
            .bind(&*row.key)
            .bind(row.charged_until);
        let (tenant, audit) = (row.tenant, audit.clone());
        self.write(Some(tenant), async move |writing| {
            let left = room.check(writing, tenant).await?;
            writing.run(insert.clone().bind(writing.owner())).await?;
            writing.audit(&audit).await?;
            Ok(Done::Keep(left))
        })
        .await
    }

    /// All of it is there. A name that another one has is taken from that one. `None` when there is none that is being
    /// made; `QuotaExceeded` when others that were made meanwhile left no room for it.
    pub async fn finish_snapshot(
        &self,
        tenant: TenantId,
        id: SnapshotId,
        name: Option<&str>,
        size_bytes: u64,
        room: SnapshotRoom,
    ) -> Result<Option<SnapshotRow>> {
        let take = sql("UPDATE snapshots SET name = NULL WHERE tenant = $1 AND name = $2");
        let take = name.map(|name| take.bind(tenant).bind(name));
        let text = "UPDATE snapshots SET state = 'ready', name = $3, size_bytes = $4
            WHERE tenant = $1 AND id = $2 AND state = 'making' RETURNING *";
        let finish = sql(text).bind(tenant).bind(id).bind(name.map(str::to_owned)).bind(size_bytes);
        self.write(Some(tenant), async move |writing| {
            hold(writing, tenant).await?;
            if let Some(take) = &take {
                writing.run(take.clone()).await?;
            }
            let Some(row) = writing.row(finish.clone()).await? else { return Ok(Done::Undo(None)) };
            let (_, bytes) = kept(writing, tenant).await?;
            if bytes > room.bytes {
                let used = bytes.saturating_sub(size_bytes);
                return Err(exceeded(QuotaKind::SnapshotBytes, used, size_bytes, room.bytes));
            }
            SnapshotRow::read(&row).map(|row| Done::Keep(Some(row)))
        })
        .await
    }

    /// Nobody finds it from now on. Gives it as it was, `None` when there is none; one that is being made is left as it is.
    pub async fn end_snapshot(
        &self,
        tenant: TenantId,
        id: SnapshotId,
        audit: Option<&Audit>,
    ) -> Result<Option<SnapshotRow>> {
        let find = sql("SELECT * FROM snapshots WHERE tenant = $1 AND id = $2").bind(tenant).bind(id);
        let text = "UPDATE snapshots SET name = NULL, state = 'ending' WHERE tenant = $1 AND id = $2";
        let (end, audit) = (sql(text).bind(tenant).bind(id), audit.cloned());
        self.write(Some(tenant), async move |writing| {
            hold(writing, tenant).await?;
            let Some(row) = writing.row(find.clone()).await? else { return Ok(Done::Undo(None)) };
            let row = SnapshotRow::read(&row)?;
            keep_off(writing, tenant, id).await?;
            if row.state == SnapshotState::Making {
                return Ok(Done::Undo(Some(row)));
            }
            writing.run(end.clone()).await?;
            if let Some(audit) = &audit {
                writing.audit(audit).await?;
            }
            Ok(Done::Keep(Some(row)))
        })
        .await
    }

    /// Nothing of it is left. One that is ready is not forgotten.
    pub async fn forget_snapshot(&self, tenant: TenantId, id: SnapshotId) -> Result<bool> {
        let delete = sql("DELETE FROM snapshots WHERE tenant = $1 AND id = $2 AND state <> 'ready'");
        let delete = delete.bind(tenant).bind(id);
        self.write(Some(tenant), async move |writing| Ok(Done::Keep(writing.run(delete.clone()).await? == 1)))
            .await
    }

    /// Puts into the ledger what keeping one cost until then, unless somebody else has. Without an entry it cost nothing.
    pub async fn charge_snapshot(
        &self,
        row: &SnapshotRow,
        until: Timestamp,
        entry: Option<LedgerEntry>,
    ) -> Result<bool> {
        let text =
            "UPDATE snapshots SET charged_until = $4 WHERE tenant = $1 AND id = $2 AND charged_until = $3";
        let update = sql(text).bind(row.tenant).bind(row.id).bind(row.charged_until).bind(until);
        let tenant = row.tenant;
        self.write(Some(tenant), async move |writing| {
            if writing.run(update.clone()).await? == 0 {
                return Ok(Done::Undo(false));
            }
            if let Some(entry) = &entry {
                writing.ledger_entry(tenant, entry, entry.bill.as_ref()).await?;
            }
            Ok(Done::Keep(true))
        })
        .await
    }

    /// Those that are kept and were charged for before then only, of whatever tenant, the longest waiting first.
    pub async fn uncharged_snapshots(&self, before: Timestamp, limit: u32) -> Result<Vec<SnapshotRow>> {
        let text = "SELECT * FROM snapshots WHERE state = 'ready' AND charged_until < $1 ORDER BY charged_until LIMIT $2";
        let rows = self.database().rows(sql(text).bind(before).bind(limit)).await?;
        rows.iter().map(SnapshotRow::read).collect()
    }

    /// One that is ready.
    pub async fn snapshot(&self, tenant: TenantId, id: SnapshotId) -> Result<Option<SnapshotRow>> {
        let query = sql("SELECT * FROM snapshots WHERE tenant = $1 AND id = $2 AND state = 'ready'");
        let row = self.database().row(query.bind(tenant).bind(id)).await?;
        row.as_ref().map(SnapshotRow::read).transpose()
    }

    /// One in whatever state, for the server that has to find out what became of it.
    pub async fn snapshot_in_any_state(
        &self,
        tenant: TenantId,
        id: SnapshotId,
    ) -> Result<Option<SnapshotRow>> {
        let query = sql("SELECT * FROM snapshots WHERE tenant = $1 AND id = $2");
        let row = self.database().row(query.bind(tenant).bind(id)).await?;
        row.as_ref().map(SnapshotRow::read).transpose()
    }

    /// Those that are ready, newest first.
    pub async fn list_snapshots(
        &self,
        tenant: TenantId,
        filter: &SnapshotFilter,
    ) -> Result<Vec<SnapshotRow>> {
        let mut text = "SELECT * FROM snapshots WHERE tenant = $1 AND state = 'ready'".to_owned();
        let mut values = vec![Value::from(tenant)];
        let mut place = |value: Value| {
            values.push(value);
            format!("${}", values.len())
        };
        if let Some(sandbox) = filter.sandbox {
            text += &format!(" AND sandbox = {}", place(sandbox.into()));
        }
        if let Some(name) = &filter.name {
            text += &format!(" AND name = {}", place(name.as_str().into()));
        }
        if let Some(provider) = &filter.provider {
            text += &format!(" AND provider = {}", place(provider.as_str().into()));
        }
        if let Some((at, id)) = filter.before {
            text += &format!(" AND (created_at, id) < ({}, {})", place(at.into()), place(id.into()));
        }
        text += &format!(" ORDER BY created_at DESC, id DESC LIMIT {}", place(filter.limit.into()));
        let query = values.into_iter().fold(sql(text), Statement::bind);
        self.database().rows(query).await?.iter().map(SnapshotRow::read).collect()
    }

    /// Of all tenants, this server's that are not ready and were begun before this: something of them may be left.
    pub async fn unsettled_snapshots(&self, before: Timestamp) -> Result<Vec<SnapshotRow>> {
        let query = match self.fence().own_node() {
            Some(node) => sql("SELECT * FROM snapshots WHERE state <> 'ready' AND created_at < $1
                AND node = $2 ORDER BY created_at")
            .bind(before)
            .bind(node),
            None => {
                sql("SELECT * FROM snapshots WHERE state <> 'ready' AND created_at < $1 ORDER BY created_at")
                    .bind(before)
            }
        };
        self.database().rows(query).await?.iter().map(SnapshotRow::read).collect()
    }

    /// The other server that keeps a snapshot, whether it lives or not.
    pub async fn keeper_of_snapshot(&self, tenant: TenantId, id: SnapshotId) -> Result<Option<String>> {
        let Some(node) = self.fence().own_node() else { return Ok(None) };
        let text = "SELECT node FROM snapshots WHERE tenant = $1 AND id = $2 AND node <> $3";
        let row = self.database().row(sql(text).bind(tenant).bind(id).bind(node)).await?;
        row.map(|row| row.get("node")).transpose()
    }
}

/// Refuses what another server keeps that lives.
async fn keep_off(writing: &mut Writing, tenant: TenantId, id: SnapshotId) -> Result<()> {
    if !writing.is_fenced() {
        return Ok(());
    }
    let text = format!(
        "SELECT node FROM snapshots WHERE tenant = $1 AND id = $2 AND node IN (SELECT node FROM leases)
            AND NOT {}",
        writing.ours("node")
    );
    match writing.row(sql(text).bind(tenant).bind(id)).await? {
        Some(row) => Err(StoreError::Elsewhere { node: row.get("node")? }),
        None => Ok(()),
    }
}

/// Snapshots of one tenant that may be made at a time: what they will take is not known before.
const AT_ONCE: u64 = 4;

impl SnapshotRoom {
    /// Whether one more fits, and how much of it.
    async fn check(self, writing: &mut Writing, tenant: TenantId) -> Result<u64> {
        hold(writing, tenant).await?;
        let (snapshots, bytes) = kept(writing, tenant).await?;
        let text = "SELECT COUNT(*) AS making FROM snapshots WHERE tenant = $1 AND state = 'making'";
        let making = writing.row(sql(text).bind(tenant)).await?;
        let making: u64 = making.ok_or_else(|| StoreError::corrupt("a count gave no row"))?.get("making")?;
        for (which, used, limit) in [
            (QuotaKind::Snapshots, snapshots, u64::from(self.count)),
            (QuotaKind::Snapshots, making, AT_ONCE),
            (QuotaKind::SnapshotBytes, bytes, self.bytes),
        ] {
            if used >= limit {
                return Err(exceeded(which, used, 1, limit));
            }
        }
        Ok(self.bytes - bytes)
    }
}

/// Holds the tenant's row: whoever counts next sees what was changed here.
async fn hold(writing: &mut Writing, tenant: TenantId) -> Result<()> {
    writing.run(sql("UPDATE tenants SET name = name WHERE id = $1").bind(tenant)).await.map(drop)
}

/// How many a tenant has, and how large they are together.
async fn kept(writing: &mut Writing, tenant: TenantId) -> Result<(u64, u64)> {
    let text = "SELECT COUNT(*) AS snapshots, CAST(COALESCE(SUM(size_bytes), 0) AS BIGINT) AS bytes
        FROM snapshots WHERE tenant = $1";
    let row = writing.row(sql(text).bind(tenant)).await?;
    let row = row.ok_or_else(|| StoreError::corrupt("a count gave no row"))?;
    Ok((row.get("snapshots")?, row.get("bytes")?))
}

fn exceeded(which: QuotaKind, used: u64, wanted: u64, limit: u64) -> StoreError {
    StoreError::QuotaExceeded { which, used, wanted, limit }
}
