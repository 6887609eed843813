//! The sandboxes, programs and snapshots that exist, behind one lock that is never held across a wait.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use sandstorm_types::{
    ByteSize, EnvMap, ExecId, Isolation, SandboxId, SandboxSpec, SnapshotId, State, Step, Transition,
};
use tokio::sync::{broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::error::MemoryError;
use super::tree::Tree;
use crate::{
    ChannelInput, ExecInput, ExecLog, FileEvent, ListFilter, Sandbox, Snapshot, SnapshotOptions, TtySize,
    Usage,
};

/// Changes of files that a slow watcher may fall behind.
const CHANGES_KEPT: usize = 1024;

#[derive(Debug, Clone, Default)]
pub(super) struct World(Arc<Mutex<Content>>);

#[derive(Debug, Default)]
struct Content {
    places: BTreeMap<SandboxId, Held>,
    execs: BTreeMap<ExecId, (SandboxId, Running)>,
    snapshots: BTreeMap<SnapshotId, Tree>,
}

#[derive(Debug)]
struct Held {
    place: Place,
    tree: Tree,
    changes: broadcast::Sender<FileEvent>,
    paused: watch::Sender<bool>,
}

/// What a program has to know of its sandbox.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) sandbox: Sandbox,
    pub(super) env: EnvMap,
    pub(super) ended: CancellationToken,
    pub(super) paused: watch::Receiver<bool>,
}

/// The ways to a program.
#[derive(Debug, Clone)]
pub(super) struct Running {
    pub(super) log: ExecLog,
    pub(super) input: ExecInput,
    pub(super) channel: Option<ChannelInput>,
    signals: mpsc::Sender<i32>,
    tty: watch::Sender<Option<TtySize>>,
}

impl Running {
    pub(super) fn new(
        log: ExecLog,
        signals: mpsc::Sender<i32>,
        input: ExecInput,
        channel: Option<ChannelInput>,
        tty: Option<TtySize>,
    ) -> Self {
        Self { log, input, channel, signals, tty: watch::Sender::new(tty) }
    }

    /// Sends a signal. None of the programs handles one, so the first ends it and more may be lost.
    pub(super) fn kill(&self, signal: i32) -> Result<(), MemoryError> {
        let _ = self.signals.try_send(signal);
        Ok(())
    }

    pub(super) fn resize(&self, size: TtySize) -> Result<(), MemoryError> {
        if self.tty.borrow().is_none() {
            return Err(MemoryError::NoTerminal);
        }
        self.tty.send_replace(Some(size));
        Ok(())
    }

    pub(super) fn forget(&self, before: u64) {
        // In memory this cannot fail.
        let _ = self.log.forget(before);
    }

    pub(super) fn terminal(&self) -> watch::Receiver<Option<TtySize>> {
        self.tty.subscribe()
    }

    pub(super) fn kill_on_drop(&self) -> KillOnDrop {
        KillOnDrop(self.signals.clone())
    }
}

/// Ends a program when nobody listens to it any more.
#[derive(Debug)]
pub(super) struct KillOnDrop(mpsc::Sender<i32>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.try_send(9);
    }
}

impl World {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(
        &self,
        id: SandboxId,
        spec: &SandboxSpec,
        tree: Tree,
        now: SystemTime,
    ) -> Result<Sandbox, MemoryError> {
        let sandbox = Sandbox {
            id,
            state: State::Creating.after(Step::Created)?,
            template: spec.template.clone(),
            limits: spec.limits,
            labels: spec.labels.clone(),
            isolation: Isolation::Process,
            walls: None,
            created_at: now,
            expires_at: None,
            region: None,
            placement: None,
        };
        let paused = watch::Sender::new(false);
        let place = Place {
            sandbox: sandbox.clone(),
            env: spec.env.clone(),
            ended: CancellationToken::new(),
            paused: paused.subscribe(),
        };
        let mut content = self.content();
        if content.places.contains_key(&id) {
            return Err(MemoryError::Exists(id));
        }
        content
            .places
            .insert(id, Held { place, tree, changes: broadcast::Sender::new(CHANGES_KEPT), paused });
        Ok(sandbox)
    }

    pub(super) fn get(&self, id: &SandboxId) -> Result<Sandbox, MemoryError> {
        self.content().held(id).map(|held| held.place.sandbox.clone())
    }

    pub(super) fn list(&self, filter: &ListFilter) -> Vec<Sandbox> {
        let content = self.content();
        let all = content.places.values().map(|held| held.place.sandbox.clone());
        all.filter(|sandbox| sandbox.labels.contains(&filter.labels)).collect()
    }

    /// The sandbox's facts, if it can be worked with.
    pub(super) fn ready(&self, id: &SandboxId) -> Result<Place, MemoryError> {
        self.content().ready(id).map(|held| held.place.clone())
    }

    pub(super) fn read_tree<T>(
        &self,
        id: &SandboxId,
        look: impl FnOnce(&Tree) -> T,
    ) -> Result<T, MemoryError> {
        self.content().ready(id).map(|held| look(&held.tree))
    }

