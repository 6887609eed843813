//! What runs and sandboxes were expected to cost, and what they did cost.
//!
//! An entry is written in the transaction that records the beginning of what it is about, and its bill in the one that
//! records the end. A short run has one record for both, and so has its entry.

mod report;
mod settle;
mod spent;

use sandstorm_types::{Labels, TenantId, Timestamp, Usd};
use serde::{Deserialize, Serialize};

pub use report::{GroupBy, LedgerQuery, LedgerSum, NoGroup};
pub use settle::PartBill;
pub use spent::{Spent, SpentBy};

use crate::database::{Row, sql};
use crate::writing::Writing;
use crate::{Result, Store, StoreError};

/// What an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    Run,
    Sandbox,
    /// Of a run or sandbox, somewhere where it did not come about or was not needed.
    Attempt,
    Snapshot,
}

impl EntryKind {
    const ALL: [Self; 4] = [Self::Run, Self::Sandbox, Self::Attempt, Self::Snapshot];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Sandbox => "sandbox",
            Self::Attempt => "attempt",
            Self::Snapshot => "snapshot",
        }
    }

    fn named(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| StoreError::corrupt(format!("there is no kind of entry `{name}`")))
    }
}

/// What was expected, for whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// The run or sandbox.
    pub object: String,
    /// 0 is the thing itself; the others are attempts.
    pub part: u32,
    pub kind: EntryKind,
    /// Public id of the key that asked for it.
    pub key: String,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    pub provider: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub began_at: Timestamp,
    pub estimate: Usd,
    /// The most that it may cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<Usd>,
    /// Of something that is over already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bill: Option<LedgerBill>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LedgerBill {
    /// Where it was in the end.
    pub provider: String,
    pub region: Option<String>,
    pub ended_at: Timestamp,
    /// Without the time that it was paused.
    pub wall_ms: u64,
    pub cpu_ms: u64,
    pub peak_memory_bytes: u64,
    /// Whether the price was known; without one all amounts are nothing.
    pub priced: bool,
    /// Whether time, processor and memory are as whoever ran it counted them; otherwise they were measured from outside.
    #[serde(default = "yes")]
    pub metered: bool,
    pub charge: Usd,
    pub credit: Usd,
    pub margin: Usd,
    pub snapshots: Usd,
}

/// Of bills on file that do not say so: they are of this machine.
fn yes() -> bool {
    true
}

impl LedgerBill {
    /// What is left to pay.
    pub fn total(&self) -> Usd {
        self.charge - self.credit + self.margin + self.snapshots
    }
}

/// An entry without a bill, of whatever tenant.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenEntry {
    pub tenant: TenantId,
    pub entry: LedgerEntry,
}

impl OpenEntry {
    fn read(row: &Row) -> Result<Self> {
        let entry = LedgerEntry {
            object: row.get("object")?,
            part: 0,
            kind: EntryKind::named(&row.get::<String>("kind")?)?,
            key: row.get("key")?,
            labels: Labels::default(),
            provider: row.get("provider")?,
            region: row.optional("region")?,
            cpu_milli: row.get("cpu_milli")?,
            memory_bytes: row.get("memory_bytes")?,
            began_at: row.get("began_at")?,
            estimate: row.get("estimate")?,
            max_cost: row.optional("max_cost")?,
            bill: None,
        };
        Ok(Self { tenant: row.get("tenant")?, entry })
    }
}

