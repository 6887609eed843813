//! Growing the chain and cutting its old end, inside the transaction of the act itself.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use sandstorm_types::Timestamp;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::record::{self, Canonical, Record, genesis};
use super::{Audit, AuditKey, anchor};
use crate::database::{Connection, Row, sql};
use crate::{Result, StoreConfig, StoreError};

/// This node's chain.
#[derive(Debug)]
pub(crate) struct Chain {
    key: AuditKey,
    node: String,
    anchor: PathBuf,
    /// SQLite's log, which it does not force to the disk with each commit.
    log: Option<PathBuf>,
    every: u64,
    opened: Instant,
    /// The last record that was committed here, and the last that a checkpoint speaks of.
    last: AtomicU64,
    marked: AtomicU64,
    /// Checkpoints that are not anchored yet, in their order.
    pending: Mutex<Vec<Checkpoint>>,
    /// Held while they are written, so that one writes at a time.
    anchoring: tokio::sync::Mutex<()>,
    /// What anchors beside the work.
    tasks: TaskTracker,
    runtime: Handle,
}

/// Checkpoints that are kept for a file that cannot be written.
const MOST_PENDING: usize = 1000;

/// Where the chain ends. Carried from record to record within a transaction, and stored at its end.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    seq: u64,
    hash: String,
    stored: u64,
}

impl Head {
    /// It is in the database as it is here.
    pub(crate) fn kept(&mut self) {
        self.stored = self.seq;
    }

    pub(crate) fn is_new(&self) -> bool {
        self.seq != self.stored
    }

    /// Whether there is a record.
    pub(crate) fn is_begun(&self) -> bool {
        self.seq > 0
    }
}

/// What a checkpoint says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The record had this hash.
    Mark,
    /// So had this, and it and all before it were removed because of their age.
    Cut,
}

/// A signed statement about one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(super) kind: Kind,
    pub(super) seq: u64,
    pub(super) hash: String,
    pub(super) at: Timestamp,
}

impl Chain {
    pub(crate) fn new(config: &StoreConfig) -> Self {
        let mut log = config.path.clone().into_os_string();
        log.push("-wal");
        Self {
            key: config.audit_key.clone(),
            node: config.audit_key.node(),
            anchor: config.audit_anchor.clone(),
            log: config.url.is_none().then(|| log.into()),
            every: u64::from(config.checkpoint_every.max(1)),
            opened: Instant::now(),
            last: AtomicU64::new(0),
            marked: AtomicU64::new(0),
            pending: Mutex::default(),
            anchoring: tokio::sync::Mutex::default(),
            tasks: TaskTracker::new(),
            runtime: Handle::current(),
        }
    }

    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    pub(super) fn key(&self) -> &AuditKey {
        &self.key
    }

    pub(super) fn anchor_file(&self) -> &Path {
        &self.anchor
    }

    /// Makes the node known, and anchors what a crash between commit and anchor left out.
    pub(crate) async fn start(&self, connection: &mut Connection) -> Result<()> {
        connection.begin().await?;
        let newest = match self.newest(connection).await {
            Ok(newest) => connection.commit().await.map(|()| newest)?,
            Err(error) => {
                connection.rollback().await;
                return Err(error);
            }
        };
        let Some((checkpoint, mac)) = newest else { return Ok(()) };
        let ours = self.key.signed(&checkpoint.text(&self.node), &mac);
        if ours {
            self.marked.fetch_max(checkpoint.seq, Ordering::Relaxed);
        }
        // A missing anchor is made only with the first checkpoint: later it did not go missing by a crash.
        let anchored = anchor::newest(&self.anchor, &self.node)?;
        let behind = anchored.map_or(checkpoint.seq == 1, |seq| seq < checkpoint.seq);
        if ours && behind {
            self.pending().push(checkpoint);
            self.anchor().await;
        }
        Ok(())
    }

    /// The newest checkpoint of a node that is known.
    async fn newest(&self, connection: &mut Connection) -> Result<Option<(Checkpoint, String)>> {
        let head =
            "INSERT INTO audit_heads (node, seq, hash) VALUES ($1, 0, $2) ON CONFLICT (node) DO NOTHING";
        if connection.run(sql(head).bind(&*self.node).bind(genesis(&self.node))).await? == 1 {
            return Ok(None);
        }
        // What came before and was never signed is for the first look at what is recent.
        self.last.fetch_max(self.head(connection).await?.seq, Ordering::Relaxed);
        let last = "SELECT * FROM audit_checkpoints WHERE node = $1 ORDER BY seq DESC LIMIT 1";
        let row = connection.row(sql(last).bind(&*self.node)).await?;
        row.as_ref().map(Checkpoint::read).transpose()
    }

    /// Where the chain ends. Holds it until the end of the transaction: nobody else can append meanwhile.
    pub(crate) async fn head(&self, connection: &mut Connection) -> Result<Head> {
        let query = format!("SELECT seq, hash FROM audit_heads WHERE node = $1{}", connection.for_update());
        let row = connection.row(sql(query).bind(&*self.node)).await?;
        let row = row.ok_or_else(|| StoreError::corrupt("the head of the audit is gone"))?;
        let seq = row.get("seq")?;
        Ok(Head { seq, hash: row.get("hash")?, stored: seq })
    }

