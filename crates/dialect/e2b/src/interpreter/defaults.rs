//! Contexts that are used where a request names none, and whose turn it is in each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandstorm_types::{ContextId, SandboxId};
use tokio::sync::OwnedMutexGuard;

/// Most contexts that are remembered. Forgotten ones are found again, and count their executions from one.
const MOST: usize = 10_000;

/// Executions of a context so far. Who holds it has the turn.
pub(crate) type Turn = OwnedMutexGuard<u64>;

#[derive(Debug, Default)]
struct Known {
    defaults: HashMap<(SandboxId, String), ContextId>,
    turns: HashMap<ContextId, Arc<tokio::sync::Mutex<u64>>>,
    /// Held while a sandbox's default context is looked for or made.
    making: HashMap<SandboxId, Arc<tokio::sync::Mutex<()>>>,
}

#[derive(Debug, Default)]
pub(crate) struct Defaults(Mutex<Known>);

impl Defaults {
    fn known(&self) -> MutexGuard<'_, Known> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.turns.len() > MOST || known.defaults.len() > MOST || known.making.len() > MOST {
            *known = Known::default();
        }
        known
    }

    pub(crate) fn get(&self, sandbox: SandboxId, language: &str) -> Option<ContextId> {
        self.known().defaults.get(&(sandbox, language.to_owned())).copied()
    }

    pub(crate) fn set(&self, sandbox: SandboxId, language: &str, context: ContextId) {
        self.known().defaults.insert((sandbox, language.to_owned()), context);
    }

    pub(crate) fn forget(&self, context: ContextId) {
        let mut known = self.known();
        known.defaults.retain(|_, id| *id != context);
        known.turns.remove(&context);
    }

    /// Waits until nobody else makes a context in the sandbox.
    pub(crate) async fn alone(&self, sandbox: SandboxId) -> OwnedMutexGuard<()> {
        let lock = Arc::clone(self.known().making.entry(sandbox).or_default());
        lock.lock_owned().await
    }

    /// Waits for the turn in a context: executions come one after the other.
    pub(crate) async fn turn(&self, context: ContextId) -> Turn {
        let lock = Arc::clone(self.known().turns.entry(context).or_default());
        lock.lock_owned().await
    }
}
