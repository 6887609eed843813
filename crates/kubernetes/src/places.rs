//! The sandboxes that this process has to do with, and their programs.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, ExecId, SandboxId};
use tokio::sync::watch;

use crate::exec::Running;
use crate::living::Living;

/// How long what a program wrote is kept after its end, and how often that is looked at.
const KEPT_FOR: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_secs(5);

/// How much of what ended is kept for one sandbox.
const KEPT: usize = 200;
const KEPT_BYTES: u64 = 64 << 20;

/// And for all of them together: it is in memory.
const KEPT_IN_ALL: u64 = 256 << 20;

#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    living: HashMap<SandboxId, Arc<Living>>,
    /// Being made; whoever waits hears when that is settled.
    making: HashMap<SandboxId, watch::Receiver<()>>,
    execs: HashMap<ExecId, Arc<Running>>,
    starting: HashSet<ExecId>,
}

impl Places {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, id: &SandboxId) -> Option<Arc<Living>> {
        self.known().living.get(id).cloned()
    }

    /// Remembers a sandbox. The one that is known stays.
    pub(crate) fn add(&self, living: Arc<Living>) -> Arc<Living> {
        self.known().living.entry(living.id).or_insert(living).clone()
    }

    /// Forgets a sandbox that is gone, and its programs.
    pub(crate) fn forget(&self, id: &SandboxId) {
        let mut known = self.known();
        known.living.remove(id);
        known.execs.retain(|_, exec| exec.sandbox != *id);
    }

    /// Takes an id for a creation.
    pub(crate) fn begin(self: &Arc<Self>, id: SandboxId) -> Result<Making> {
        let mut known = self.known();
        if known.living.contains_key(&id) || known.making.contains_key(&id) {
            return Err(exists(id));
        }
        let (settled, waiting) = watch::channel(());
        known.making.insert(id, waiting);
        Ok(Making { places: Arc::clone(self), id, _settled: settled })
    }

    pub(crate) fn is_being_made(&self, id: &SandboxId) -> bool {
        self.known().making.contains_key(id)
    }

    /// Waits while a sandbox is being made.
    pub(crate) async fn settled(&self, id: &SandboxId) {
        let waiting = self.known().making.get(id).cloned();
        if let Some(mut waiting) = waiting {
            // Nothing is ever sent: the change is that whoever made it is done.
            let _ = waiting.changed().await;
        }
    }

    pub(crate) fn exec(&self, id: &ExecId) -> Result<Arc<Running>> {
        let missing = || Error::new(ErrorKind::NotFound, "there is no such exec").with("exec", id);
        self.known().execs.get(id).cloned().ok_or_else(missing)
    }

    /// Takes an id for a program. It is free again when what comes back is dropped.
    pub(crate) fn reserve(self: &Arc<Self>, id: ExecId) -> Result<Reserved> {
        let mut known = self.known();
        if known.execs.contains_key(&id) || !known.starting.insert(id) {
            return Err(Error::new(ErrorKind::Conflict, "there is such an exec already").with("exec", id));
        }
        Ok(Reserved { places: Arc::clone(self), id })
    }

    /// Drops the logs of programs that ended long ago, for ever.
    pub(crate) async fn drop_old(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK).await;
            let mut known = self.known();
            for id in overdue(&known.execs) {
                known.execs.remove(&id);
            }
        }
    }
}

/// Those that ended too long ago, or before too many others of their sandbox.
fn overdue(all: &HashMap<ExecId, Arc<Running>>) -> Vec<ExecId> {
    let mut ended: HashMap<SandboxId, Vec<(Duration, ExecId, u64)>> = HashMap::new();
    for (id, exec) in all {
        if let Some(span) = exec.ended_for() {
            ended.entry(exec.sandbox).or_default().push((span, *id, exec.kept_bytes()));
        }
    }
    overdue_of(ended.into_values().collect())
}

/// Of the programs that ended, by their sandboxes, those that are not kept.
fn overdue_of(ended: Vec<Vec<(Duration, ExecId, u64)>>) -> Vec<ExecId> {
    let all = ended.concat();
    let mut gone: Vec<ExecId> = ended.into_iter().flat_map(surplus).collect();
    let dropped: HashSet<ExecId> = gone.iter().copied().collect();
    let mut left: Vec<_> = all.into_iter().filter(|(_, id, _)| !dropped.contains(id)).collect();
    left.sort_unstable();
    let mut bytes = 0u64;
    gone.extend(left.into_iter().filter_map(|(_, id, size)| {
        bytes = bytes.saturating_add(size);
        (bytes > KEPT_IN_ALL).then_some(id)
    }));
    gone
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

pub(crate) fn exists(id: SandboxId) -> Error {
    Error::new(ErrorKind::Conflict, "there is such a sandbox already").with("sandbox", id)
}

/// A sandbox that is being made. Dropping it is the end of the attempt.
#[derive(Debug)]
pub(crate) struct Making {
    places: Arc<Places>,
    pub(crate) id: SandboxId,
    _settled: watch::Sender<()>,
}

impl Making {
    /// It exists.
    pub(crate) fn made(self, living: Arc<Living>) {
        self.places.add(living);
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.places.known().making.remove(&self.id);
    }
}

/// The id of a program that is being started.
#[derive(Debug)]
pub(crate) struct Reserved {
    places: Arc<Places>,
    pub(crate) id: ExecId,
}

impl Reserved {
    pub(crate) fn fill(self, running: Arc<Running>) {
        self.places.known().execs.insert(self.id, running);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.places.known().starting.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_is_kept_within_bounds_of_each_sandbox_and_of_all() {
        let exec = |sandbox: u64, n: u64, bytes: u64| {
            (Duration::from_secs(n), ExecId::from_bits(u128::from(sandbox * 1000 + n)), bytes)
        };
        let few = vec![vec![exec(1, 1, KEPT_BYTES), exec(1, 2, 1)], vec![exec(2, 1, 1)]];
        assert_eq!(overdue_of(few.clone()), [few[0][1].1]);
        let many: Vec<_> = (0..6).map(|sandbox| vec![exec(sandbox, sandbox + 1, KEPT_BYTES)]).collect();
        assert_eq!(overdue_of(many.clone()), [many[4][0].1, many[5][0].1], "the latest are kept");
    }
}