    pub(crate) async fn keep_head(&self, connection: &mut Connection, head: &Head) -> Result<()> {
        let moved = sql("UPDATE audit_heads SET seq = $2, hash = $3 WHERE node = $1").bind(&*self.node);
        connection.run(moved.bind(head.seq).bind(&*head.hash)).await.map(drop)
    }

    /// Appends a record; gives the new end, and the checkpoint when it was time for one.
    pub(crate) async fn append(
        &self,
        connection: &mut Connection,
        head: Head,
        audit: &Audit,
    ) -> Result<(Head, Option<Checkpoint>)> {
        let seq = head.seq + 1;
        let audit = record::safe(audit);
        let mut row = Record {
            node: self.node.clone(),
            seq: i64::try_from(seq).map_err(|_| StoreError::corrupt("the audit has no end"))?,
            at: Timestamp::now().millis(),
            monotonic_ms: i64::try_from(self.opened.elapsed().as_millis()).unwrap_or(i64::MAX),
            tenant: audit.tenant.to_string(),
            principal: audit.principal,
            action: audit.action,
            object: audit.object,
            decision: audit.decision.name().to_owned(),
            request_id: audit.request_id,
            detail: audit.detail.map(|detail| detail.to_string()),
            prev_hash: head.hash,
            hash: String::new(),
        };
        row.hash = row.hash_at(row.seq);
        let (at, hash) = (Timestamp::from_millis(row.at), row.hash.clone());
        insert(connection, row).await?;
        let end = Head { seq, hash, stored: head.stored };
        if seq != 1 && !seq.is_multiple_of(self.every) {
            return Ok((end, None));
        }
        let checkpoint = Checkpoint { kind: Kind::Mark, seq, hash: end.hash.clone(), at };
        self.sign(connection, &checkpoint).await?;
        Ok((end, Some(checkpoint)))
    }

    /// Signs where the chain is now; `None` before the first record.
    pub(crate) async fn checkpoint(
        &self,
        connection: &mut Connection,
        head: &Head,
    ) -> Result<Option<Checkpoint>> {
        if head.seq == 0 {
            return Ok(None);
        }
        let checkpoint =
            Checkpoint { kind: Kind::Mark, seq: head.seq, hash: head.hash.clone(), at: Timestamp::now() };
        self.sign(connection, &checkpoint).await?;
        Ok(Some(checkpoint))
    }