impl Writing {
    /// One entry, with its bill where there is one, and its labels.
    pub(crate) async fn ledger_entry(
        &mut self,
        tenant: TenantId,
        entry: &LedgerEntry,
        bill: Option<&LedgerBill>,
    ) -> Result<()> {
        let text =
            "INSERT INTO ledger (tenant, began_at, object, part, kind, key, provider, region, cpu_milli, memory_bytes,
            max_cost, estimate, ended_at, wall_ms, cpu_ms, peak_memory_bytes, priced, charge, credit, margin, snapshots,
            metered)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)";
        let (provider, region) = match bill {
            Some(bill) => (&*bill.provider, &bill.region),
            None => (&*entry.provider, &entry.region),
        };
        let amount = |of: fn(&LedgerBill) -> Usd| bill.map_or(Usd::ZERO, of);
        let count = |of: fn(&LedgerBill) -> u64| bill.map_or(0, of);
        let insert = sql(text)
            .bind(tenant)
            .bind(entry.began_at)
            .bind(&*entry.object)
            .bind(entry.part)
            .bind(entry.kind.name())
            .bind(&*entry.key)
            .bind(provider)
            .bind(region.clone())
            .bind(entry.cpu_milli)
            .bind(entry.memory_bytes)
            .bind(entry.max_cost)
            .bind(entry.estimate)
            .bind(bill.map(|bill| bill.ended_at))
            .bind(count(|bill| bill.wall_ms))
            .bind(count(|bill| bill.cpu_ms))
            .bind(count(|bill| bill.peak_memory_bytes))
            .bind(bill.is_some_and(|bill| bill.priced))
            .bind(amount(|bill| bill.charge))
            .bind(amount(|bill| bill.credit))
            .bind(amount(|bill| bill.margin))
            .bind(amount(|bill| bill.snapshots))
            .bind(bill.is_none_or(|bill| bill.metered));
        self.run(insert).await?;
        // All parts of a thing have its labels.
        for (name, value) in entry.labels.iter().filter(|_| entry.part == 0) {
            let insert =
                sql("INSERT INTO ledger_labels (tenant, object, name, value) VALUES ($1, $2, $3, $4)");
            self.run(insert.bind(tenant).bind(&*entry.object).bind(name).bind(value)).await?;
        }
        Ok(())
    }

    /// The bill of an entry that has none. What began before there was a ledger has no entry.
    pub(crate) async fn ledger_bill(
        &mut self,
        tenant: TenantId,
        object: &str,
        bill: &LedgerBill,
    ) -> Result<()> {
        let text = "UPDATE ledger SET provider = $3, region = $4, ended_at = $5, wall_ms = $6, cpu_ms = $7,
            peak_memory_bytes = $8, priced = $9, charge = $10, credit = $11, margin = $12, snapshots = $13, metered = $14
            WHERE tenant = $1 AND object = $2 AND part = 0 AND ended_at IS NULL";
        let update = sql(text)
            .bind(tenant)
            .bind(object)
            .bind(&*bill.provider)
            .bind(bill.region.clone())
            .bind(bill.ended_at)
            .bind(bill.wall_ms)
            .bind(bill.cpu_ms)
            .bind(bill.peak_memory_bytes)
            .bind(bill.priced)
            .bind(bill.charge)
            .bind(bill.credit)
            .bind(bill.margin)
            .bind(bill.snapshots)
            .bind(bill.metered);
        self.run(update).await.map(drop)
    }
}

impl Store {
    /// Whether other servers write to the same database.
    pub fn is_shared(&self) -> bool {
        !self.database().is_sqlite()
    }

    /// Everything of this server that has no bill yet, with its labels; for recovery.
    pub async fn open_entries(&self) -> Result<Vec<OpenEntry>> {
        self.open_entries_of(self.fence().own_node()).await
    }

    pub(crate) async fn open_entries_of(&self, node: Option<&str>) -> Result<Vec<OpenEntry>> {
        let open = match node {
            Some(node) => sql("SELECT * FROM ledger WHERE ended_at IS NULL AND part = 0 AND (
                EXISTS (SELECT 1 FROM sandboxes s WHERE s.id = ledger.object AND s.node = $1)
                OR EXISTS (SELECT 1 FROM runs r
                    WHERE r.tenant = ledger.tenant AND r.id = ledger.object AND r.node = $1))
                ORDER BY object")
            .bind(node),
            None => sql("SELECT * FROM ledger WHERE ended_at IS NULL AND part = 0 ORDER BY object"),
        };
        let rows = self.settled().await?.rows(open).await?;
        let mut entries = rows.iter().map(OpenEntry::read).collect::<Result<Vec<_>>>()?;
        let labels = "SELECT l.tenant, l.object, l.name, l.value FROM ledger_labels l JOIN ledger e
            ON e.tenant = l.tenant AND e.object = l.object WHERE e.ended_at IS NULL AND e.part = 0";
        let mut by_object =
            std::collections::HashMap::<(TenantId, String), std::collections::BTreeMap<_, _>>::new();
        for row in self.database().rows(sql(labels)).await? {
            let labels = by_object.entry((row.get("tenant")?, row.get("object")?)).or_default();
            labels.insert(row.get::<String>("name")?, row.get::<String>("value")?);
        }
        for OpenEntry { tenant, entry } in &mut entries {
            let Some(labels) = by_object.remove(&(*tenant, entry.object.clone())) else { continue };
            entry.labels = labels.try_into().map_err(|error| StoreError::Corrupt {
                what: "labels in the ledger are damaged".to_owned(),
                source: Some(Box::new(error)),
            })?;
        }
        Ok(entries)
    }
}
