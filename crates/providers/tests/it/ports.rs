//! Ports of sandboxes there, reached from here.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{
    AttachFrom, ByteStream, CreateOptions, Duplex, Exec, ExecRequest, ExecSignal, FileEvent, FileOp,
    FileReply, ForkOptions, Forked, ListFilter, OpContext, Provider, ProviderEvent, ProviderInfo, ReadRange,
    Result, Sandbox, SnapshotOptions, Usage, WatchOptions, conformance,
};
use sandstorm_types::{
    Capabilities, ErrorKind, ExecId, GuestPath, NetworkPolicy, SandboxId, SandboxSpec, SnapshotId,
    Transition, Unmet,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::world::{World, cx, sandbox};

#[tokio::test]
async fn bytes_go_both_ways() {
    let program = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let behind = program.local_addr().unwrap();
    let memory = Arc::new(MemoryProvider::default());
    let ports = WithPorts { inner: Arc::clone(&memory), behind };
    let world = World::over(memory, Arc::new(ports), World::settings()).await;
    let adapter = world.adapter().await;
    assert!(adapter.capabilities().connect);
    let id = sandbox(&adapter).await;
    let mut here = adapter.connect(&cx(), &id, behind.port()).await.unwrap();
    let (mut there, _) = program.accept().await.unwrap();
    here.write_all(b"\0ping\xff").await.unwrap();
    let mut said = [0; 6];
    there.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"\0ping\xff");
    let much: Vec<u8> = (0..3 << 20).map(|place: u32| place as u8).collect();
    let sending = async {
        there.write_all(&much).await.unwrap();
        drop(there);
    };
    let mut heard = Vec::new();
    let (_, read) = tokio::join!(sending, here.read_to_end(&mut heard));
    read.unwrap();
    assert!(heard == much, "{} bytes came", heard.len());
    let closed = adapter.connect(&cx(), &id, 9).await.unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::InvalidRequest, "{closed}");
    let unknown = adapter.connect(&cx(), &SandboxId::random(), 80).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    let report = conformance::run_cases(&adapter, "network").await;
    assert!(report.passed(), "{report}");
}

/// The provider in memory, with a program of the test behind one port of every sandbox.
#[derive(Debug)]
struct WithPorts {
    inner: Arc<MemoryProvider>,
    behind: SocketAddr,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Provider for WithPorts {
    fn info(&self) -> &ProviderInfo {
        self.inner.info()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { connect: true, ..self.inner.capabilities() }
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
        if port != self.behind.port() {
            return self.inner.connect(cx, id, port).await;
        }
        Ok(Duplex::new(TcpStream::connect(self.behind).await.unwrap()))
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
