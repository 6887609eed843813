//! Many calls in one transaction.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::FutureExt;

use super::job::{Job, Worked};
use super::queue::{Hand, Queue};
use super::{Known, Writing};
use crate::StoreError;
use crate::audit::Head;

/// Calls that one transaction holds at most, and how long it takes new ones in: whoever was first waits for the last.
const MOST: usize = 128;
const LONGEST: Duration = Duration::from_millis(5);
/// The same for a caller, whose thread has others to serve.
const MOST_BY_CALLER: usize = 16;
const LONGEST_BY_CALLER: Duration = Duration::from_micros(500);
/// Tenants whose last event is known from one transaction to the next.
const MOST_KNOWN: usize = 1024;
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
    /// There is none to be had at once.
    NotNow,
}

impl Writing {
    /// Does a call and all that are waiting, and commits. Nobody is waited for: whoever comes during the commit is in
    /// the next batch.
    pub(super) async fn batch(&mut self, first: Box<dyn Job>, queue: &Queue) {
        let began = Instant::now();
        let (most, longest) = match self.hand {
            Hand::Caller => (MOST_BY_CALLER, LONGEST_BY_CALLER),
            Hand::Thread => (MOST, LONGEST),
        };
        let (mut kept, mut undone, mut again): (Jobs, Jobs, Jobs) = Default::default();
        let tenant = first.tenant();
        let mut next = Some(first);
        while let Some(mut job) = next.take() {
            match self.attempt(&mut *job, !kept.is_empty()).await {
                Fate::Kept => kept.push(job),
                Fate::Undone => undone.push(job),
                Fate::Again => again.push(job),
                Fate::NotNow => {
                    again.push(job);
                    break;
                }
                Fate::Broken => {
                    again.append(&mut kept);
                    again.push(job);
                    break;
                }
                Fate::Refused(error) => {
                    // A database that is not there keeps each of them waiting; all who wait now have waited enough.
                    fail_all(kept.drain(..).chain([job]).chain(queue.take_all()), &error);
                    break;
                }
            }
            if kept.len() + undone.len() >= most || began.elapsed() >= longest {
                break;
            }
            // Where others write too, tenants keep apart, or locks would be taken in another order.
            let shared = self.connection.is_shared();
            next = queue.next_if(self.hand, |job| !shared || (tenant.is_some() && job.tenant() == tenant));
        }
        self.settle(kept, undone).await;
        match self.hand {
            Hand::Caller if !again.is_empty() => queue.leave_to_thread(again),
            Hand::Caller => {}
            Hand::Thread => {
                for job in again {
                    self.alone(job).await;
                }
            }
        }
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
        } else {
            match self.begin().await {
                Ok(true) => {}
                Ok(false) => return Fate::NotNow,
                Err(error) => return Fate::Refused(error),
            }
        }
        let known = beside_others.then(|| self.known.clone());
        // A mistake in one call must not end whoever writes for all others.
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
        self.known = known.unwrap_or_default();
        fate
    }

    /// A call by itself, in a transaction of its own.
    async fn alone(&mut self, mut job: Box<dyn Job>) {
        for _ in 0..TRIES {
            match self.attempt(&mut *job, false).await {
                Fate::Kept => return self.settle(vec![job], Vec::new()).await,
                Fate::Undone | Fate::Broken => return job.answer(),
                Fate::Refused(error) => return job.fail(error),
                Fate::Again | Fate::NotNow => {}
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

    /// Whether there is a transaction now. A caller does not wait for another process that has one.
    async fn begin(&mut self) -> Result<bool, StoreError> {
        let begun = match self.hand {
            Hand::Caller => self.connection.begin_at_once()?,
            Hand::Thread => self.connection.begin().await.map(|()| true)?,
        };
        if begun {
            let version = self.connection.version();
            // What was known at the last commit still holds unless somebody else has written since.
            if version.is_none() || version != self.version || self.known.events.len() > MOST_KNOWN {
                self.known = Known::default();
            }
            self.version = version;
        }
        Ok(begun)
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
        if let Err(error) = self.connection.commit().await {
            self.known = Known::default();
            return Err(error);
        }
        if let Some(head) = &mut self.known.head {
            head.kept();
        }
        self.commits.fetch_add(1, Ordering::Relaxed);
        let checkpoints = std::mem::take(&mut self.known.checkpoints);
        // An anchor without the first record looks as if it had been begun anew, so nobody comes after it before it is
        // there.
        let first = !self.audit_begun && checkpoints.iter().any(|checkpoint| checkpoint.seq() == 1);
        self.audit_begun |= self.known.head.as_ref().is_some_and(Head::is_begun);
        self.chain.anchor_soon(checkpoints);
        if first {
            self.chain.anchor().await;
        }
        Ok(())
    }
}

fn fail_all(jobs: impl Iterator<Item = Box<dyn Job>>, error: &StoreError) {
    for job in jobs {
        job.fail(error.again());
    }
}
