//! Sandboxes and the steps of their lives.

mod list;
mod reservation;
mod state;

use sandstorm_types::{SandboxId, SandboxSpec, State, Step, TenantId, Timestamp};

use serde_json::json;

pub use list::SandboxFilter;
pub use reservation::Reservation;

use crate::database::{Row, sql};
use crate::writing::{Done, Writing};
use crate::{Audit, EventRow, Json, LedgerBill, LedgerEntry, Result, Store, StoreError};

#[derive(Debug, Clone, PartialEq)]
pub struct SandboxRow {
    pub id: SandboxId,
    pub tenant: TenantId,
    pub spec: SandboxSpec,
    pub state: State,
    pub idle_timeout_ms: Option<i64>,
    pub walls: Option<Json>,
    pub provider: String,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub last_used_at: Timestamp,
    /// Grows with every step and update; a step names the one it is based on.
    pub revision: i64,
}

/// What changes beside the state. `None` leaves a field as it is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SandboxChanges {
    pub walls: Option<Json>,
    /// `Some(None)` takes the end away.
    pub expires_at: Option<Option<Timestamp>>,
    pub spec: Option<SandboxSpec>,
    /// What it cost, with the step that ends it.
    pub bill: Option<LedgerBill>,
    /// What attempts cost that failed before it was made.
    pub attempts: Vec<LedgerEntry>,
    /// Where it came to be, once that is known.
    pub provider: Option<String>,
}

/// What became of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum StepOutcome {
    /// The new row, and the event that was stored with it.
    Stepped(SandboxRow, EventRow),
    /// The machine has no such arrow; the row as it is.
    Conflict(SandboxRow),
    /// Somebody else was faster; read again.
    Lost,
    Missing,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TransitionRow {
    pub sandbox: SandboxId,
    /// The sandbox's revision after it.
    pub revision: i64,
    pub from: Option<State>,
    pub to: State,
    pub at: Timestamp,
}

impl SandboxRow {
    pub(crate) fn read(row: &Row) -> Result<Self> {
        let spec: String = row.get("spec")?;
        let spec = serde_json::from_str(&spec).map_err(|error| StoreError::Corrupt {
            what: "the spec of a sandbox cannot be read".to_owned(),
            source: Some(Box::new(error)),
        })?;
        Ok(Self {
            id: row.get("id")?,
            tenant: row.get("tenant")?,
            spec,
            state: state::parse(&row.get::<String>("state")?, row.optional("reason")?)?,
            idle_timeout_ms: row.optional("idle_timeout_ms")?,
            walls: row.optional("walls")?,
            provider: row.get("provider")?,
            created_at: row.get("created_at")?,
            expires_at: row.optional("expires_at")?,
            ended_at: row.optional("ended_at")?,
            last_used_at: row.get("last_used_at")?,
            revision: row.get("revision")?,
        })
    }

    fn apply(&mut self, changes: SandboxChanges) {
        if let Some(walls) = changes.walls {
            self.walls = Some(walls);
        }
        if let Some(expires_at) = changes.expires_at {
            self.expires_at = expires_at;
        }
        if let Some(spec) = changes.spec {
            self.spec = spec;
        }
        if let Some(provider) = changes.provider {
            self.provider = provider;
        }
    }
}

impl Store {
    /// The intent: written before anything is built. With a ceiling `QuotaExceeded` says which one it would pass;
    /// counting and inserting are one transaction, so parallel callers cannot pass it together. Gives the event of the
    /// first state, with a body as [`Store::step_sandbox`] writes it.
    pub async fn insert_sandbox(
        &self,
        row: &SandboxRow,
        ceiling: Option<Reservation>,
        audit: &Audit,
    ) -> Result<EventRow> {
        self.insert_sandbox_with(row, ceiling, audit, None).await
    }

    /// The same with its entry in the ledger.
    pub async fn insert_sandbox_with(
        &self,
        row: &SandboxRow,
        ceiling: Option<Reservation>,
        audit: &Audit,
        entry: Option<LedgerEntry>,
    ) -> Result<EventRow> {
        let (row, audit) = (row.clone(), audit.clone());
        self.write(Some(row.tenant), async move |writing| {
            // First, since it holds the tenant's row: whoever counts next sees what was inserted here.
            let event = event(writing, &row, None, row.created_at).await?;
            if let Some(ceiling) = ceiling {
                ceiling.check(writing, row.tenant, &row.spec.limits).await?;
            }
            insert(writing, &row).await?;
            label(writing, &row).await?;
            transition(writing, &row, None, row.created_at).await?;
            if let Some(entry) = &entry {
                writing.ledger_entry(row.tenant, entry, None).await?;
            }
            writing.audit(&audit).await?;
            Ok(Done::Keep(event))
        })
        .await
    }

