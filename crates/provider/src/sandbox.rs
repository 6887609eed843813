//! Sandboxes as a provider sees them, and the options of operations on them.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use sandstorm_types::{
    Attempt, ByteSize, Denied, ExecId, Isolation, Labels, Limits, Routing, SandboxId, SandboxSpec,
    SnapshotId, State, Template, Unmet, Usd, Walls,
};

use crate::ProviderInfo;

/// A sandbox as observed. The backend's own state: what callers are shown is put together above.
#[derive(Debug, Clone, PartialEq)]
pub struct Sandbox {
    pub id: SandboxId,
    pub state: State,
    pub template: Template,
    pub limits: Limits,
    pub labels: Labels,
    pub isolation: Isolation,
    /// Measured walls, where the provider can measure.
    pub walls: Option<Walls>,
    pub created_at: SystemTime,
    /// When its lifetime ends, where the provider keeps it.
    pub expires_at: Option<SystemTime>,
    pub region: Option<String>,
    /// How it came to be where it is, where somebody chose.
    pub placement: Option<Placement>,
}

impl Sandbox {
    /// The walls as measured, or what the provider says of them where nobody measured: its boundary, and that this is all.
    pub fn stated_walls(&self) -> Walls {
        if let Some(walls) = &self.walls {
            return walls.clone();
        }
        let mut walls = Walls { tier: self.isolation, ..Walls::default() };
        let place = self.placement.as_ref().map_or("this provider", |placement| &placement.info.name);
        walls.miss(
            "walls",
            format!("{place} says what its boundary is, and nobody measured the walls"),
            None,
        );
        walls
    }
}

/// Where a sandbox was made, and what was tried before.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    pub info: ProviderInfo,
    /// Why there.
    pub reason: String,
    /// Every place that was tried, in order, the last one being where it is.
    pub attempts: Vec<Attempt>,
    /// Whether it has none of this machine's trees: programs go there by language and code, not by paths of ours.
    pub elsewhere: bool,
    /// What it will probably cost by the catalogue, lost attempts counted in.
    pub cost: Usd,
}

/// Options of a creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateOptions {
    /// The id to give, chosen by the caller so that what a cancelled creation left can be destroyed.
    pub id: SandboxId,
    /// Whether a prepared sandbox may serve; otherwise it is made from nothing.
    pub pooled: bool,
    /// Trees of this machine to mount read-only: toolchains and layers that the platform chose. Never taken from a
    /// request; a provider elsewhere has none to mount.
    pub mounts: Vec<HostMount>,
    /// Whether it serves one run and is gone after it: nothing of it has to survive this process.
    pub ephemeral: bool,
    /// What its first program will need, where that is known: a prepared sandbox may have it running already. Only a
    /// hint: another program may come, and is served as well.
    pub expects: Option<Expected>,
    /// Where it should go, for whoever chooses.
    pub routing: Option<Box<Routing>>,
    /// The same sandbox for a place without this machine's trees: what it gets by `mounts` here, it requires there.
    pub elsewhere: Option<Box<SandboxSpec>>,
    /// Who has the snapshot that it starts from, for whoever chooses: nobody else can make it.
    pub snapshot_at: Option<String>,
    /// Why no place with this machine's trees will do, for whoever chooses: what it is for is missing on this machine.
    pub not_here: Option<String>,
}

impl CreateOptions {
    /// Why they cannot be had where none of this machine's trees are.
    pub fn unmet_elsewhere(&self) -> Option<Unmet> {
        let why = "trees of this machine cannot be shown on another one";
        let mounts = self.mounts.len();
        (mounts > 0).then(|| Unmet::new("mounts", mounts.to_string(), "none", why))
    }
}

/// An interpreter that the first program of a sandbox will need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// As it stands in the program's argument vector.
    pub interpreter: PathBuf,
    /// Modules that the program seems to import, by their top-level names. It may import others.
    pub modules: Vec<String>,
}

/// A tree of this machine, shown read-only inside a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostMount {
    pub source: PathBuf,
    pub target: PathBuf,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self {
            id: SandboxId::random(),
            pooled: true,
            mounts: Vec::new(),
            ephemeral: false,
            expects: None,
            routing: None,
            elsewhere: None,
            snapshot_at: None,
            not_here: None,
        }
    }
}

/// Which sandboxes to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListFilter {
    /// Only those that have all of these.
    pub labels: Labels,
}

/// What happened to a sandbox without being asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProviderEvent {
    /// It ended; nobody destroyed it.
    Ended { sandbox: SandboxId, reason: String },
    /// It wanted to reach what its policy does not allow. Told at a bounded rate: a flood is told in part.
    Denied { sandbox: SandboxId, destination: String, reason: String },
    /// This listener missed events: what it has to know, it has to ask for anew.
    Lagged,
}

/// What a network refuses, collected from some moment on; a list of bounded length.
pub trait Refusals: std::fmt::Debug + Send + Sync {
    fn seen(&self) -> Vec<Denied>;
}

/// Options of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotOptions {
    /// The id to give, chosen by the caller so that what is left of a failed one can be removed.
    pub id: SnapshotId,
    pub kind: SnapshotKind,
    /// A larger one is refused, by whoever can tell its size; `None`: only the provider's own bounds hold.
    pub most: Option<ByteSize>,
}

impl SnapshotOptions {
    /// Files alone, under an id of its own.
    pub fn files() -> Self {
        Self { id: SnapshotId::random(), kind: SnapshotKind::Files, most: None }
    }
}

/// What a snapshot saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SnapshotKind {
    Files,
    Memory,
}

/// A saved sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// What it takes to keep it, where the provider can tell.
    pub size: Option<ByteSize>,
    /// What of the sandbox could not be saved.
    pub left_out: Vec<NotCarried>,
}

/// Options of a live fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkOptions {
    /// The new sandbox as `create` would make it. Limits and trees that differ from the source's are the caller's risk.
    pub spec: SandboxSpec,
    pub create: CreateOptions,
    /// Interpreters to carry: the exec in the source, and the id that it gets in the fork.
    pub execs: Vec<(ExecId, ExecId)>,
    /// Whether what cannot be carried is left out and named, instead of refusing the fork.
    pub partial: bool,
}

/// What came of a live fork.
#[derive(Debug, Clone, PartialEq)]
pub struct Forked {
    pub sandbox: Sandbox,
    /// Interpreters of the fork by their new ids, to be attached to.
    pub carried: Vec<ExecId>,
    pub not_carried: Vec<NotCarried>,
}

/// Something of the source that its fork does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotCarried {
    /// Such as `exec exe_…` or `processes`.
    pub what: String,
    pub why: String,
}

/// What a provider counted for one sandbox that has ended, which is what it asks money for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Metered {
    /// From its creation to its end, without the time that it was paused.
    pub wall: Duration,
    pub cpu: Duration,
    pub peak_memory: ByteSize,
}

/// What a sandbox or program uses. Zero where the provider cannot tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Processor time so far.
    pub cpu: Duration,
    pub memory: ByteSize,
    pub peak_memory: ByteSize,
    pub processes: u32,
    /// Bytes and entries in writable file systems.
    pub disk: ByteSize,
    pub inodes: u64,
}
