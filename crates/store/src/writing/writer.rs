//! The thread that writes.
//!
//! Calls wait in one queue. The thread takes all that wait into one transaction, each undone by itself when it fails,
//! and answers them when the transaction is committed. So a commit, and with `durability: full` the disk, is paid for once
//! by everybody who came while the one before was under way, and nobody is made to wait for company.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
#[cfg(feature = "testing")]
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use sandstorm_types::TenantId;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::job::Job;
use super::{Known, Writing};
use crate::audit::Chain;
use crate::database::{Connection, migrate};
use crate::{Result, StoreError};

/// Calls that may wait; more wait to get in.
const WAITING: usize = 1024;

pub(super) enum Order {
    Write(Box<dyn Job>),
    /// Nothing more comes; to be told when the connection is closed.
    Close(oneshot::Sender<()>),
}

/// A hand on the thread. It ends when there is none any more.
#[derive(Debug)]
pub(crate) struct Writer {
    queue: mpsc::Sender<Order>,
    #[cfg(feature = "testing")]
    commits: Arc<AtomicU64>,
    _thread: JoinHandle<()>,
}

impl Writer {
    /// Brings the database to a version, then serves.
    pub(crate) async fn start(connection: Connection, chain: Arc<Chain>, version: i64) -> Result<Self> {
        let unavailable = |error| StoreError::Unavailable { source: error };
        let (queue, orders) = mpsc::channel(WAITING);
        let (ready, started) = oneshot::channel();
        let commits = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&commits);
        let runtime = Handle::current();
        let thread = std::thread::Builder::new().name("store-write".to_owned());
        // Made on the thread that drives it: what it does need not be able to move to another.
        let work = async move || {
            let mut writing = Writing { chain, connection, commits: counted, known: Known::default() };
            match writing.prepare(version).await {
                Ok(()) => {
                    let _ = ready.send(Ok(()));
                    writing.serve(orders).await;
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        };
        let thread =
            thread.spawn(move || runtime.block_on(work())).map_err(|error| unavailable(Box::new(error)))?;
        started.await.map_err(|error| unavailable(Box::new(error)))??;
        Ok(Self {
            queue,
            #[cfg(feature = "testing")]
            commits,
            _thread: thread,
        })
    }

    #[cfg(feature = "testing")]
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    pub(super) async fn ask(&self, job: Box<dyn Job>) -> Result<()> {
        self.queue.send(Order::Write(job)).await.map_err(|_| closed())
    }

    /// Waits for everything that was asked for before.
    pub(crate) async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.queue.send(Order::Close(done)).await.is_ok() {
            let _ = closed.await;
        }
    }
}

pub(super) fn closed() -> StoreError {
    StoreError::Unavailable { source: "the store is closed".into() }
}

impl Writing {
    async fn prepare(&mut self, version: i64) -> Result<()> {
        migrate(&mut self.connection, version).await?;
        self.chain.start(&mut self.connection).await
    }

    async fn serve(mut self, mut queue: mpsc::Receiver<Order>) {
        let mut next = None;
        loop {
            let order = match next.take() {
                Some(order) => order,
                None => match queue.recv().await {
                    Some(order) => order,
                    None => return,
                },
            };
            match order {
                Order::Write(job) => next = self.batch(job, &mut queue).await,
                Order::Close(done) => {
                    drop(self);
                    let _ = done.send(());
                    return;
                }
            }
        }
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(job) => f.debug_tuple("Write").field(&job.tenant().map(TenantId::bits)).finish(),
            Self::Close(_) => f.write_str("Close"),
        }
    }
}
