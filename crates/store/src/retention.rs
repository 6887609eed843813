//! Forgetting what is old.

use sandstorm_types::Timestamp;

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
}

/// Each removes at most `$2` rows that are older than `$1`.
const RUNS: &str = "DELETE FROM runs WHERE (tenant, id) IN (SELECT tenant, id FROM runs
    WHERE ended_at IS NOT NULL AND ended_at < $1 ORDER BY ended_at LIMIT $2)";
const EVENTS: &str = "DELETE FROM events WHERE (tenant, seq) IN (SELECT tenant, seq FROM events
    WHERE at < $1 ORDER BY at LIMIT $2)";
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

impl Store {
    /// Works in small transactions, so that others are not held up. Dropping the future leaves what was swept swept.
    pub async fn sweep(&self, retention: Retention) -> Result<Swept> {
        self.sweep_rows(&[INSTANCES], retention.idempotency_before).await?;
        Ok(Swept {
            runs: self.sweep_rows(&[RUNS], retention.runs_before).await?,
            events: self.sweep_rows(&[EVENTS], retention.events_before).await?,
            idempotency: self.sweep_rows(&[IDEMPOTENCY], retention.idempotency_before).await?,
            samples: self.sweep_rows(&[SAMPLES], retention.samples_before).await?,
            sandboxes: self.sweep_rows(&[NAMES, SANDBOXES], retention.ended_sandboxes_before).await?,
            audit: self.sweep_audit(retention.audit_before).await?,
        })
    }

    /// The last of the statements is the one that is counted.
    async fn sweep_rows(
        &self,
        statements: &'static [&'static str],
        before: Option<Timestamp>,
    ) -> Result<u64> {
        let Some(before) = before else { return Ok(0) };
        let mut swept = 0;
        loop {
            let sweep = async move |writing: &mut Writing| {
                let mut removed = 0;
                for statement in statements {
                    removed = writing.run(sql(*statement).bind(before).bind(BATCH)).await?;
                }
                Ok(Done::Keep(removed))
            };
            let removed = self.write_long(None, sweep).await?;
            swept += removed;
            if removed < u64::from(BATCH) {
                return Ok(swept);
            }
            // Whoever waits for the writer goes first.
            tokio::task::yield_now().await;
        }
    }

    async fn sweep_audit(&self, before: Option<Timestamp>) -> Result<u64> {
        let Some(before) = before else { return Ok(0) };
        let mut swept = 0;
        loop {
            let cut = async move |writing: &mut Writing| {
                writing.cut_audit(before, u64::from(BATCH)).await.map(Done::Keep)
            };
            let removed = self.write_long(None, cut).await?;
            swept += removed;
            if removed < u64::from(BATCH) {
                return Ok(swept);
            }
            tokio::task::yield_now().await;
        }
    }
}
