//! A provider that differs from another in a few answers, for tests: bad days, ports, interpreters.
//!
//! A layer that serves users states every method itself; what a test does not care for is here once.

use std::fmt;
use std::ops::Deref;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use sandstorm_types::{
    Capabilities, ExecId, GuestPath, NetworkPolicy, SandboxId, SandboxSpec, SnapshotId, Transition, Unmet,
};

use crate::{
    AttachFrom, ByteStream, CreateOptions, Duplex, Exec, ExecRequest, ExecSignal, FileEvent, FileOp,
    FileReply, ForkOptions, Forked, ListFilter, Metered, OpContext, Provider, ProviderEvent, ProviderInfo,
    ReadRange, Refusals, Result, Sandbox, Snapshot, SnapshotOptions, Usage, WatchOptions, WriteOptions,
};

/// What is different. Whatever is not overridden is the other provider's.
#[async_trait]
pub trait Alteration: fmt::Debug + Send + Sync + 'static {
    fn original(&self) -> &dyn Provider;

    fn capabilities(&self) -> Capabilities {
        self.original().capabilities()
    }

    fn admits(&self, spec: &SandboxSpec) -> Result<(), Vec<Unmet>> {
        self.original().admits(spec)
    }

    fn events(&self) -> BoxStream<'static, ProviderEvent> {
        self.original().events()
    }

    async fn create(&self, cx: &OpContext, spec: &SandboxSpec, opts: CreateOptions) -> Result<Sandbox> {
        self.original().create(cx, spec, opts).await
    }

    async fn exec(&self, cx: &OpContext, id: &SandboxId, req: ExecRequest) -> Result<Exec> {
        self.original().exec(cx, id, req).await
    }

    async fn attach(&self, cx: &OpContext, exec: &ExecId, from: AttachFrom) -> Result<Exec> {
        self.original().attach(cx, exec, from).await
    }

    async fn signal(&self, cx: &OpContext, exec: &ExecId, signal: ExecSignal) -> Result<()> {
        self.original().signal(cx, exec, signal).await
    }

    async fn connect(&self, cx: &OpContext, id: &SandboxId, port: u16) -> Result<Duplex> {
        self.original().connect(cx, id, port).await
    }

    async fn transition(&self, cx: &OpContext, id: &SandboxId, to: Transition) -> Result<Sandbox> {
        self.original().transition(cx, id, to).await
    }

    async fn fork(&self, cx: &OpContext, id: &SandboxId, opts: ForkOptions) -> Result<Forked> {
        self.original().fork(cx, id, opts).await
    }

    async fn usage(&self, cx: &OpContext, id: &SandboxId) -> Result<Usage> {
        self.original().usage(cx, id).await
    }

    async fn destroy(&self, cx: &OpContext, id: &SandboxId) -> Result<()> {
        self.original().destroy(cx, id).await
    }
}

/// The provider that an alteration makes.
#[derive(Debug, Default)]
pub struct Altered<A>(pub A);

impl<A> Deref for Altered<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.0
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<A: Alteration> Provider for Altered<A> {
    fn info(&self) -> &ProviderInfo {
        self.0.original().info()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn admits(&self, spec: &SandboxSpec) -> Result<(), Vec<Unmet>> {
        self.0.admits(spec)
    }

    async fn create(&self, cx: &OpContext, spec: &SandboxSpec, opts: CreateOptions) -> Result<Sandbox> {
        self.0.create(cx, spec, opts).await
    }

    async fn get(&self, cx: &OpContext, id: &SandboxId) -> Result<Sandbox> {
        self.0.original().get(cx, id).await
    }

    fn list(&self, cx: &OpContext, filter: ListFilter) -> BoxStream<'static, Result<Sandbox>> {
        self.0.original().list(cx, filter)
    }

    fn events(&self) -> BoxStream<'static, ProviderEvent> {
        self.0.events()
    }

    fn refusals(&self, id: &SandboxId) -> Option<Box<dyn Refusals>> {
        self.0.original().refusals(id)
    }

    async fn exec(&self, cx: &OpContext, id: &SandboxId, req: ExecRequest) -> Result<Exec> {
        self.0.exec(cx, id, req).await
    }

    async fn attach(&self, cx: &OpContext, exec: &ExecId, from: AttachFrom) -> Result<Exec> {
        self.0.attach(cx, exec, from).await
    }

    async fn signal(&self, cx: &OpContext, exec: &ExecId, signal: ExecSignal) -> Result<()> {
        self.0.signal(cx, exec, signal).await
    }

    async fn read_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        range: ReadRange,
    ) -> Result<ByteStream> {
        self.0.original().read_file(cx, id, path, range).await
    }

    async fn write_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        opts: WriteOptions,
        body: ByteStream,
    ) -> Result<()> {
        self.0.original().write_file(cx, id, path, opts, body).await
    }

    async fn files(&self, cx: &OpContext, id: &SandboxId, op: FileOp) -> Result<FileReply> {
        self.0.original().files(cx, id, op).await
    }

    async fn watch(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        opts: WatchOptions,
    ) -> Result<BoxStream<'static, Result<FileEvent>>> {
        self.0.original().watch(cx, id, path, opts).await
    }

    async fn connect(&self, cx: &OpContext, id: &SandboxId, port: u16) -> Result<Duplex> {
        self.0.connect(cx, id, port).await
    }

    async fn usage(&self, cx: &OpContext, id: &SandboxId) -> Result<Usage> {
        self.0.usage(cx, id).await
    }

    async fn transition(&self, cx: &OpContext, id: &SandboxId, to: Transition) -> Result<Sandbox> {
        self.0.transition(cx, id, to).await
    }

    async fn set_network(&self, cx: &OpContext, id: &SandboxId, policy: NetworkPolicy) -> Result<()> {
        self.0.original().set_network(cx, id, policy).await
    }

    async fn snapshot(&self, cx: &OpContext, id: &SandboxId, opts: SnapshotOptions) -> Result<Snapshot> {
        self.0.original().snapshot(cx, id, opts).await
    }

    async fn delete_snapshot(&self, cx: &OpContext, id: &SnapshotId) -> Result<()> {
        self.0.original().delete_snapshot(cx, id).await
    }

    async fn fork(&self, cx: &OpContext, id: &SandboxId, opts: ForkOptions) -> Result<Forked> {
        self.0.fork(cx, id, opts).await
    }

    async fn destroy(&self, cx: &OpContext, id: &SandboxId) -> Result<()> {
        self.0.destroy(cx, id).await
    }

    async fn metered(&self, cx: &OpContext, id: &SandboxId) -> Result<Option<Vec<Metered>>> {
        self.0.original().metered(cx, id).await
    }

    async fn health(&self, cx: &OpContext) -> Result<()> {
        self.0.original().health(cx).await
    }
}
