//! The handle: opening, health, backup, closing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use sandstorm_types::Timestamp;

use crate::audit::{Chain, random_name};
use crate::database::{Database, NEWEST, sql};
use crate::intents::Intents;
use crate::leases::Fence;
use crate::writing::Writer;
use crate::{Result, StoreConfig};

/// A hand on the store; cloning gives another.
///
/// Every call that writes is done whole or not at all, and is committed when it returns. Dropping its future before leaves
/// either all of it or nothing.
#[derive(Debug, Clone)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    database: Database,
    chain: Arc<Chain>,
    writer: Writer,
    intents: Arc<Intents>,
    /// Who writes: this opening is told from all others by its instance.
    fence: Arc<Fence>,
    place: Option<String>,
    clock_file: PathBuf,
    lease: Duration,
    /// When this server last said that it lives, in milliseconds.
    last_beat: AtomicI64,
}

impl Store {
    /// Connects and brings the database to this program's version. A database of a newer version is refused.
    pub async fn open(config: &StoreConfig) -> Result<Self> {
        Self::open_at(config, NEWEST).await
    }

    /// Opens at an earlier version, for tests of migrations.
    pub(crate) async fn open_at(config: &StoreConfig, version: i64) -> Result<Self> {
        let (database, connection) = Database::connect(config).await?;
        let chain = Arc::new(Chain::new(config));
        let fence = Arc::new(Fence::new(chain.node().to_owned(), random_name()));
        let writer = Writer::start(connection, Arc::clone(&chain), Arc::clone(&fence), version).await?;
        Ok(Self(Arc::new(Inner {
            database,
            chain,
            writer,
            intents: Intents::new(config),
            fence,
            place: config.place.clone(),
            clock_file: config.clock.clone(),
            lease: config.lease,
            last_beat: AtomicI64::new(i64::MIN),
        })))
    }

    /// Whether the database answers.
    pub async fn health(&self) -> Result<()> {
        self.database().row(sql("SELECT id FROM tenants LIMIT 1")).await.map(drop)
    }

    /// Anchors the audit and closes all connections.
    pub async fn close(&self) {
        if let Err(error) = self.checkpoint_audit().await {
            tracing::warn!(%error, "the audit could not be anchored at the end");
        }
        self.chain().close().await;
        // The last to close folds the log of SQLite into its file, which a connection that may only read cannot do.
        self.database().close().await;
        self.writer().close().await;
    }

    pub(crate) fn database(&self) -> &Database {
        &self.0.database
    }

    pub(crate) fn writer(&self) -> &Writer {
        &self.0.writer
    }

    pub(crate) fn intents(&self) -> &Arc<Intents> {
        &self.0.intents
    }

    pub(crate) fn chain(&self) -> &Chain {
        &self.0.chain
    }

    /// Whether the last beat is longer ago than `every`; the caller makes the next one.
    pub(crate) fn beat_is_due(&self, at: Timestamp, every: Duration) -> bool {
        let last = self.0.last_beat.load(Ordering::Relaxed);
        let due = last <= at.before(every).millis();
        let taken =
            || self.0.last_beat.compare_exchange(last, at.millis(), Ordering::Relaxed, Ordering::Relaxed);
        due && taken().is_ok()
    }

    pub(crate) fn instance(&self) -> &str {
        self.0.fence.instance()
    }

    pub(crate) fn fence(&self) -> &Fence {
        &self.0.fence
    }

    pub(crate) fn place(&self) -> Option<&str> {
        self.0.place.as_deref()
    }

    pub(crate) fn clock_file(&self) -> &Path {
        &self.0.clock_file
    }

    /// How long its records stay this server's own when it is not heard of.
    pub fn lease_span(&self) -> Duration {
        self.0.lease
    }
}
