//! Many calls in one transaction.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::sync::mpsc;

use super::job::{Job, Worked};
use super::writer::Order;
use super::{Known, Writing};
use crate::StoreError;

/// Calls that one transaction holds at most, and how long it takes new ones in: whoever was first waits for the last.
const MOST: usize = 128;
const LONGEST: Duration = Duration::from_millis(5);
/// How often a call that another server was preferred to is tried again.
const TRIES: u32 = 5;

type Jobs = Vec<Box<dyn Job>>;

/// What became of a call within its transaction.
enum Fate {
    /// It is in the transaction.
    Kept,
    /// Nothing of it is.
    Undone,
    /// It has to be done again, by itself.
    Again,
    /// The transaction is gone with everything in it.
    Broken,
    /// There is no transaction to be had.
    Refused(StoreError),
}

impl Writing {
    /// Does a call and all that are waiting, and commits. Nobody is waited for: whoever comes during the commit is in
    /// the next batch. Gives an order that does not belong to it.
    pub(super) async fn batch(
        &mut self,
        first: Box<dyn Job>,
        queue: &mut mpsc::Receiver<Order>,
    ) -> Option<Order> {
        let began = Instant::now();
        let (mut kept, mut undone, mut again): (Jobs, Jobs, Jobs) = Default::default();
        let tenant = first.tenant();
        let mut next = Some(first);
        let mut beyond = None;
        while let Some(mut job) = next.take() {
            match self.attempt(&mut *job, !kept.is_empty()).await {
                Fate::Kept => kept.push(job),
                Fate::Undone => undone.push(job),
                Fate::Again => again.push(job),
                Fate::Broken => {
                    again.append(&mut kept);
                    again.push(job);
                    break;
                }
                Fate::Refused(error) => {
                    fail_all(kept.drain(..).chain([job]), &error);
                    self.refuse_waiting(&error, queue, &mut beyond);
                    break;
                }
            }
            if kept.len() + undone.len() >= MOST || began.elapsed() >= LONGEST {
                break;
            }
            match queue.try_recv() {
                // Where others write too, tenants keep apart, or locks would be taken in another order.
                Ok(Order::Write(job))
                    if !self.connection.is_shared() || (tenant.is_some() && job.tenant() == tenant) =>
                {
                    next = Some(job);
                }
                Ok(order) => beyond = Some(order),
                Err(_) => {}
            }
        }
        self.settle(kept, undone).await;
        for job in again {
            self.alone(job).await;
        }
        beyond
    }

    /// Does a call in the transaction under way, or in a new one. What was not meant to stay is undone, and only that.
    async fn attempt(&mut self, job: &mut dyn Job, beside_others: bool) -> Fate {
        if job.is_abandoned() {
            return Fate::Undone;
        }
        if beside_others {
            if self.connection.savepoint().await.is_err() {
                return self.broken().await;
            }
        } else if let Err(error) = self.begin().await {
            return Fate::Refused(error);
        }
        let known = self.known.clone();
        // A mistake in one call must not end the thread that all others need.
        let worked = AssertUnwindSafe(job.work(self)).catch_unwind().await;
        let fate = match worked.unwrap_or(Worked::Undo) {
            Worked::Keep if !beside_others => return Fate::Kept,
            Worked::Keep if self.connection.release().await.is_ok() => return Fate::Kept,
            Worked::Keep => return self.broken().await,
            Worked::Undo => Fate::Undone,
            Worked::Deadlock => Fate::Again,
        };
        if !beside_others {
            self.rollback().await;
            return fate;
        }
        // SQLite ends the whole transaction when the disk is full; a connection may be lost.
        if !self.connection.is_open() || self.connection.undo().await.is_err() {
            return self.broken().await;
        }
        self.known = known;
        fate
    }

    /// A call by itself, in a transaction of its own.
    async fn alone(&mut self, mut job: Box<dyn Job>) {
        for _ in 0..TRIES {
            match self.attempt(&mut *job, false).await {
                Fate::Kept => return self.settle(vec![job], Vec::new()).await,
                Fate::Undone | Fate::Broken => return job.answer(),
                Fate::Refused(error) => return job.fail(error),
                Fate::Again => {}
            }
        }
        job.answer();
    }

    /// Commits, then answers: those whose work is in the transaction, and those who saw what it holds.
    async fn settle(&mut self, kept: Jobs, undone: Jobs) {
        if !kept.is_empty()
            && let Err(error) = self.commit().await
        {
            return fail_all(kept.into_iter().chain(undone), &error);
        }
        for job in kept.into_iter().chain(undone) {
            job.answer();
        }
    }

    async fn begin(&mut self) -> Result<(), StoreError> {
        self.known = Known::default();
        self.connection.begin().await
    }

    async fn rollback(&mut self) {
        self.known = Known::default();
        self.connection.rollback().await;
    }

    async fn broken(&mut self) -> Fate {
        self.rollback().await;
        Fate::Broken
    }

    async fn commit(&mut self) -> Result<(), StoreError> {
        if let Err(error) = self.write_known().await {
            self.rollback().await;
            return Err(error);
        }
        self.connection.commit().await?;
        self.commits.fetch_add(1, Ordering::Relaxed);
        let checkpoints = std::mem::take(&mut self.known.checkpoints);
        // An anchor without the first record looks as if it had been begun anew, so nobody comes after it before it is
        // there.
        let first = checkpoints.iter().any(|checkpoint| checkpoint.seq() == 1);
        self.chain.anchor_soon(checkpoints);
        if first {
            self.chain.anchor().await;
        }
        Ok(())
    }

    /// A database that is not there keeps each of them waiting; all who wait now have waited enough.
    fn refuse_waiting(
        &self,
        error: &StoreError,
        queue: &mut mpsc::Receiver<Order>,
        beyond: &mut Option<Order>,
    ) {
        while let Ok(order) = queue.try_recv() {
            match order {
                Order::Write(job) => job.fail(error.again()),
                Order::Close(_) => {
                    *beyond = Some(order);
                    return;
                }
            }
        }
    }
}

fn fail_all(jobs: impl Iterator<Item = Box<dyn Job>>, error: &StoreError) {
    for job in jobs {
        job.fail(error.again());
    }
}
