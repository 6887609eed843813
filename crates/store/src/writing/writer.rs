//! The one writer of a store: its queue, and its thread.
//!
//! All that waits is one transaction, each call undone by itself when it fails, and answered when the transaction is
//! committed. So a commit, and with `durability: full` the disk, is paid for once by everybody who came while the one
//! before was under way, and nobody is made to wait for company.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::Writing;
use super::job::Job;
use super::owed::Owed;
use super::queue::{Queue, closed};
use crate::audit::Chain;
use crate::database::{Connection, migrate};
use crate::intents::Announced;
use crate::leases::Fence;
use crate::{Result, StoreError};

/// Calls that may wait; more wait to get in.
const WAITING: usize = 1024;

/// The thread ends when this does.
#[derive(Debug)]
pub(crate) struct Writer {
    queue: Arc<Queue>,
    room: Arc<Semaphore>,
    /// How many wait that are on file.
    debts: Arc<AtomicUsize>,
    #[cfg(feature = "testing")]
    commits: Arc<AtomicU64>,
}

impl Writer {
    /// Brings the database to a version, then serves.
    pub(crate) async fn start(
        connection: Connection,
        chain: Arc<Chain>,
        fence: Arc<Fence>,
        version: i64,
    ) -> Result<Self> {
        let unavailable = |error| StoreError::Unavailable { source: error };
        let (ready, started) = oneshot::channel();
        let commits = Arc::new(AtomicU64::new(0));
        let mut writing = Writing::new(chain, fence, connection, Arc::clone(&commits));
        let runtime = Handle::current();
        // Made on the thread that drives it: what it does need not be able to move to another.
        let work = async move || {
            let prepared = writing.prepare(version).await;
            let queue = prepared.map(|()| Arc::new(Queue::new(writing)));
            let serves = queue.as_ref().ok().map(Arc::clone);
            // Whoever gives up before it is open leaves nobody who could close it.
            if ready.send(queue).is_ok()
                && let Some(queue) = serves
            {
                queue.serve().await;
            }
        };
        let thread = std::thread::Builder::new().name("store-write".to_owned());
        thread.spawn(move || runtime.block_on(work())).map_err(|error| unavailable(Box::new(error)))?;
        let queue = started.await.map_err(|error| unavailable(Box::new(error)))??;
        Ok(Self {
            queue,
            room: Arc::new(Semaphore::new(WAITING)),
            debts: Arc::default(),
            #[cfg(feature = "testing")]
            commits,
        })
    }

    #[cfg(feature = "testing")]
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// A place in the queue, to be held until the call is answered.
    pub(super) async fn room(&self) -> Result<OwnedSemaphorePermit> {
        Arc::clone(&self.room).acquire_owned().await.map_err(|_| closed())
    }

    /// Has a call written, here and now or by somebody else.
    pub(super) fn ask(&self, job: Box<dyn Job>) -> Result<()> {
        if let Some(desk) = self.queue.enter(job)? {
            desk.write_here();
        }
        Ok(())
    }

    /// Has something written that is on file, with whatever comes next.
    pub(crate) fn owe<F>(&self, announced: Announced, work: F) -> Result<()>
    where
        F: AsyncFn(&mut Writing) -> Result<()> + Send + 'static,
    {
        self.queue.add(Box::new(Owed::new(work, announced, &self.debts)))
    }

    pub(crate) fn owes_nothing(&self) -> bool {
        self.debts.load(Ordering::Acquire) == 0
    }

    /// Waits for everything that was asked for before.
    pub(crate) async fn close(&self) {
        self.room.close();
        let (tell, over) = oneshot::channel();
        self.queue.close(Some(tell));
        // An error is an end as well: it was over before.
        let _ = over.await;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.close(None);
    }
}

impl Writing {
    async fn prepare(&mut self, version: i64) -> Result<()> {
        migrate(&mut self.connection, version).await?;
        self.chain.start(&mut self.connection).await
    }
}