    /// Moves the state machine. Row, transition, event and audit are one transaction. The event's body is
    /// `{"type": "sandbox:<state>", "from": "<state>", "to": "<state>", "reason": …}`; `from` is null for the first
    /// state and `reason` unless it failed.
    #[expect(clippy::too_many_arguments, reason = "each is one fact about the step, and none has a default")]
    pub async fn step_sandbox(
        &self,
        tenant: TenantId,
        id: SandboxId,
        expected_revision: i64,
        step: Step,
        at: Timestamp,
        changes: SandboxChanges,
        audit: Option<&Audit>,
    ) -> Result<StepOutcome> {
        let audit = audit.cloned();
        self.write(Some(tenant), async move |writing| {
            let Some(mut row) = find(writing, tenant, id).await? else {
                return Ok(Done::Undo(StepOutcome::Missing));
            };
            keep_off(writing, id).await?;
            if row.revision != expected_revision {
                return Ok(Done::Undo(StepOutcome::Lost));
            }
            let Ok(next) = row.state.after(step.clone()) else {
                return Ok(Done::Undo(StepOutcome::Conflict(row)));
            };
            let from = std::mem::replace(&mut row.state, state::storable(next));
            row.apply(changes.clone());
            if row.state.is_final() {
                row.ended_at = Some(at);
            }
            let event = event(writing, &row, Some(&from), at).await?;
            if !save(writing, &mut row).await? {
                return Ok(Done::Undo(StepOutcome::Lost));
            }
            transition(writing, &row, Some(&from), at).await?;
            for attempt in &changes.attempts {
                writing.ledger_entry(tenant, attempt, attempt.bill.as_ref()).await?;
            }
            if let Some(bill) = changes.bill.as_ref().filter(|_| row.state.is_final()) {
                writing.ledger_bill(tenant, &id.to_string(), bill).await?;
            }
            writing.audit_optional(audit.as_ref()).await?;
            Ok(Done::Keep(StepOutcome::Stepped(row, event)))
        })
        .await
    }

    pub async fn sandbox(&self, tenant: TenantId, id: SandboxId) -> Result<Option<SandboxRow>> {
        let row = self.database().row(sql(ONE).bind(tenant).bind(id)).await?;
        row.as_ref().map(SandboxRow::read).transpose()
    }

    /// Of all tenants, this server's that have not ended: for recovery and clocks.
    pub async fn living_sandboxes(&self) -> Result<Vec<SandboxRow>> {
        self.living_sandboxes_of(self.fence().own_node()).await
    }

    pub(crate) async fn living_sandboxes_of(&self, node: Option<&str>) -> Result<Vec<SandboxRow>> {
        let query = match node {
            Some(node) => {
                sql("SELECT * FROM sandboxes WHERE ended_at IS NULL AND node = $1 ORDER BY id").bind(node)
            }
            None => sql("SELECT * FROM sandboxes WHERE ended_at IS NULL ORDER BY id"),
        };
        self.database().rows(query).await?.iter().map(SandboxRow::read).collect()
    }

    /// Never moves the moment of last use back; changes no revision.
    pub async fn touch_sandboxes(&self, used: &[(SandboxId, Timestamp)]) -> Result<()> {
        if used.is_empty() {
            return Ok(());
        }
        // In one order, so that two servers cannot wait for each other.
        let mut used = used.to_vec();
        used.sort();
        self.write_long(None, async move |writing| {
            for (id, at) in &used {
                let touch = "UPDATE sandboxes SET last_used_at = $2 WHERE id = $1 AND last_used_at < $2";
                writing.run(sql(touch).bind(*id).bind(*at)).await?;
            }
            Ok(Done::Keep(()))
        })
        .await
    }

    /// The row after it; `None` when there is no such sandbox. Counts as a revision.
    pub async fn update_sandbox(
        &self,
        tenant: TenantId,
        id: SandboxId,
        changes: SandboxChanges,
        audit: Option<&Audit>,
    ) -> Result<Option<SandboxRow>> {
        let audit = audit.cloned();
        self.write(Some(tenant), async move |writing| {
            loop {
                let Some(mut row) = find(writing, tenant, id).await? else { return Ok(Done::Undo(None)) };
                keep_off(writing, id).await?;
                row.apply(changes.clone());
                // Another server stepped in between: apply the change to what is there now.
                if !save(writing, &mut row).await? {
                    continue;
                }
                if changes.spec.is_some() {
                    label(writing, &row).await?;
                }
                writing.audit_optional(audit.as_ref()).await?;
                return Ok(Done::Keep(Some(row)));
            }
        })
        .await
    }

    /// Oldest first.
    pub async fn transitions(&self, tenant: TenantId, sandbox: SandboxId) -> Result<Vec<TransitionRow>> {
        let query = sql("SELECT * FROM transitions WHERE tenant = $1 AND sandbox = $2 ORDER BY revision");
        let rows = self.database().rows(query.bind(tenant).bind(sandbox)).await?;
        rows.iter().map(TransitionRow::read).collect()
    }
}

impl TransitionRow {
    fn read(row: &Row) -> Result<Self> {
        let from: Option<String> = row.optional("from_state")?;
        let reason: Option<String> = row.optional("from_reason")?;
        Ok(Self {
            sandbox: row.get("sandbox")?,
            revision: row.get("revision")?,
            from: from.map(|name| state::parse(&name, reason)).transpose()?,
            to: state::parse(&row.get::<String>("to_state")?, row.optional("to_reason")?)?,
            at: row.get("at")?,
        })
    }
}

