//! What one call writes: rows, events and audit that stand or fall together.
//!
//! All calls of a store are written one after the other, many in one transaction, by whoever is at the one desk for it: a
//! caller or a thread; see [`queue`]. A call returns once the transaction that holds it was committed.

mod batch;
mod desk;
mod job;
mod owed;
mod pace;
mod queue;
mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use sandstorm_types::{SandboxId, TenantId, Timestamp};

pub(crate) use job::Done;
pub(crate) use writer::Writer;

use job::{Asked, Length};
use queue::Hand;

use crate::audit::{Chain, Checkpoint, Head};
use crate::database::{Connection, Row, Statement, sql};
use crate::leases::Fence;
use crate::{Audit, Json, Result, Store, StoreError};

/// The transaction under way, as one call sees it.
///
/// Locks are taken in one order, or two servers on PostgreSQL could wait for each other: the tenant (by its events)
/// first, then the rows, the audit last.
#[derive(Debug)]
pub(crate) struct Writing {
    chain: Arc<Chain>,
    fence: Arc<Fence>,
    connection: Connection,
    /// How many transactions were committed.
    commits: Arc<AtomicU64>,
    /// Who writes now.
    hand: Hand,
    /// Whether the audit has a first record, which only the thread can wait for.
    audit_begun: bool,
    known: Known,
    /// The version of the database that `known` was read from, or written to.
    version: Option<i64>,
}

/// What was read once and is written back at the end of each transaction: numbers that every call counts on.
#[derive(Debug, Clone, Default)]
struct Known {
    head: Option<Head>,
    events: BTreeMap<TenantId, Counter>,
    checkpoints: Vec<Checkpoint>,
}

#[derive(Debug, Clone, Copy)]
struct Counter {
    /// With the tenant.
    stored: u64,
    last: u64,
    /// Whether it has to be stored with the tenant when it has changed.
    keep: bool,
}

