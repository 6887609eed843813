//! Who holds which sandbox and which program.

use std::collections::HashMap;
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
    /// Somebody has set about to end it.
    ending: bool,
    execs: Vec<ExecId>,
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
        if let Some(home) = self.inner().sandboxes.get_mut(id) {
            home.ending = true;
        }
    }

    /// Whether somebody ends it, or has ended it.
    pub(crate) fn is_ending(&self, id: &SandboxId) -> bool {
        self.inner().sandboxes.get(id).is_none_or(|home| home.ending)
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
