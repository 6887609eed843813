//! Watchers that are asked for what they saw, instead of telling it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use sandstorm_provider::Tasks;
use sandstorm_types::{ExecId, SandboxId};
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::rpc::{Code, RpcError, RpcResult};

/// Most watchers of one sandbox, and most events that one keeps: of more the oldest are lost.
const MOST: usize = 64;
const KEPT: usize = 10_000;

type All = HashMap<(SandboxId, String), Watcher>;

#[derive(Debug)]
struct Watcher {
    seen: VecDeque<Value>,
    /// How many there were, with those that were taken or lost.
    count: u64,
    /// Ends who listens when the watcher is removed.
    _stop: DropGuard,
}

/// Watchers of all sandboxes. They live in this server only, as E2B's live in their sandbox's agent only.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watchers(Arc<Mutex<All>>);

impl Watchers {
    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what happens from now on, until the sandbox or the watcher ends.
    pub(crate) fn add(
        &self,
        sandbox: SandboxId,
        mut changes: BoxStream<'static, RpcResult<Value>>,
        tasks: &Tasks,
    ) -> RpcResult<String> {
        // Any random word does.
        let id = ExecId::random().bare();
        let stop = CancellationToken::new();
        let mut all = self.all();
        if all.keys().filter(|(of, _)| *of == sandbox).count() >= MOST {
            let message = format!("a sandbox has at most {MOST} watchers: remove some");
            return Err(RpcError::new(Code::ResourceExhausted, message));
        }
        let watcher = Watcher { seen: VecDeque::new(), count: 0, _stop: stop.clone().drop_guard() };
        all.insert((sandbox, id.clone()), watcher);
        drop(all);
        let (watchers, key) = (self.clone(), (sandbox, id.clone()));
        tasks.start("file watcher", async move {
            loop {
                let change = tokio::select! {
                    change = changes.next() => change,
                    () = stop.cancelled() => return,
                };
                let Some(Ok(change)) = change else { break };
                watchers.saw(&key, change);
            }
            watchers.all().remove(&key);
        });
        Ok(id)
    }

    fn saw(&self, key: &(SandboxId, String), change: Value) {
        if let Some(watcher) = self.all().get_mut(key) {
            if watcher.seen.len() >= KEPT {
                watcher.seen.pop_front();
            }
            watcher.seen.push_back(change);
            watcher.count += 1;
        }
    }

    /// How much it saw since it was made.
    pub(crate) fn count(&self, sandbox: SandboxId, id: &str) -> Option<u64> {
        self.all().get(&(sandbox, id.to_owned())).map(|watcher| watcher.count)
    }

    /// What it saw since the last time; `None` when the sandbox has no such watcher.
    pub(crate) fn take(&self, sandbox: SandboxId, id: &str) -> Option<Vec<Value>> {
        let mut all = self.all();
        let watcher = all.get_mut(&(sandbox, id.to_owned()))?;
        Some(std::mem::take(&mut watcher.seen).into())
    }

    pub(crate) fn remove(&self, sandbox: SandboxId, id: &str) -> bool {
        self.all().remove(&(sandbox, id.to_owned())).is_some()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::sync::mpsc;
    use tokio_stream::wrappers::ReceiverStream;

    use super::*;

    #[tokio::test]
    async fn a_watcher_belongs_to_its_sandbox_and_ends_with_its_stream() {
        let (watchers, tasks) = (Watchers::default(), Tasks::default());
        let (here, there) = (SandboxId::from_bits(1), SandboxId::from_bits(2));
        let (sender, changes) = mpsc::channel(4);
        let id = watchers.add(here, ReceiverStream::new(changes).boxed(), &tasks).unwrap();
        sender.send(Ok(json!(1))).await.unwrap();
        while watchers.take(here, &id).is_some_and(|seen| seen.is_empty()) {
            tokio::task::yield_now().await;
        }
        assert_eq!(watchers.take(there, &id), None);
        assert!(!watchers.remove(there, &id));
        drop(sender);
        tasks.finished().await;
        assert_eq!(watchers.take(here, &id), None);
    }

    #[tokio::test]
    async fn watchers_are_counted() {
        let (watchers, tasks) = (Watchers::default(), Tasks::default());
        let sandbox = SandboxId::from_bits(1);
        let endless = || futures_util::stream::pending().boxed();
        for _ in 0..MOST {
            watchers.add(sandbox, endless(), &tasks).unwrap();
        }
        assert!(watchers.add(sandbox, endless(), &tasks).is_err());
        assert!(watchers.add(SandboxId::from_bits(2), endless(), &tasks).is_ok());
        tasks.stop().await;
    }
}
