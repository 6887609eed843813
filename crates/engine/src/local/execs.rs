//! The programs that can be listened to, and how long those that ended can.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, ExecId, SandboxId};

use crate::exec::Followed;

/// How long what a program wrote is kept after its end, and how often that is looked at.
const KEPT_FOR: Duration = Duration::from_secs(3600);
const LOOK: Duration = Duration::from_secs(60);

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
            let old = |exec: &Followed| exec.ended_for().is_some_and(|span| span > KEPT_FOR);
            let gone: Vec<_> = self.all().extract_if(|_, exec| exec.as_ref().is_some_and(old)).collect();
            for journal in gone.into_iter().filter_map(|(_, exec)| exec?.journal) {
                journal.remove();
            }
        }
    }
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
