//! Forgetting what is old.

use sandstorm_types::{TenantId, Timestamp};

use crate::database::sql;
use crate::writing::{Done, Writing};
use crate::{Result, Store};

/// Rows that one transaction removes. Small, so that nobody waits long for the one writer of SQLite.
const BATCH: u32 = 500;

/// What to forget: everything that ended or happened before these moments. `None` keeps all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    pub runs_before: Option<Timestamp>,
    pub events_before: Option<Timestamp>,
    pub audit_before: Option<Timestamp>,
    /// With their execs, contexts, transitions, samples, files and names.
    pub ended_sandboxes_before: Option<Timestamp>,
    pub idempotency_before: Option<Timestamp>,
    pub samples_before: Option<Timestamp>,
    /// But for entries that used free credits, which some providers give once, and those that are not over.
    pub ledger_before: Option<Timestamp>,
}

/// How many were forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    pub runs: u64,
    pub events: u64,
    pub audit: u64,
    pub sandboxes: u64,
    pub idempotency: u64,
    pub samples: u64,
    pub ledger: u64,
}

/// Each removes at most `$2` rows that are older than `$1`.
///
/// Those of a tenant (`$3`) are found in the order in which it made them. An index by the end of a run, or by the time of
/// an event, would be written with each of them, and read by nobody else.
const RUNS: &str = "DELETE FROM runs WHERE tenant = $3 AND id IN (SELECT id FROM runs
    WHERE tenant = $3 AND created_at < $1 AND ended_at < $1 ORDER BY created_at LIMIT $2)";
/// Up to the first that is young: what is left has no gaps.
const EVENTS: &str = "DELETE FROM events WHERE tenant = $3 AND seq <
    (SELECT COALESCE(MIN(CASE WHEN at >= $1 THEN seq END), MAX(seq) + 1) FROM
        (SELECT seq, at FROM events WHERE tenant = $3 ORDER BY seq LIMIT $2) AS oldest)";
const SANDBOXES: &str = "DELETE FROM sandboxes WHERE (tenant, id) IN (SELECT tenant, id FROM sandboxes
    WHERE ended_at IS NOT NULL AND ended_at < $1 ORDER BY ended_at LIMIT $2)";
const IDEMPOTENCY: &str = "DELETE FROM idempotency WHERE (tenant, route, key) IN (SELECT tenant, route, key
    FROM idempotency WHERE begun_at < $1 ORDER BY begun_at LIMIT $2)";
const SAMPLES: &str =
    "DELETE FROM samples WHERE (tenant, sandbox, at) IN (SELECT tenant, sandbox, at FROM samples
    WHERE at < $1 ORDER BY at LIMIT $2)";
/// Servers that were not heard of for so long own nothing any more.
const INSTANCES: &str =
    "DELETE FROM instances WHERE (node, instance) IN (SELECT node, instance FROM instances
    WHERE seen_at < $1 ORDER BY seen_at LIMIT $2)";
/// Names of sandboxes that are about to be removed. Runs before [`SANDBOXES`] with the same values.
const NAMES: &str = "DELETE FROM names WHERE (tenant, sandbox) IN (SELECT tenant, id FROM sandboxes
    WHERE ended_at IS NOT NULL AND ended_at < $1 ORDER BY ended_at LIMIT $2)";

const LEDGER: &str =
    "DELETE FROM ledger WHERE tenant = $3 AND (began_at, object, part) IN (SELECT began_at, object, part
    FROM ledger WHERE tenant = $3 AND began_at < $1 AND ended_at < $1 AND credit = 0
    ORDER BY began_at, object, part LIMIT $2)";
/// Labels of entries that are about to be removed. Runs before [`LEDGER`] with the same values.
const LEDGER_LABELS: &str = "DELETE FROM ledger_labels WHERE tenant = $3 AND object IN (SELECT object
    FROM ledger WHERE tenant = $3 AND began_at < $1 AND ended_at < $1 AND credit = 0
    ORDER BY began_at, object, part LIMIT $2)";

/// Tenants whose oldest run, or event, or entry, is older than `$1`.
const WITH_RUNS: &str = "SELECT id FROM tenants WHERE $1 >
    (SELECT created_at FROM runs WHERE runs.tenant = tenants.id ORDER BY created_at LIMIT 1)";
