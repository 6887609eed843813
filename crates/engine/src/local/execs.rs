//! The programs that can be listened to, and how long those that ended can.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, ExecId, SandboxId};

use crate::exec::Followed;
use crate::journal::ExecJournal;

/// How long what a program wrote is kept after its end, and how often that is looked at.
const KEPT_FOR: Duration = Duration::from_secs(3600);
const LOOK: Duration = Duration::from_secs(5);

/// How much of what ended is kept for one sandbox: a program that starts others without end must not fill the disk.
const KEPT: usize = 1000;
const KEPT_BYTES: u64 = 256 << 20;

/// `None` is a program that is being started.
#[derive(Debug, Default)]
pub(super) struct Execs(Mutex<HashMap<ExecId, Option<Followed>>>);

impl Execs {
    fn all(&self) -> MutexGuard<'_, HashMap<ExecId, Option<Followed>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an id for a program that is about to be started.
    pub(super) fn reserve(&self, id: ExecId) -> Result<()> {
        let mut all = self.all();
        if all.contains_key(&id) {
            return Err(Error::new(ErrorKind::Conflict, "there is such an exec already").with("exec", id));
        }
        all.insert(id, None);
        Ok(())
    }

    pub(super) fn insert(&self, id: ExecId, followed: Followed) {
        self.all().insert(id, Some(followed));
    }

    pub(super) fn get(&self, id: &ExecId) -> Result<Followed> {
        let missing = || Error::new(ErrorKind::NotFound, "there is no such exec").with("exec", id);
        self.all().get(id).cloned().flatten().ok_or_else(missing)
    }

    /// Forgets the programs of a sandbox.
    pub(super) fn remove_all(&self, sandbox: &SandboxId) {
        self.all().retain(|_, exec| exec.as_ref().is_none_or(|exec| exec.sandbox != *sandbox));
    }

    /// Drops what ended long ago, for ever.
    pub(super) async fn drop_old(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK).await;
            let mut all = self.all();
            let gone: Vec<_> = overdue(&all).iter().filter_map(|id| all.remove(id)?).collect();
            drop(all);
            for journal in gone.into_iter().filter_map(|exec| exec.journal) {
                journal.remove();
            }
        }
    }
}

/// Those that ended too long ago, or before too many others of their sandbox.
fn overdue(all: &HashMap<ExecId, Option<Followed>>) -> Vec<ExecId> {
    let mut ended: HashMap<SandboxId, Vec<(Duration, ExecId, u64)>> = HashMap::new();
    for (id, exec) in all {
        if let Some(exec) = exec
            && let Some(span) = exec.ended_for()
        {
            let bytes = exec.journal.as_ref().map_or(0, ExecJournal::length);
            ended.entry(exec.sandbox).or_default().push((span, *id, bytes));
        }
    }
    ended.into_values().flat_map(surplus).collect()
}

/// What of one sandbox's ended programs, each with its age and size, is not kept. The latest are.
fn surplus(mut ended: Vec<(Duration, ExecId, u64)>) -> Vec<ExecId> {
    ended.sort_unstable();
    let mut bytes = 0u64;
    let too_many = ended.into_iter().enumerate().filter(|(place, (span, _, size))| {
        bytes = bytes.saturating_add(*size);
        *span > KEPT_FOR || *place >= KEPT || bytes > KEPT_BYTES
    });
    too_many.map(|(_, (_, id, _))| id).collect()
}

/// An id that is free again unless its program was started.
pub(super) struct Reserved<'a> {
    pub(super) execs: &'a Execs,
    pub(super) id: Option<ExecId>,
}

impl Reserved<'_> {
    pub(super) fn fill(mut self, followed: Followed) {
        if let Some(id) = self.id.take() {
            self.execs.insert(id, followed);
        }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.execs.all().remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept_within_bounds() {
        let exec = |n: u64, bytes: u64| (Duration::from_secs(n), ExecId::from_bits(u128::from(n)), bytes);
        assert!(surplus((0..1000).map(|n| exec(n, 10)).collect()).is_empty());
        let old = exec(3601, 10).1;
        assert_eq!(surplus(vec![exec(3601, 10), exec(1, 10)]), [old]);
        assert_eq!(surplus((0..1003).map(|n| exec(n, 10)).collect()).len(), 3);
        let large = vec![exec(1, KEPT_BYTES), exec(2, 1), exec(3, 1)];
        assert_eq!(surplus(large), [exec(2, 1).1, exec(3, 1).1]);
    }
}