    /// Removes at most `most` of the oldest records that are older than `before`, leaving a signed note.
    pub(crate) async fn cut(
        &self,
        connection: &mut Connection,
        before: Timestamp,
        most: u64,
    ) -> Result<(u64, Option<Checkpoint>)> {
        let kept = "SELECT seq FROM audit WHERE node = $1 AND at >= $2 ORDER BY seq LIMIT 1";
        let kept = connection.row(sql(kept).bind(&*self.node).bind(before)).await?;
        let below = kept.map_or(Ok(i64::MAX as u64), |row| row.get::<u64>("seq"))?;
        let last = "SELECT seq, hash FROM (SELECT seq, hash FROM audit WHERE node = $1 AND seq < $2
            ORDER BY seq LIMIT $3) AS old ORDER BY seq DESC LIMIT 1";
        let last = connection.row(sql(last).bind(&*self.node).bind(below).bind(most)).await?;
        let Some(last) = last else { return Ok((0, None)) };
        let cut = Checkpoint {
            kind: Kind::Cut,
            seq: last.get("seq")?,
            hash: last.get("hash")?,
            at: Timestamp::now(),
        };
        self.sign(connection, &cut).await?;
        let delete = sql("DELETE FROM audit WHERE node = $1 AND seq <= $2").bind(&*self.node).bind(cut.seq);
        let removed = connection.run(delete).await?;
        let older = sql("DELETE FROM audit_checkpoints WHERE node = $1 AND seq < $2").bind(&*self.node);
        connection.run(older.bind(cut.seq)).await?;
        Ok((removed, Some(cut)))
    }

    async fn sign(&self, connection: &mut Connection, checkpoint: &Checkpoint) -> Result<()> {
        let insert =
            "INSERT INTO audit_checkpoints (node, seq, kind, at, hash, mac) VALUES ($1, $2, $3, $4, $5, $6)
            ON CONFLICT (node, seq, kind) DO NOTHING";
        let mac = self.key.sign(&checkpoint.text(&self.node));
        let insert = sql(insert).bind(&*self.node).bind(checkpoint.seq).bind(checkpoint.kind.name());
        connection.run(insert.bind(checkpoint.at).bind(&*checkpoint.hash).bind(mac)).await?;
        Ok(())
    }

    /// A transaction with these checkpoints was committed, after which the chain ends here.
    pub(crate) fn committed(self: &Arc<Self>, head: Option<&Head>, checkpoints: Vec<Checkpoint>) {
        if let Some(head) = head {
            self.last.fetch_max(head.seq, Ordering::Relaxed);
        }
        let marked = checkpoints.iter().map(Checkpoint::seq).max().unwrap_or(0);
        self.marked.fetch_max(marked, Ordering::Relaxed);
        self.anchor_soon(checkpoints);
    }

    /// Whether there are records that no checkpoint speaks of.
    pub(crate) fn has_recent(&self) -> bool {
        self.last.load(Ordering::Relaxed) > self.marked.load(Ordering::Relaxed)
    }

    /// Has the checkpoints of what was committed anchored, which nobody has to wait for: what a crash leaves out is made
    /// up for at the next start, and until then the report counts the records as not anchored.
    fn anchor_soon(self: &Arc<Self>, checkpoints: Vec<Checkpoint>) {
        if checkpoints.is_empty() {
            return;
        }
        self.pending().extend(checkpoints);
        let chain = Arc::clone(self);
        self.tasks.spawn_on(async move { chain.anchor().await }, &self.runtime);
    }

    /// Begins the side file. Whoever writes the first record waits for it, so that a crash right after that record does not
    /// look as if somebody had begun it anew.
    pub(crate) async fn begin_anchor(&self) {
        let (key, node, path) = (self.key.clone(), self.node.clone(), self.anchor.clone());
        let begun = tokio::task::spawn_blocking(move || anchor::begin(&path, &key, &node)).await;
        if !matches!(begun, Ok(Ok(()))) {
            tracing::error!(path = %self.anchor.display(), ?begun, "the audit's anchor could not be begun");
        }
    }

    /// Writes the checkpoints that are not in the side file yet, in their order. The acts are done by now, so a failure is
    /// reported and the next checkpoint tries again.
    pub(crate) async fn anchor(&self) {
        let _one_at_a_time = self.anchoring.lock().await;
        let lines = self.pending().clone();
        if lines.is_empty() {
            return;
        }
        let (key, node, path) = (self.key.clone(), self.node.clone(), self.anchor.clone());
        let (count, log) = (lines.len(), self.log.clone());
        let written = tokio::task::spawn_blocking(move || {
            // What is anchored must survive what the anchor survives, or a loss of power would look like tampering.
            log.map_or(Ok(()), |log| force_to_disk(&log))?;
            anchor::append(&path, &key, &node, &lines)
        });
        let error: Box<dyn std::error::Error + Send + Sync> = match written.await {
            Ok(Ok(())) => {
                self.pending().drain(..count);
                return;
            }
            Ok(Err(error)) => error.into(),
            Err(error) => error.into(),
        };
        // What is lost here is only how far back the anchor reaches.
        let mut pending = self.pending();
        let excess = pending.len().saturating_sub(MOST_PENDING);
        pending.drain(..excess);
        let error: &(dyn std::error::Error + 'static) = &*error;
        tracing::error!(path = %self.anchor.display(), error, "the audit could not be anchored");
    }

    /// Waits for what anchors beside the work.
    pub(crate) async fn close(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn pending(&self) -> std::sync::MutexGuard<'_, Vec<Checkpoint>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn force_to_disk(log: &Path) -> Result<()> {
    match File::open(log).and_then(|file| file.sync_data()) {
        // Folded into the database already, which SQLite does force.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        forced => forced.map_err(StoreError::file("write", log)),
    }
}

async fn insert(connection: &mut Connection, row: Record) -> Result<()> {
    let text = "INSERT INTO audit (node, seq, at, monotonic_ms, tenant, principal, action, object, decision,
        request_id, detail, prev_hash, hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
    let insert = sql(text)
        .bind(row.node)
        .bind(row.seq)
        .bind(row.at)
        .bind(row.monotonic_ms)
        .bind(row.tenant)
        .bind(row.principal)
        .bind(row.action)
        .bind(row.object)
        .bind(row.decision)
        .bind(row.request_id)
        .bind(row.detail)
        .bind(row.prev_hash)
        .bind(row.hash);
    connection.run(insert).await.map(drop)
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mark => "mark",
            Self::Cut => "cut",
        }
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        [Self::Mark, Self::Cut].into_iter().find(|kind| kind.name() == name)
    }
}

impl Checkpoint {
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// What is signed.
    pub(super) fn text(&self, node: &str) -> Canonical {
        let mut text = Canonical::new("sandstorm audit checkpoint v1");
        text.add(node.as_bytes());
        text.add(self.kind.name().as_bytes());
        text.add(&self.seq.to_be_bytes());
        text.add(self.hash.as_bytes());
        text.add(&self.at.millis().to_be_bytes());
        text
    }

    /// With its signature, which is yet to be checked.
    pub(super) fn read(row: &Row) -> Result<(Self, String)> {
        let kind: String = row.get("kind")?;
        let kind =
            Kind::parse(&kind).ok_or_else(|| StoreError::corrupt("a checkpoint is of an unknown kind"))?;
        let checkpoint = Self { kind, seq: row.get("seq")?, hash: row.get("hash")?, at: row.get("at")? };
        Ok((checkpoint, row.get("mac")?))
    }
}