impl Store {
    /// Has `work` done in a transaction and returns when it is committed. It may be done more than once, until it holds.
    ///
    /// `tenant` is whose events it counts: with PostgreSQL only calls of one tenant share a transaction, so that locks
    /// keep their order.
    pub(crate) async fn write<T, F>(&self, tenant: Option<TenantId>, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: AsyncFn(&mut Writing) -> Result<Done<T>> + Send + 'static,
    {
        self.write_as(Length::Short, tenant, work).await
    }

    /// Like [`Store::write`], for what may have a lot to do: no caller is made to do it.
    pub(crate) async fn write_long<T, F>(&self, tenant: Option<TenantId>, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: AsyncFn(&mut Writing) -> Result<Done<T>> + Send + 'static,
    {
        self.write_as(Length::Long, tenant, work).await
    }

    async fn write_as<T, F>(&self, length: Length, tenant: Option<TenantId>, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: AsyncFn(&mut Writing) -> Result<Done<T>> + Send + 'static,
    {
        let room = self.writer().room().await?;
        let (job, answered) = Asked::new(tenant, length, room, work);
        self.writer().ask(Box::new(job))?;
        // There already when it was written here.
        let written = answered.await.unwrap_or_else(|_| Err(queue::closed()));
        self.intents().learn(&written);
        written
    }
}

impl Writing {
    fn new(chain: Arc<Chain>, fence: Arc<Fence>, connection: Connection, commits: Arc<AtomicU64>) -> Self {
        let known = Known::default();
        Self {
            chain,
            fence,
            connection,
            commits,
            hand: Hand::Thread,
            audit_begun: false,
            known,
            version: None,
        }
    }

    /// Whether a caller can write without being made to wait: for a network, a disk, or the first line of the anchor.
    fn is_quick(&self) -> bool {
        self.audit_begun && self.connection.is_quick()
    }

    /// Undoes a transaction that nobody ended.
    fn abandon(&mut self) {
        self.connection.abandon();
    }

    /// Whose a new record is. `None` where there is one server only.
    pub(crate) fn owner(&self) -> Option<String> {
        (self.fence.is_up() || self.connection.is_shared()).then(|| self.fence.node().to_owned())
    }

    /// Ends a `WHERE`: that a record, whose server is in this column, is this server's to change.
    pub(crate) fn ours(&self, column: &str) -> String {
        self.fence.ours(column)
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.fence.is_up()
    }

    /// At the beginning of a transaction: whether this server still may write. Whoever takes over waits for its end.
    async fn check_fence(&mut self) -> Result<()> {
        if !self.fence.is_up() {
            return Ok(());
        }
        let text = format!(
            "SELECT node FROM leases WHERE node = $1 AND instance = $2{}",
            self.connection.for_share()
        );
        let held = sql(text).bind(self.fence.node()).bind(self.fence.instance());
        match self.connection.row(held).await? {
            Some(_) => Ok(()),
            None => Err(StoreError::Superseded),
        }
    }

    /// Takes whatever is locked as not there.
    pub(crate) fn skipping_locked(&self) -> &'static str {
        self.connection.skipping_locked()
    }

    pub(crate) async fn run(&mut self, statement: Statement) -> Result<u64> {
        self.connection.run(statement).await
    }

    pub(crate) async fn row(&mut self, statement: Statement) -> Result<Option<Row>> {
        self.connection.row(statement).await
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
        let first = self.last_event(tenant).await? + 1;
        let numbers: Vec<u64> = (first..).take(bodies.len()).collect();
        for (seq, body) in numbers.iter().zip(bodies) {
            let insert =
                sql("INSERT INTO events (tenant, seq, at, sandbox, body) VALUES ($1, $2, $3, $4, $5)");
            self.run(insert.bind(tenant).bind(*seq).bind(at).bind(sandbox).bind(body)).await?;
        }
        if let (Some(counter), Some(last)) = (self.known.events.get_mut(&tenant), numbers.last()) {
            counter.last = *last;
        }
        Ok(numbers)
    }

    async fn last_event(&mut self, tenant: TenantId) -> Result<u64> {
        if let Some(counter) = self.known.events.get(&tenant) {
            return Ok(counter.last);
        }
        let query = format!("SELECT event_seq FROM tenants WHERE id = $1{}", self.connection.for_update());
        let Some(row) = self.row(sql(query).bind(tenant)).await? else {
            return Err(StoreError::Invalid { what: "there is no such tenant".to_owned() });
        };
        let stored = row.get("event_seq")?;
        // Where one server writes, the newest event says as much, and the tenant's row is left alone.
        let keep = self.connection.is_shared();
        let newest = sql("SELECT MAX(seq) AS seq FROM events WHERE tenant = $1").bind(tenant);
        let newest = if keep { None } else { self.row(newest).await? };
        let newest: Option<u64> = newest.map_or(Ok(None), |row| row.optional("seq"))?;
        let last = newest.map_or(stored, |newest| newest.max(stored));
        self.known.events.insert(tenant, Counter { stored, last, keep });
        Ok(last)
    }

    /// Has the tenant remember the number of its last event, for when that event is gone.
    pub(crate) async fn keep_event_number(&mut self, tenant: TenantId) -> Result<()> {
        self.last_event(tenant).await?;
        if let Some(counter) = self.known.events.get_mut(&tenant) {
            counter.keep = true;
        }
        Ok(())
    }

    pub(crate) async fn audit(&mut self, audit: &Audit) -> Result<()> {
        let head = self.head().await?;
        let (head, checkpoint) = self.chain.append(&mut self.connection, head, audit).await?;
        self.known.head = Some(head);
        self.known.checkpoints.extend(checkpoint);
        Ok(())
    }

    pub(crate) async fn audit_optional(&mut self, audit: Option<&Audit>) -> Result<()> {
        match audit {
            Some(audit) => self.audit(audit).await,
            None => Ok(()),
        }
    }

    async fn head(&mut self) -> Result<Head> {
        match &self.known.head {
            Some(head) => Ok(head.clone()),
            None => self.chain.head(&mut self.connection).await,
        }
    }

    /// Signs where the audit is now; gives its last number.
    pub(crate) async fn checkpoint(&mut self) -> Result<u64> {
        let head = self.head().await?;
        let checkpoint = self.chain.checkpoint(&mut self.connection, &head).await?;
        self.known.head = Some(head);
        let seq = checkpoint.as_ref().map_or(0, Checkpoint::seq);
        self.known.checkpoints.extend(checkpoint);
        Ok(seq)
    }

    /// Removes old records of the audit; gives how many.
    pub(crate) async fn cut_audit(&mut self, before: Timestamp, most: u64) -> Result<u64> {
        let (removed, cut) = self.chain.cut(&mut self.connection, before, most).await?;
        self.known.checkpoints.extend(cut);
        Ok(removed)
    }

    /// Writes what was counted in memory.
    async fn write_known(&mut self) -> Result<()> {
        for (tenant, counter) in &self.known.events {
            if counter.keep && counter.last != counter.stored {
                let update = sql("UPDATE tenants SET event_seq = $2 WHERE id = $1");
                self.connection.run(update.bind(*tenant).bind(counter.last)).await?;
            }
        }
        if let Some(head) = self.known.head.as_ref().filter(|head| head.is_new()) {
            self.chain.keep_head(&mut self.connection, head).await?;
        }
        Ok(())
    }
}