const ONE: &str = "SELECT * FROM sandboxes WHERE tenant = $1 AND id = $2";

async fn find(writing: &mut Writing, tenant: TenantId, id: SandboxId) -> Result<Option<SandboxRow>> {
    let row = writing.row(sql(ONE).bind(tenant).bind(id)).await?;
    row.as_ref().map(SandboxRow::read).transpose()
}

/// Refuses what belongs to another server. What has ended nobody changes any more, which whoever asks finds out.
async fn keep_off(writing: &mut Writing, id: SandboxId) -> Result<()> {
    if !writing.is_fenced() {
        return Ok(());
    }
    let text = format!(
        "SELECT node FROM sandboxes WHERE id = $1 AND ended_at IS NULL AND NOT {}",
        writing.ours("node")
    );
    match writing.row(sql(text).bind(id)).await? {
        Some(row) => Err(StoreError::Elsewhere { node: row.get("node")? }),
        None => Ok(()),
    }
}

async fn insert(writing: &mut Writing, row: &SandboxRow) -> Result<()> {
    let text =
        "INSERT INTO sandboxes (tenant, id, spec, state, reason, idle_timeout_ms, walls, provider, cpu_milli,
        memory_bytes, created_at, expires_at, ended_at, last_used_at, revision, node)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";
    let insert = sql(text)
        .bind(row.tenant)
        .bind(row.id)
        .bind(spec_text(&row.spec)?)
        .bind(row.state.to_string())
        .bind(state::reason(&row.state))
        .bind(row.idle_timeout_ms)
        .bind(row.walls.as_ref())
        .bind(&*row.provider)
        .bind(row.spec.limits.cpus.milli())
        .bind(row.spec.limits.memory.as_u64())
        .bind(row.created_at)
        .bind(row.expires_at)
        .bind(row.ended_at)
        .bind(row.last_used_at)
        .bind(row.revision)
        .bind(writing.owner());
    writing.run(insert).await.map(drop)
}

/// Writes what can change and counts the revision. False when somebody else did meanwhile.
async fn save(writing: &mut Writing, row: &mut SandboxRow) -> Result<bool> {
    let text = "UPDATE sandboxes SET spec = $4, state = $5, reason = $6, walls = $7, cpu_milli = $8,
        memory_bytes = $9, expires_at = $10, ended_at = $11, provider = $12, revision = revision + 1
        WHERE tenant = $1 AND id = $2 AND revision = $3";
    let update = sql(text)
        .bind(row.tenant)
        .bind(row.id)
        .bind(row.revision)
        .bind(spec_text(&row.spec)?)
        .bind(row.state.to_string())
        .bind(state::reason(&row.state))
        .bind(row.walls.as_ref())
        .bind(row.spec.limits.cpus.milli())
        .bind(row.spec.limits.memory.as_u64())
        .bind(row.expires_at)
        .bind(row.ended_at)
        .bind(&*row.provider);
    row.revision += 1;
    Ok(writing.run(update).await? == 1)
}

async fn label(writing: &mut Writing, row: &SandboxRow) -> Result<()> {
    let old = sql("DELETE FROM sandbox_labels WHERE tenant = $1 AND sandbox = $2");
    writing.run(old.bind(row.tenant).bind(row.id)).await?;
    for (name, value) in row.spec.labels.iter() {
        let insert = sql("INSERT INTO sandbox_labels (tenant, sandbox, name, value) VALUES ($1, $2, $3, $4)");
        writing.run(insert.bind(row.tenant).bind(row.id).bind(name).bind(value)).await?;
    }
    Ok(())
}

async fn transition(
    writing: &mut Writing,
    row: &SandboxRow,
    from: Option<&State>,
    at: Timestamp,
) -> Result<()> {
    let text = "INSERT INTO transitions (tenant, sandbox, revision, from_state, from_reason, to_state, to_reason, at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let insert = sql(text)
        .bind(row.tenant)
        .bind(row.id)
        .bind(row.revision)
        .bind(from.map(State::to_string))
        .bind(from.and_then(state::reason))
        .bind(row.state.to_string())
        .bind(state::reason(&row.state))
        .bind(at);
    writing.run(insert).await.map(drop)
}

async fn event(
    writing: &mut Writing,
    row: &SandboxRow,
    from: Option<&State>,
    at: Timestamp,
) -> Result<EventRow> {
    let to = row.state.to_string();
    let reason = state::reason(&row.state);
    let body = json!({"type": format!("sandbox:{to}"), "from": from.map(State::to_string), "to": to, "reason": reason});
    let seqs = writing.events(row.tenant, Some(row.id), at, std::slice::from_ref(&body)).await?;
    let seq = *seqs.first().expect("one body gives one number");
    Ok(EventRow { tenant: row.tenant, seq, at, sandbox: Some(row.id), body })
}

fn spec_text(spec: &SandboxSpec) -> Result<String> {
    serde_json::to_string(spec)
        .map_err(|error| StoreError::Invalid { what: format!("a spec cannot be stored: {error}") })
}
