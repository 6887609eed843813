//! Who holds which sandbox and which program.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandstorm_types::{ExecId, SandboxId};

/// A place in the list of members.
pub(crate) type Place = usize;

#[derive(Debug, Clone, Default)]
pub(crate) struct Homes(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    sandboxes: HashMap<SandboxId, Home>,
    execs: HashMap<ExecId, Place>,
}

#[derive(Debug, Default)]
struct Home {
    /// Where it is; `None` while it is being made.
    at: Option<Place>,
    /// Where something of it may be left.
    tried: Vec<Place>,
    fate: Arc<Fate>,
    execs: Vec<ExecId>,
}

/// Why a sandbox ends; whoever saw something run there asks for it when the sandbox may be forgotten already.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    /// Somebody has set about to end it.
    ending: AtomicBool,
    /// It ended by itself, as its member said.
    ended_itself: AtomicBool,
    /// Its loss was counted.
    counted: AtomicBool,
}

impl Fate {
    fn ends(&self) {
        if !self.ended_itself.load(Ordering::Acquire) {
            self.ending.store(true, Ordering::Release);
        }
    }

    fn ended_itself(&self) {
        if !self.is_ending() {
            self.ended_itself.store(true, Ordering::Release);
        }
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// Whether its loss is news: several programs are lost with one sandbox.
    pub(crate) fn is_first_loss(&self) -> bool {
        !self.counted.swap(true, Ordering::AcqRel)
    }
}

impl Homes {
    /// It is about to be made there: until it is known what came of that, something may be left.
    pub(crate) fn trying(&self, id: SandboxId, place: Place) {
        let mut inner = self.inner();
        let home = inner.sandboxes.entry(id).or_default();
        if !home.tried.contains(&place) {
            home.tried.push(place);
        }
    }

    /// Nothing of it is there.
    pub(crate) fn clean(&self, id: SandboxId, place: Place) {
        let mut inner = self.inner();
        let Some(home) = inner.sandboxes.get_mut(&id) else { return };
        home.tried.retain(|tried| *tried != place);
        if home.at.is_none() && home.tried.is_empty() {
            inner.sandboxes.remove(&id);
        }
    }

    pub(crate) fn settle(&self, id: SandboxId, place: Place) {
        let mut inner = self.inner();
        let home = inner.sandboxes.entry(id).or_default();
        home.at = Some(place);
        home.tried.retain(|tried| *tried != place);
    }

    pub(crate) fn note_exec(&self, exec: ExecId, sandbox: SandboxId, place: Place) {
        let mut inner = self.inner();
        inner.execs.insert(exec, place);
        let home = inner.sandboxes.entry(sandbox).or_default();
        home.at.get_or_insert(place);
        home.execs.push(exec);
    }

    pub(crate) fn of(&self, id: &SandboxId) -> Option<Place> {
        self.inner().sandboxes.get(id).and_then(|home| home.at)
    }

    /// It is about to be ended: what runs there ends with it.
    pub(crate) fn ends(&self, id: &SandboxId) {
        self.fate(id).ends();
    }

    /// A member says that it ended, and nobody here ended it.
    pub(crate) fn ended_itself(&self, id: &SandboxId) {
        self.fate(id).ended_itself();
    }

    /// One that nobody knows of has a fate of its own.
    pub(crate) fn fate(&self, id: &SandboxId) -> Arc<Fate> {
        self.inner().sandboxes.get(id).map(|home| Arc::clone(&home.fate)).unwrap_or_default()
    }

    pub(crate) fn of_exec(&self, exec: &ExecId) -> Option<Place> {
        self.inner().execs.get(exec).copied()
    }

    /// Everywhere that something of it may be, its home first.
    pub(crate) fn all_of(&self, id: &SandboxId) -> Vec<Place> {
        let inner = self.inner();
        let Some(home) = inner.sandboxes.get(id) else { return Vec::new() };
        home.at.into_iter().chain(home.tried.iter().copied()).collect()
    }

    /// It is gone from everywhere; where it was.
    pub(crate) fn forget(&self, id: &SandboxId) -> Option<Place> {
        let mut inner = self.inner();
        let home = inner.sandboxes.remove(id)?;
        for exec in &home.execs {
            inner.execs.remove(exec);
        }
        home.at
    }

    /// Sandboxes that are there.
    pub(crate) fn count(&self, place: Place) -> u32 {
        let held = self.inner().sandboxes.values().filter(|home| home.at == Some(place)).count();
        u32::try_from(held).unwrap_or(u32::MAX)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_left_somewhere_is_remembered_until_it_is_clean() {
        let (homes, id, exec) = (Homes::default(), SandboxId::random(), ExecId::random());
        homes.trying(id, 2);
        homes.trying(id, 0);
        homes.trying(id, 0);
        assert_eq!((homes.of(&id), homes.all_of(&id)), (None, vec![2, 0]));
        homes.settle(id, 0);
        homes.note_exec(exec, id, 0);
        assert_eq!((homes.of(&id), homes.all_of(&id), homes.count(0)), (Some(0), vec![0, 2], 1));
        homes.clean(id, 2);
        assert_eq!(homes.all_of(&id), [0]);
        assert_eq!(homes.of_exec(&exec), Some(0));
        assert_eq!(homes.forget(&id), Some(0));
        assert_eq!((homes.of_exec(&exec), homes.count(0), homes.forget(&id)), (None, 0, None));
        homes.trying(id, 1);
        homes.clean(id, 1);
        assert!(homes.all_of(&id).is_empty());
    }
}
