//! Refuses what a provider does not offer, so that no backend has to guess and none emulates in silence.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use sandstorm_types::{
    Capabilities, ExecId, GuestPath, NetworkPolicy, SandboxId, SandboxSpec, SnapshotId, Transition, Unmet,
    User,
};

use crate::{
    AttachFrom, ByteStream, CreateOptions, Duplex, Error, Exec, ExecRequest, ExecSignal, FileEvent, FileOp,
    FileReply, ForkOptions, Forked, ListFilter, Metered, OpContext, Provider, ProviderEvent, ProviderInfo,
    ReadRange, Refusals, Result, Sandbox, Snapshot, SnapshotKind, SnapshotOptions, Stdin, Usage,
    WatchOptions, WriteOptions,
};

/// Asks the provider only for what its capabilities name.
#[derive(Debug, Clone)]
pub struct CapabilityCheck {
    inner: Arc<dyn Provider>,
}

impl CapabilityCheck {
    pub fn new(inner: Arc<dyn Provider>) -> Self {
        Self { inner }
    }

    /// Asked each time: a provider that is reached late has more than before.
    fn can(&self) -> Capabilities {
        self.inner.capabilities()
    }

    /// Refuses the operation with every need that is not met.
    fn require(&self, operation: &'static str, needs: &[Need]) -> Result<()> {
        let lacking = |need: &&Need| need.asked && !need.offered;
        let unmet: Vec<_> = needs.iter().filter(lacking).map(Need::unmet).collect();
        if unmet.is_empty() { Ok(()) } else { Err(self.refuse(operation, unmet)) }
    }

    /// What files of root need.
    fn as_root(&self, cx: &OpContext) -> Need {
        Need::when(cx.user() == User::Root, "files_root", self.can().files_root)
    }

    fn refuse(&self, operation: &'static str, unmet: Vec<Unmet>) -> Error {
        Error::unmet(unmet).with_operation(operation).with_provider(&self.inner.info().name)
    }
}

/// A field of the capabilities, whether it is asked for and whether it is there.
struct Need {
    feature: &'static str,
    asked: bool,
    offered: bool,
}

impl Need {
    fn always(feature: &'static str, offered: bool) -> Self {
        Self { feature, asked: true, offered }
    }

    fn when(asked: bool, feature: &'static str, offered: bool) -> Self {
        Self { feature, asked, offered }
    }

    fn unmet(&self) -> Unmet {
        Unmet::new(self.feature, "yes", "no", "this provider does not have it")
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Provider for CapabilityCheck {
    fn info(&self) -> &ProviderInfo {
        self.inner.info()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn admits(&self, spec: &SandboxSpec) -> Result<(), Vec<Unmet>> {
        let mut unmet = self.inner.capabilities().unmet(spec);
        if let Err(more) = self.inner.admits(spec) {
            let known: Vec<_> = unmet.iter().map(|unmet| unmet.feature.clone()).collect();
            unmet.extend(more.into_iter().filter(|unmet| !known.contains(&unmet.feature)));
        }
        if unmet.is_empty() { Ok(()) } else { Err(unmet) }
    }

    async fn create(&self, cx: &OpContext, spec: &SandboxSpec, opts: CreateOptions) -> Result<Sandbox> {
        self.admits(spec).map_err(|unmet| self.refuse("create", unmet))?;
        self.inner.create(cx, spec, opts).await
    }

    async fn get(&self, cx: &OpContext, id: &SandboxId) -> Result<Sandbox> {
        self.inner.get(cx, id).await
    }

    fn list(&self, cx: &OpContext, filter: ListFilter) -> BoxStream<'static, Result<Sandbox>> {
        self.inner.list(cx, filter)
    }

    fn events(&self) -> BoxStream<'static, ProviderEvent> {
        self.inner.events()
    }

    fn refusals(&self, id: &SandboxId) -> Option<Box<dyn Refusals>> {
        self.inner.refusals(id)
    }

    async fn exec(&self, cx: &OpContext, id: &SandboxId, req: ExecRequest) -> Result<Exec> {
        let can = self.can();
        self.require(
            "exec",
            &[
                Need::always("exec", can.exec),
                Need::when(req.stdin == Stdin::Stream, "exec_stdin", can.exec_stdin),
                Need::when(req.tty.is_some(), "exec_tty", can.exec_tty),
                Need::when(req.background, "exec_background", can.exec_background),
                Need::when(req.channel, "exec_channel", can.exec_channel),
                Need::when(req.user == Some(User::Root), "exec_root", can.exec_root),
            ],
        )?;
        self.inner.exec(cx, id, req).await
    }

    async fn attach(&self, cx: &OpContext, exec: &ExecId, from: AttachFrom) -> Result<Exec> {
        self.require("attach", &[Need::always("exec_attach", self.can().exec_attach)])?;
        self.inner.attach(cx, exec, from).await
    }

    async fn signal(&self, cx: &OpContext, exec: &ExecId, signal: ExecSignal) -> Result<()> {
        let need = match signal {
            ExecSignal::Kill => Need::always("exec", self.can().exec),
            ExecSignal::Interrupt | ExecSignal::Terminate | ExecSignal::Number(_) => {
                Need::always("exec_signals", self.can().exec_signals)
            }
            ExecSignal::Resize(_) => Need::always("exec_tty", self.can().exec_tty),
            ExecSignal::CloseStdin => Need::always("exec_stdin", self.can().exec_stdin),
            ExecSignal::Forget { .. } => Need::always("exec_attach", self.can().exec_attach),
        };
        self.require("signal", &[need])?;
        self.inner.signal(cx, exec, signal).await
    }

    async fn read_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        range: ReadRange,
    ) -> Result<ByteStream> {
        self.require("read_file", &[Need::always("files", self.can().files), self.as_root(cx)])?;
        self.inner.read_file(cx, id, path, range).await
    }

