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
        // What could not be written, and can wait.
        let mut left = Jobs::new();
        let tenant = first.tenant();
        let mut next = Some(first);
        while let Some(mut job) = next.take() {
            match self.attempt(&mut *job, !kept.is_empty()).await {
                Fate::Kept => kept.push(job),
                Fate::Undone if has_to_stay(&*job) => {
                    // Nobody overtakes it.
                    let error = job.failure().map_or_else(unwritten, StoreError::again);
                    left.push(job);
                    left.extend(fail_all(queue.take_all().into_iter(), &error));
                    break;
                }
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
                    left.extend(fail_all(kept.drain(..).chain([job]).chain(queue.take_all()), &error));
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
        // They came before those that are left already.
        let mut first_left = self.settle(kept, undone).await;
        first_left.append(&mut left);
        left = first_left;
        match self.hand {
            Hand::Caller if !again.is_empty() => queue.leave_to_thread(again),
            Hand::Caller => {}
            Hand::Thread => {
                for job in again {
                    match left.last().map(|stays| stays.failure().map_or_else(unwritten, StoreError::again)) {
                        Some(error) => left.extend(fail_all([job].into_iter(), &error)),
                        None => left.extend(self.alone(job).await),
                    }
                }
            }
        }
        queue.put_back(left);
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

    /// A call by itself, in a transaction of its own. What was not written and can wait is given back.
    async fn alone(&mut self, mut job: Box<dyn Job>) -> Jobs {
        for _ in 0..TRIES {
            match self.attempt(&mut *job, false).await {
                Fate::Kept => return self.settle(vec![job], Vec::new()).await,
                Fate::Undone | Fate::Broken => break,
                Fate::Refused(error) => return fail_all([job].into_iter(), &error),
                Fate::Again | Fate::NotNow => {}
            }
        }
        answer_all([job].into_iter())
    }

    /// Commits, then answers: those whose work is in the transaction, and those who saw what it holds. What was not
    /// written and can wait is given back.
    async fn settle(&mut self, kept: Jobs, undone: Jobs) -> Jobs {
        let is_needed = !kept.is_empty();
        let all = kept.into_iter().chain(undone);
        match if is_needed { self.commit().await } else { Ok(()) } {
            Ok(()) => answer_all(all),
            Err(error) => fail_all(all, &error),
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
            if let Err(error) = self.check_fence().await {
                self.rollback().await;
                return Err(error);
            }
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
        let first = self.known.checkpoints.iter().any(|checkpoint| checkpoint.seq() == 1);
        if first && !self.audit_begun {
            self.chain.begin_anchor().await;
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
        self.audit_begun |= self.known.head.as_ref().is_some_and(Head::is_begun);
        self.chain.committed(self.known.head.as_ref(), checkpoints);
        Ok(())
    }
}

/// Whether it can wait, and could be written another time.
fn has_to_stay(job: &dyn Job) -> bool {
    job.can_wait() && job.failure().is_some_and(StoreError::is_transient)
}

/// Tells everybody what their calls came to, except for what has to be tried again.
fn answer_all(jobs: impl Iterator<Item = Box<dyn Job>>) -> Jobs {
    let (left, over): (Jobs, Jobs) = jobs.partition(|job| has_to_stay(&**job));
    over.into_iter().for_each(|job| job.answer());
    left
}

/// The same for what came to nothing.
fn fail_all(jobs: impl Iterator<Item = Box<dyn Job>>, error: &StoreError) -> Jobs {
    let (left, over): (Jobs, Jobs) = jobs.partition(|job| job.can_wait() && error.is_transient());
    over.into_iter().for_each(|job| job.fail(error.again()));
    left
}

fn unwritten() -> StoreError {
    StoreError::Unavailable { source: "what came before could not be written".into() }
}
