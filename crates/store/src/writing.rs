//! One transaction of the store: rows, events and audit that stand or fall together.

use sandstorm_types::{SandboxId, TenantId, Timestamp};

use crate::audit::Checkpoint;
use crate::database::{Row, Statement, Transaction, sql};
use crate::{Audit, Json, Result, Store, StoreError};

/// A transaction under way. Dropping it undoes all of it.
///
/// Locks are taken in one order, or two servers on PostgreSQL could wait for each other: the tenant (by its events)
/// first, then the rows, the audit last.
#[derive(Debug)]
pub(crate) struct Writing<'s> {
    store: &'s Store,
    transaction: Transaction,
    checkpoints: Vec<Checkpoint>,
}

impl Store {
    pub(crate) async fn begin(&self) -> Result<Writing<'_>> {
        Ok(Writing { store: self, transaction: self.database().begin().await?, checkpoints: Vec::new() })
    }
}

impl Writing<'_> {
    pub(crate) async fn run(&mut self, statement: Statement) -> Result<u64> {
        self.transaction.run(statement).await
    }

    pub(crate) async fn row(&mut self, statement: Statement) -> Result<Option<Row>> {
        self.transaction.row(statement).await
    }

    /// Numbers and stores events of a tenant. Holds the tenant's counter until the end of the transaction, so that
    /// numbers become visible in their order.
    pub(crate) async fn events(
        &mut self,
        tenant: TenantId,
        sandbox: Option<SandboxId>,
        at: Timestamp,
        bodies: &[Json],
    ) -> Result<Vec<u64>> {
        if bodies.is_empty() {
            return Ok(Vec::new());
        }
        let count = bodies.len() as u64;
        let number = "UPDATE tenants SET event_seq = event_seq + $2 WHERE id = $1 RETURNING event_seq";
        let Some(row) = self.row(sql(number).bind(tenant).bind(count)).await? else {
            return Err(StoreError::Invalid { what: "there is no such tenant".to_owned() });
        };
        let last: u64 = row.get("event_seq")?;
        let numbers: Vec<u64> = (last + 1 - count..=last).collect();
        for (seq, body) in numbers.iter().zip(bodies) {
            let insert =
                sql("INSERT INTO events (tenant, seq, at, sandbox, body) VALUES ($1, $2, $3, $4, $5)");
            self.run(insert.bind(tenant).bind(*seq).bind(at).bind(sandbox).bind(body)).await?;
        }
        Ok(numbers)
    }

    pub(crate) async fn audit(&mut self, audit: &Audit) -> Result<()> {
        let checkpoint = self.store.chain().append(&mut self.transaction, audit).await?;
        self.checkpoints.extend(checkpoint);
        Ok(())
    }

    pub(crate) async fn audit_optional(&mut self, audit: Option<&Audit>) -> Result<()> {
        match audit {
            Some(audit) => self.audit(audit).await,
            None => Ok(()),
        }
    }

    /// Signs where the audit is now; gives its last number.
    pub(crate) async fn checkpoint(&mut self) -> Result<u64> {
        let checkpoint = self.store.chain().checkpoint(&mut self.transaction).await?;
        let seq = checkpoint.as_ref().map_or(0, Checkpoint::seq);
        self.checkpoints.extend(checkpoint);
        Ok(seq)
    }

    /// Removes old records of the audit; gives how many.
    pub(crate) async fn cut_audit(&mut self, before: Timestamp, most: u64) -> Result<u64> {
        let (removed, cut) = self.store.chain().cut(&mut self.transaction, before, most).await?;
        self.checkpoints.extend(cut);
        Ok(removed)
    }

    pub(crate) async fn commit(self) -> Result<()> {
        if self.checkpoints.is_empty() {
            return self.transaction.commit().await;
        }
        // A caller that goes away now must not part the commit from its anchor.
        let store = self.store.clone();
        let committed = self
            .store
            .commits()
            .spawn(async move { store.chain().commit(self.transaction, self.checkpoints).await });
        committed.await.map_err(|error| StoreError::Unavailable { source: Box::new(error) })?
    }
}