    async fn write_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        opts: WriteOptions,
        body: ByteStream,
    ) -> Result<()> {
        let can = self.can();
        self.require(
            "write_file",
            &[
                Need::always("files", can.files),
                Need::when(!opts.metadata.is_empty(), "files_metadata", can.files_metadata),
                self.as_root(cx),
            ],
        )?;
        self.inner.write_file(cx, id, path, opts, body).await
    }

    async fn files(&self, cx: &OpContext, id: &SandboxId, op: FileOp) -> Result<FileReply> {
        let archive = matches!(op, FileOp::Pack { .. } | FileOp::Unpack { .. });
        let search = matches!(op, FileOp::Search { .. });
        self.require(
            "files",
            &[
                Need::always("files", self.can().files),
                Need::when(archive, "files_archive", self.can().files_archive),
                Need::when(search, "files_search", self.can().files_search),
                self.as_root(cx),
            ],
        )?;
        self.inner.files(cx, id, op).await
    }

    async fn watch(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        opts: WatchOptions,
    ) -> Result<BoxStream<'static, Result<FileEvent>>> {
        self.require("watch", &[Need::always("files_watch", self.can().files_watch), self.as_root(cx)])?;
        self.inner.watch(cx, id, path, opts).await
    }

    async fn connect(&self, cx: &OpContext, id: &SandboxId, port: u16) -> Result<Duplex> {
        self.require("connect", &[Need::always("connect", self.can().connect)])?;
        self.inner.connect(cx, id, port).await
    }

    async fn usage(&self, cx: &OpContext, id: &SandboxId) -> Result<Usage> {
        self.require("usage", &[Need::always("usage", self.can().usage)])?;
        self.inner.usage(cx, id).await
    }

    async fn transition(&self, cx: &OpContext, id: &SandboxId, to: Transition) -> Result<Sandbox> {
        let files_only = to == Transition::PauseFiles;
        self.require(
            "transition",
            &[
                Need::always("pause", self.can().pause),
                Need::when(files_only, "pause_files", self.can().pause_files),
            ],
        )?;
        self.inner.transition(cx, id, to).await
    }

    async fn set_network(&self, cx: &OpContext, id: &SandboxId, policy: NetworkPolicy) -> Result<()> {
        let can = self.can();
        self.require(
            "set_network",
            &[
                Need::always("network_change", can.network_change),
                Need::when(policy == NetworkPolicy::None, "network_none", can.network_none),
                Need::when(
                    matches!(policy, NetworkPolicy::Allow(_) | NetworkPolicy::Filter(_)),
                    "network_allow",
                    can.network_allow,
                ),
                Need::when(
                    matches!(policy, NetworkPolicy::Open | NetworkPolicy::Filter(_)),
                    "network_open",
                    can.network_open,
                ),
            ],
        )?;
        self.inner.set_network(cx, id, policy).await
    }

    async fn snapshot(&self, cx: &OpContext, id: &SandboxId, opts: SnapshotOptions) -> Result<Snapshot> {
        let need = match opts.kind {
            SnapshotKind::Files => Need::always("snapshot_files", self.can().snapshot_files),
            SnapshotKind::Memory => Need::always("snapshot_memory", self.can().snapshot_memory),
        };
        self.require("snapshot", &[need])?;
        self.inner.snapshot(cx, id, opts).await
    }

    async fn delete_snapshot(&self, cx: &OpContext, id: &SnapshotId) -> Result<()> {
        let can = self.can();
        self.require(
            "delete_snapshot",
            &[Need::always("snapshot_files", can.snapshot_files || can.snapshot_memory)],
        )?;
        self.inner.delete_snapshot(cx, id).await
    }

    async fn fork(&self, cx: &OpContext, id: &SandboxId, opts: ForkOptions) -> Result<Forked> {
        self.require("fork", &[Need::always("live_fork", self.can().live_fork)])?;
        self.admits(&opts.spec).map_err(|unmet| self.refuse("fork", unmet))?;
        self.inner.fork(cx, id, opts).await
    }

    async fn destroy(&self, cx: &OpContext, id: &SandboxId) -> Result<()> {
        self.inner.destroy(cx, id).await
    }

    async fn metered(&self, cx: &OpContext, id: &SandboxId) -> Result<Option<Vec<Metered>>> {
        self.inner.metered(cx, id).await
    }

    async fn health(&self, cx: &OpContext) -> Result<()> {
        self.inner.health(cx).await
    }
}
