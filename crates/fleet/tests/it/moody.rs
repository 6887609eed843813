//! A provider in memory that has bad days.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use sandstorm_catalog::Catalog;
use sandstorm_fleet::{Fleet, FleetSettings, Member};
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{
    AttachFrom, ByteStream, CreateOptions, Duplex, Error, Exec, ExecRequest, ExecSignal, FileEvent, FileOp,
    FileReply, ForkOptions, Forked, ListFilter, OpContext, Provider, ProviderEvent, ProviderInfo, ReadRange,
    Result, Sandbox, SnapshotOptions, Tasks, Usage, WatchOptions,
};
use sandstorm_types::{
    Capabilities, ErrorKind, ExecId, GuestPath, NetworkPolicy, SandboxId, SandboxSpec, SnapshotId,
    Transition, Unmet,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Fine,
    /// Every creation fails so, and nothing was made.
    Fails(ErrorKind),
    /// Makes the sandbox and then says that it failed.
    Lies,
    /// Makes the sandbox and never says so.
    Hangs,
    /// Every so many-th creation fails.
    FailsEvery(usize),
}

#[derive(Debug)]
pub(crate) struct Moody {
    pub(crate) inner: MemoryProvider,
    mood: Mood,
    asked: AtomicUsize,
}

impl Moody {
    /// Creations that it was asked for.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// A fleet of these, and they themselves.
pub(crate) fn fleet(moods: &[(&str, Mood)]) -> (Arc<Fleet>, Vec<Arc<Moody>>) {
    let settings = FleetSettings { patience: Duration::from_millis(300), ..FleetSettings::default() };
    let catalogue = Catalog::embedded();
    let entry = Arc::new(catalogue.get("local").expect("this machine has a page").clone());
    let make = |(name, mood): &(&str, Mood)| {
        let inner = MemoryProvider::named(name);
        Arc::new(Moody { inner, mood: *mood, asked: AtomicUsize::new(0) })
    };
    let all: Vec<Arc<Moody>> = moods.iter().map(make).collect();
    let members = all.iter().map(|one| Member::new(Arc::clone(one) as Arc<dyn Provider>, Arc::clone(&entry)));
    (Fleet::new(members.collect(), settings, 7, Tasks::default()), all)
}

#[async_trait]
impl Provider for Moody {
    async fn create(&self, cx: &OpContext, spec: &SandboxSpec, opts: CreateOptions) -> Result<Sandbox> {
        let turn = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let bad = |kind| Error::new(kind, "a bad day").with_not_started();
        match self.mood {
            Mood::Fine => self.inner.create(cx, spec, opts).await,
            Mood::Fails(kind) => Err(bad(kind)),
            Mood::FailsEvery(n) if turn.is_multiple_of(n) => Err(bad(ErrorKind::Provider)),
            Mood::FailsEvery(_) => self.inner.create(cx, spec, opts).await,
            Mood::Lies => {
                self.inner.create(cx, spec, opts).await?;
                Err(Error::new(ErrorKind::Provider, "the answer was lost"))
            }
            Mood::Hangs => {
                self.inner.create(cx, spec, opts).await?;
                cx.run("create", std::future::pending()).await
            }
        }
    }

    fn info(&self) -> &ProviderInfo {
        self.inner.info()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn admits(&self, spec: &SandboxSpec) -> Result<(), Vec<Unmet>> {
        self.inner.admits(spec)
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

    async fn exec(&self, cx: &OpContext, id: &SandboxId, req: ExecRequest) -> Result<Exec> {
        self.inner.exec(cx, id, req).await
    }

    async fn attach(&self, cx: &OpContext, exec: &ExecId, from: AttachFrom) -> Result<Exec> {
        self.inner.attach(cx, exec, from).await
    }

    async fn signal(&self, cx: &OpContext, exec: &ExecId, signal: ExecSignal) -> Result<()> {
        self.inner.signal(cx, exec, signal).await
    }

    async fn read_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        range: ReadRange,
    ) -> Result<ByteStream> {
        self.inner.read_file(cx, id, path, range).await
    }

    async fn write_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        body: ByteStream,
    ) -> Result<()> {
        self.inner.write_file(cx, id, path, body).await
    }

    async fn files(&self, cx: &OpContext, id: &SandboxId, op: FileOp) -> Result<FileReply> {
        self.inner.files(cx, id, op).await
    }

    async fn watch(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        opts: WatchOptions,
    ) -> Result<BoxStream<'static, Result<FileEvent>>> {
        self.inner.watch(cx, id, path, opts).await
    }

    async fn connect(&self, cx: &OpContext, id: &SandboxId, port: u16) -> Result<Duplex> {
        self.inner.connect(cx, id, port).await
    }

    async fn usage(&self, cx: &OpContext, id: &SandboxId) -> Result<Usage> {
        self.inner.usage(cx, id).await
    }

    async fn transition(&self, cx: &OpContext, id: &SandboxId, to: Transition) -> Result<Sandbox> {
        self.inner.transition(cx, id, to).await
    }

    async fn set_network(&self, cx: &OpContext, id: &SandboxId, policy: NetworkPolicy) -> Result<()> {
        self.inner.set_network(cx, id, policy).await
    }

    async fn snapshot(&self, cx: &OpContext, id: &SandboxId, opts: SnapshotOptions) -> Result<SnapshotId> {
        self.inner.snapshot(cx, id, opts).await
    }

    async fn fork(&self, cx: &OpContext, id: &SandboxId, opts: ForkOptions) -> Result<Forked> {
        self.inner.fork(cx, id, opts).await
    }

    async fn destroy(&self, cx: &OpContext, id: &SandboxId) -> Result<()> {
        self.inner.destroy(cx, id).await
    }

    async fn health(&self, cx: &OpContext) -> Result<()> {
        self.inner.health(cx).await
    }
}