const WITH_EVENTS: &str = "SELECT id FROM tenants WHERE $1 >
    (SELECT at FROM events WHERE events.tenant = tenants.id ORDER BY seq LIMIT 1)";

const WITH_LEDGER: &str = "SELECT id FROM tenants WHERE $1 >
    (SELECT began_at FROM ledger WHERE ledger.tenant = tenants.id ORDER BY began_at LIMIT 1)";

/// What one transaction removes.
#[derive(Debug, Clone, Copy)]
enum Sweep {
    /// The last of the statements is the one that is counted.
    Rows(&'static [&'static str]),
    Runs(TenantId),
    Events(TenantId),
    Ledger(TenantId),
    Audit,
}

impl Sweep {
    fn tenant(self) -> Option<TenantId> {
        match self {
            Self::Runs(tenant) | Self::Events(tenant) | Self::Ledger(tenant) => Some(tenant),
            Self::Rows(_) | Self::Audit => None,
        }
    }

    async fn once(self, writing: &mut Writing, before: Timestamp) -> Result<u64> {
        match self {
            Self::Rows(statements) => {
                let mut removed = 0;
                for statement in statements {
                    removed = writing.run(sql(*statement).bind(before).bind(BATCH)).await?;
                }
                Ok(removed)
            }
            Self::Runs(tenant) => writing.run(sql(RUNS).bind(before).bind(BATCH).bind(tenant)).await,
            Self::Events(tenant) => {
                writing.keep_event_number(tenant).await?;
                writing.run(sql(EVENTS).bind(before).bind(BATCH).bind(tenant)).await
            }
            Self::Ledger(tenant) => {
                writing.run(sql(LEDGER_LABELS).bind(before).bind(BATCH).bind(tenant)).await?;
                writing.run(sql(LEDGER).bind(before).bind(BATCH).bind(tenant)).await
            }
            Self::Audit => writing.cut_audit(before, u64::from(BATCH)).await,
        }
    }
}

impl Store {
    /// Works in small transactions, so that others are not held up. Dropping the future leaves what was swept swept.
    pub async fn sweep(&self, retention: Retention) -> Result<Swept> {
        let swept = Swept {
            runs: self.sweep_tenants(WITH_RUNS, Sweep::Runs, retention.runs_before).await?,
            events: self.sweep_tenants(WITH_EVENTS, Sweep::Events, retention.events_before).await?,
            idempotency: self.sweep_all(Sweep::Rows(&[IDEMPOTENCY]), retention.idempotency_before).await?,
            samples: self.sweep_all(Sweep::Rows(&[SAMPLES]), retention.samples_before).await?,
            sandboxes: self
                .sweep_all(Sweep::Rows(&[NAMES, SANDBOXES]), retention.ended_sandboxes_before)
                .await?,
            ledger: self.sweep_tenants(WITH_LEDGER, Sweep::Ledger, retention.ledger_before).await?,
            audit: self.sweep_all(Sweep::Audit, retention.audit_before).await?,
        };
        self.sweep_all(Sweep::Rows(&[INSTANCES]), retention.idempotency_before).await?;
        Ok(swept)
    }

    async fn sweep_tenants(
        &self,
        which: &'static str,
        what: fn(TenantId) -> Sweep,
        before: Option<Timestamp>,
    ) -> Result<u64> {
        let Some(moment) = before else { return Ok(0) };
        let mut swept = 0;
        for row in self.database().rows(sql(which).bind(moment)).await? {
            swept += self.sweep_all(what(row.get("id")?), before).await?;
        }
        Ok(swept)
    }

    async fn sweep_all(&self, sweep: Sweep, before: Option<Timestamp>) -> Result<u64> {
        let Some(before) = before else { return Ok(0) };
        let mut swept = 0;
        loop {
            let once = async move |writing: &mut Writing| sweep.once(writing, before).await.map(Done::Keep);
            let removed = self.write_long(sweep.tenant(), once).await?;
            swept += removed;
            if removed < u64::from(BATCH) {
                return Ok(swept);
            }
            // Whoever waits for the writer goes first.
            tokio::task::yield_now().await;
        }
    }
}
