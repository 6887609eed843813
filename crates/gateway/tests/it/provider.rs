//! The provider in memory, with a server of the test behind every port.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{
    AttachFrom, ByteStream, CreateOptions, Duplex, Error, Exec, ExecRequest, ExecSignal, FileEvent, FileOp,
    FileReply, ForkOptions, Forked, ListFilter, OpContext, Provider, ProviderEvent, ProviderInfo, ReadRange,
    Result, Sandbox, SnapshotOptions, Usage, WatchOptions,
};
use sandstorm_types::{
    Capabilities, ErrorKind, ExecId, GuestPath, NetworkPolicy, SandboxId, SandboxSpec, SnapshotId,
    Transition, Unmet,
};
use tokio::net::TcpStream;

/// Connections into sandboxes go to `behind`, when there is something.
#[derive(Debug, Default)]
pub(crate) struct WithPorts {
    inner: MemoryProvider,
    behind: Mutex<Option<SocketAddr>>,
    cannot_fork: AtomicBool,
}

impl WithPorts {
    pub(crate) fn forget_how_to_fork(&self) {
        self.cannot_fork.store(true, Ordering::SeqCst);
    }

    pub(crate) fn listen(&self, address: SocketAddr) {
        *self.behind.lock().unwrap() = Some(address);
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Provider for WithPorts {
    fn info(&self) -> &ProviderInfo {
        self.inner.info()
    }

    fn capabilities(&self) -> Capabilities {
        let live_fork = !self.cannot_fork.load(Ordering::SeqCst);
        Capabilities { connect: true, live_fork, ..self.inner.capabilities() }
    }

    fn admits(&self, spec: &SandboxSpec) -> Result<(), Vec<Unmet>> {
        self.inner.admits(spec)
    }

    async fn create(&self, cx: &OpContext, spec: &SandboxSpec, opts: CreateOptions) -> Result<Sandbox> {
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
        options: WatchOptions,
    ) -> Result<BoxStream<'static, Result<FileEvent>>> {
        self.inner.watch(cx, id, path, options).await
    }

    async fn connect(&self, cx: &OpContext, id: &SandboxId, port: u16) -> Result<Duplex> {
        self.inner.get(cx, id).await?;
        let behind = *self.behind.lock().unwrap();
        let Some(address) = behind else { return self.inner.connect(cx, id, port).await };
        let refused =
            |error| Error::new(ErrorKind::InvalidRequest, "nothing listens there").with_source(error);
        Ok(Duplex::new(TcpStream::connect(address).await.map_err(refused)?))
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
