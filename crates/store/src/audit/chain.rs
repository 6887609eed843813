//! Growing the chain and cutting its old end, inside the transaction of the act itself.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use sandstorm_types::Timestamp;
use tokio::sync::{Mutex, MutexGuard};

use super::record::{self, Canonical, Record, genesis};
use super::{Audit, AuditKey, anchor};
use crate::database::{Database, Row, Transaction, sql};
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
    /// Checkpoints that could not be anchored yet. Held while they are written, so that one writes at a time.
    pending: Mutex<Vec<Checkpoint>>,
}

/// Checkpoints that are kept for a file that cannot be written.
const MOST_PENDING: usize = 1000;

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
            pending: Default::default(),
        }
    }

    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// Makes the node known, and anchors what a crash between commit and anchor left out.
    pub(crate) async fn start(&self, database: &Database) -> Result<()> {
        let head = sql("SELECT seq FROM audit_heads WHERE node = $1").bind(&*self.node);
        if database.row(head).await?.is_none() {
            let mut transaction = database.begin().await?;
            let head =
                "INSERT INTO audit_heads (node, seq, hash) VALUES ($1, 0, $2) ON CONFLICT (node) DO NOTHING";
            transaction.run(sql(head).bind(&*self.node).bind(genesis(&self.node))).await?;
            return transaction.commit().await;
        }
        let last = "SELECT * FROM audit_checkpoints WHERE node = $1 ORDER BY seq DESC LIMIT 1";
        let Some(row) = database.row(sql(last).bind(&*self.node)).await? else { return Ok(()) };
        let (checkpoint, mac) = Checkpoint::read(&row)?;
        let ours = self.key.signed(&checkpoint.text(&self.node), &mac);
        // A missing anchor is made only with the first checkpoint: later it did not go missing by a crash.
        let anchored = anchor::newest(&self.anchor, &self.node)?;
        let behind = anchored.map_or(checkpoint.seq == 1, |seq| seq < checkpoint.seq);
        if ours && behind {
            self.anchor(self.pending.lock().await, vec![checkpoint]).await;
        }
        Ok(())
    }

    /// Appends a record; gives the checkpoint when it was time for one.
    pub(crate) async fn append(
        &self,
        transaction: &mut Transaction,
        audit: &Audit,
    ) -> Result<Option<Checkpoint>> {
        // Numbering by an update holds the head until the end of the transaction: nobody else can append meanwhile.
        let next = "UPDATE audit_heads SET seq = seq + 1 WHERE node = $1 RETURNING seq, hash";
        let head = transaction.row(sql(next).bind(&*self.node)).await?;
        let head = head.ok_or_else(|| StoreError::corrupt("the head of the audit is gone"))?;
        let audit = record::safe(audit);
        let mut row = Record {
            node: self.node.clone(),
            seq: head.get("seq")?,
            at: Timestamp::now().millis(),
            monotonic_ms: i64::try_from(self.opened.elapsed().as_millis()).unwrap_or(i64::MAX),
            tenant: audit.tenant.to_string(),
            principal: audit.principal,
            action: audit.action,
            object: audit.object,
            decision: audit.decision.name().to_owned(),
            request_id: audit.request_id,
            detail: audit.detail.map(|detail| detail.to_string()),
            prev_hash: head.get("hash")?,
            hash: String::new(),
        };
        row.hash = row.hash_at(row.seq);
        insert(transaction, &row).await?;
        let moved = sql("UPDATE audit_heads SET hash = $2 WHERE node = $1").bind(&*self.node);
        transaction.run(moved.bind(&*row.hash)).await?;
        let seq: u64 = head.get("seq")?;
        if seq != 1 && !seq.is_multiple_of(self.every) {
            return Ok(None);
        }
        let at = Timestamp::from_millis(row.at);
        let checkpoint = Checkpoint { kind: Kind::Mark, seq, hash: row.hash, at };
        self.sign(transaction, &checkpoint).await?;
        Ok(Some(checkpoint))
    }

    /// Signs where the chain is now; `None` before the first record.
    pub(crate) async fn checkpoint(&self, transaction: &mut Transaction) -> Result<Option<Checkpoint>> {
        let head = "UPDATE audit_heads SET seq = seq WHERE node = $1 RETURNING seq, hash";
        let head = transaction.row(sql(head).bind(&*self.node)).await?;
        let head = head.ok_or_else(|| StoreError::corrupt("the head of the audit is gone"))?;
        let checkpoint = Checkpoint {
            kind: Kind::Mark,
            seq: head.get("seq")?,
            hash: head.get("hash")?,
            at: Timestamp::now(),
        };
        if checkpoint.seq == 0 {
            return Ok(None);
        }
        self.sign(transaction, &checkpoint).await?;
        Ok(Some(checkpoint))
    }

    /// Removes at most `most` of the oldest records that are older than `before`, leaving a signed note.
    pub(crate) async fn cut(
        &self,
        transaction: &mut Transaction,
        before: Timestamp,
        most: u64,
    ) -> Result<(u64, Option<Checkpoint>)> {
        let kept = "SELECT seq FROM audit WHERE node = $1 AND at >= $2 ORDER BY seq LIMIT 1";
        let kept = transaction.row(sql(kept).bind(&*self.node).bind(before)).await?;
        let below = kept.map_or(Ok(i64::MAX as u64), |row| row.get::<u64>("seq"))?;
        let last = "SELECT seq, hash FROM (SELECT seq, hash FROM audit WHERE node = $1 AND seq < $2
            ORDER BY seq LIMIT $3) AS old ORDER BY seq DESC LIMIT 1";
        let last = transaction.row(sql(last).bind(&*self.node).bind(below).bind(most)).await?;
        let Some(last) = last else { return Ok((0, None)) };
        let cut = Checkpoint {
            kind: Kind::Cut,
            seq: last.get("seq")?,
            hash: last.get("hash")?,
            at: Timestamp::now(),
        };
        self.sign(transaction, &cut).await?;
        let delete = sql("DELETE FROM audit WHERE node = $1 AND seq <= $2").bind(&*self.node).bind(cut.seq);
        let removed = transaction.run(delete).await?;
        let older = sql("DELETE FROM audit_checkpoints WHERE node = $1 AND seq < $2").bind(&*self.node);
        transaction.run(older.bind(cut.seq)).await?;
        Ok((removed, Some(cut)))
    }

    async fn sign(&self, transaction: &mut Transaction, checkpoint: &Checkpoint) -> Result<()> {
        let insert =
            "INSERT INTO audit_checkpoints (node, seq, kind, at, hash, mac) VALUES ($1, $2, $3, $4, $5, $6)
            ON CONFLICT (node, seq, kind) DO NOTHING";
        let mac = self.key.sign(&checkpoint.text(&self.node));
        let insert = sql(insert).bind(&*self.node).bind(checkpoint.seq).bind(checkpoint.kind.name());
        transaction.run(insert.bind(checkpoint.at).bind(&*checkpoint.hash).bind(mac)).await?;
        Ok(())
    }

    /// Commits, then writes the checkpoints that it made to the side file. One at a time, so that they are anchored in
    /// their order.
    pub(crate) async fn commit(&self, transaction: Transaction, checkpoints: Vec<Checkpoint>) -> Result<()> {
        let pending = self.pending.lock().await;
        transaction.commit().await?;
        self.anchor(pending, checkpoints).await;
        Ok(())
    }

    /// The act is done by now, so a failure is reported and the next checkpoint tries again; until then the report
    /// counts the records as not anchored.
    async fn anchor(&self, mut pending: MutexGuard<'_, Vec<Checkpoint>>, checkpoints: Vec<Checkpoint>) {
        pending.extend(checkpoints);
        let (key, node, path) = (self.key.clone(), self.node.clone(), self.anchor.clone());
        let (lines, log) = (pending.clone(), self.log.clone());
        let written = tokio::task::spawn_blocking(move || {
            // What is anchored must survive what the anchor survives, or a loss of power would look like tampering.
            log.map_or(Ok(()), |log| force_to_disk(&log))?;
            anchor::append(&path, &key, &node, &lines)
        });
        let written = written.await;
        let error: Box<dyn std::error::Error> = match written {
            Ok(Ok(())) => return pending.clear(),
            Ok(Err(error)) => error.into(),
            Err(error) => error.into(),
        };
        // What is lost here is only how far back the anchor reaches.
        let excess = pending.len().saturating_sub(MOST_PENDING);
        pending.drain(..excess);
        tracing::error!(path = %self.anchor.display(), error, "the audit could not be anchored");
    }
}

fn force_to_disk(log: &Path) -> Result<()> {
    match File::open(log).and_then(|file| file.sync_data()) {
        // Folded into the database already, which SQLite does force.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        forced => forced.map_err(StoreError::file("write", log)),
    }
}

async fn insert(transaction: &mut Transaction, row: &Record) -> Result<()> {
    let text = "INSERT INTO audit (node, seq, at, monotonic_ms, tenant, principal, action, object, decision,
        request_id, detail, prev_hash, hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
    let insert = sql(text)
        .bind(&*row.node)
        .bind(row.seq)
        .bind(row.at)
        .bind(row.monotonic_ms)
        .bind(&*row.tenant)
        .bind(&*row.principal)
        .bind(&*row.action)
        .bind(&*row.object)
        .bind(&*row.decision)
        .bind(&*row.request_id)
        .bind(row.detail.clone())
        .bind(&*row.prev_hash)
        .bind(&*row.hash);
    transaction.run(insert).await.map(drop)
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