    /// Changes the tree and tells the watchers.
    pub(super) fn change_tree(
        &self,
        id: &SandboxId,
        change: impl FnOnce(&mut Tree) -> Result<Vec<FileEvent>, MemoryError>,
    ) -> Result<(), MemoryError> {
        let mut content = self.content();
        let held = content.ready(id)?;
        for event in change(&mut held.tree)? {
            // No watcher is no failure.
            let _ = held.changes.send(event);
        }
        Ok(())
    }

    pub(super) fn changes(&self, id: &SandboxId) -> Result<broadcast::Receiver<FileEvent>, MemoryError> {
        self.content().ready(id).map(|held| held.changes.subscribe())
    }

    pub(super) fn start(
        &self,
        sandbox: &SandboxId,
        exec: ExecId,
        running: Running,
    ) -> Result<(), MemoryError> {
        let mut content = self.content();
        content.ready(sandbox)?;
        if content.execs.contains_key(&exec) {
            return Err(MemoryError::ExecExists(exec));
        }
        content.execs.insert(exec, (*sandbox, running));
        Ok(())
    }

    pub(super) fn running(&self, exec: &ExecId) -> Result<Running, MemoryError> {
        let content = self.content();
        content.execs.get(exec).map(|(_, running)| running.clone()).ok_or(MemoryError::NoExec(*exec))
    }

    pub(super) fn usage(&self, id: &SandboxId) -> Result<Usage, MemoryError> {
        let mut content = self.content();
        let alive = content
            .execs
            .values()
            .filter(|(sandbox, running)| sandbox == id && !running.log.has_ended())
            .count();
        let (bytes, inodes) = content.held(id)?.tree.used();
        let processes = u32::try_from(alive).unwrap_or(u32::MAX);
        Ok(Usage { disk: ByteSize::bytes(bytes), inodes, processes, ..Usage::default() })
    }

    pub(super) fn transition(&self, id: &SandboxId, to: Transition) -> Result<Sandbox, MemoryError> {
        let mut content = self.content();
        let held = content.held(id)?;
        let state = held.place.sandbox.state.after(to.first_step())?.after(to.last_step())?;
        held.paused.send_replace(state == State::Paused);
        held.place.sandbox.state = state;
        let sandbox = held.place.sandbox.clone();
        if to == Transition::PauseFiles {
            for (_, running) in content.execs.values().filter(|(holder, _)| holder == id) {
                running.kill(9)?;
            }
        }
        Ok(sandbox)
    }

    pub(super) fn save(&self, id: &SandboxId, opts: SnapshotOptions) -> Result<Snapshot, MemoryError> {
        let mut content = self.content();
        let tree = content.ready(id)?.tree.clone();
        let size = ByteSize::bytes(tree.used().0);
        if opts.most.is_some_and(|most| size > most) {
            return Err(MemoryError::SnapshotTooLarge(size));
        }
        match content.snapshots.entry(opts.id) {
            Entry::Occupied(_) => Err(MemoryError::SnapshotExists(opts.id)),
            Entry::Vacant(place) => {
                place.insert(tree);
                Ok(Snapshot { size: Some(size), left_out: Vec::new() })
            }
        }
    }

    pub(super) fn forget_snapshot(&self, id: &SnapshotId) {
        self.content().snapshots.remove(id);
    }

    pub(super) fn snapshot(&self, id: &SnapshotId) -> Result<Tree, MemoryError> {
        self.content().snapshots.get(id).cloned().ok_or(MemoryError::NoSnapshot(*id))
    }

    /// Ends a sandbox as a crash would: it stays to be seen as failed.
    pub(super) fn lose(&self, id: &SandboxId, reason: &str) -> Result<(), MemoryError> {
        let mut content = self.content();
        let held = content.held(id)?;
        held.place.sandbox.state =
            held.place.sandbox.state.after(Step::Fail { reason: reason.to_owned() })?;
        held.place.ended.cancel();
        Ok(())
    }

    /// Forgets a sandbox, ends its programs and gives their logs to wait for.
    pub(super) fn remove(&self, id: &SandboxId) -> Vec<ExecLog> {
        let mut content = self.content();
        if let Some(held) = content.places.remove(id) {
            held.place.ended.cancel();
        }
        let gone = content.execs.extract_if(.., |_, (sandbox, _)| sandbox == id);
        gone.map(|(_, (_, running))| running.log).collect()
    }
}

impl Content {
    fn held(&mut self, id: &SandboxId) -> Result<&mut Held, MemoryError> {
        self.places.get_mut(id).ok_or(MemoryError::NoSandbox(*id))
    }

    fn ready(&mut self, id: &SandboxId) -> Result<&mut Held, MemoryError> {
        let held = self.held(id)?;
        match &held.place.sandbox.state {
            state if state.is_ready() => Ok(held),
            state => Err(MemoryError::NotReady { id: *id, state: state.clone() }),
        }
    }
}
