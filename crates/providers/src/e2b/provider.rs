//! E2B as a provider.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use reqwest::Method;
use sandstorm_provider::{
    AttachFrom, ByteStream, CreateOptions, Duplex, Error, Exec, ExecRequest, ExecSignal, FileEvent, FileOp,
    FileReply, ForkOptions, Forked, ListFilter, Metered, OpContext, Provider, ProviderEvent, ProviderInfo,
    ReadRange, Refusals, Result, Sandbox, Snapshot, SnapshotKind, SnapshotOptions, Usage, WatchOptions,
    WriteOptions,
};
use sandstorm_types::{
    ByteSize, Capabilities, ExecId, GuestPath, NetworkPolicy, SandboxId, SandboxSpec, SnapshotId, Transition,
    Unmet,
};
use serde::Deserialize;

use super::cloud::Cloud;
use super::config::Config;
use super::error::of;

/// Sandboxes of an account at E2B.
#[derive(Debug)]
pub struct E2bProvider(Arc<Cloud>);

/// What a sandbox uses, as its agent reads it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metrics {
    mem_used: u64,
    disk_used: u64,
}

impl E2bProvider {
    /// Connects: sees whether the key is good, and from then on looks after our sandboxes.
    pub async fn connect(config: Config) -> Result<Self> {
        let name = config.name.clone();
        let meeting = async {
            let cloud = Arc::new(Cloud::new(config)?);
            cloud.client.page(&cloud.all(), None).await.map_err(of)?;
            Ok(cloud)
        };
        let met: Result<_> = meeting.await;
        let cloud = met.map_err(|error| error.with_operation("connect").with_provider(&name))?;
        cloud.tasks.start("look after sandboxes", Arc::clone(&cloud).keep());
        Ok(Self(cloud))
    }

    /// Ends what goes on in the background and waits for it. Sandboxes stay, until their lease is over.
    pub async fn close(&self) {
        self.0.tasks.stop().await;
    }

    /// Does `work` within its context, and names the operation and the provider in an error.
    async fn run<T>(
        &self,
        cx: &OpContext,
        operation: &'static str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let name = &self.0.info.name;
        cx.run(operation, work).await.map_err(|error| error.with_operation(operation).with_provider(name))
    }
}

impl Drop for E2bProvider {
    fn drop(&mut self) {
        self.0.tasks.stopping().cancel();
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Provider for E2bProvider {
    fn info(&self) -> &ProviderInfo {
        &self.0.info
    }

    fn capabilities(&self) -> Capabilities {
        self.0.can
    }

    fn admits(&self, spec: &SandboxSpec) -> Result<(), Vec<Unmet>> {
        let unmet = self.0.unmet(spec);
        if unmet.is_empty() { Ok(()) } else { Err(unmet) }
    }

    async fn create(&self, cx: &OpContext, spec: &SandboxSpec, opts: CreateOptions) -> Result<Sandbox> {
        let made = self.0.create(cx, spec, opts).await;
        made.map_err(|error| error.with_operation("create").with_provider(&self.0.info.name))
    }

    async fn get(&self, cx: &OpContext, id: &SandboxId) -> Result<Sandbox> {
        let work = async {
            let place = self.0.place(id).await?;
            self.0.seen(*id, &self.0.shown_at(&place).await?)
        };
        self.run(cx, "get", work).await
    }

    fn list(&self, cx: &OpContext, filter: ListFilter) -> BoxStream<'static, Result<Sandbox>> {
        self.0.list(cx, filter)
    }

    fn events(&self) -> BoxStream<'static, ProviderEvent> {
        self.0.events.listen()
    }

    fn refusals(&self, _id: &SandboxId) -> Option<Box<dyn Refusals>> {
        None
    }

    async fn exec(&self, cx: &OpContext, id: &SandboxId, req: ExecRequest) -> Result<Exec> {
        self.run(cx, "exec", self.0.exec(id, req)).await
    }

    async fn attach(&self, cx: &OpContext, exec: &ExecId, from: AttachFrom) -> Result<Exec> {
        self.run(cx, "attach", self.0.attach(exec, from)).await
    }

    async fn signal(&self, cx: &OpContext, exec: &ExecId, signal: ExecSignal) -> Result<()> {
        self.run(cx, "signal", self.0.signal(exec, signal)).await
    }

    async fn read_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        range: ReadRange,
    ) -> Result<ByteStream> {
        let work = async { self.0.read_file(cx, &self.0.place(id).await?, path, range).await };
        self.run(cx, "read_file", work).await
    }

    async fn write_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        _opts: WriteOptions,
        body: ByteStream,
    ) -> Result<()> {
        let work = async { self.0.write_file(&self.0.place(id).await?, path, body).await };
        self.run(cx, "write_file", work).await
    }

    async fn files(&self, cx: &OpContext, id: &SandboxId, op: FileOp) -> Result<FileReply> {
        let work = async { self.0.file_op(&self.0.place(id).await?, op).await };
        self.run(cx, "files", work).await
    }

    async fn watch(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        opts: WatchOptions,
    ) -> Result<BoxStream<'static, Result<FileEvent>>> {
        let work = async { self.0.watch(cx, &self.0.place(id).await?, path, opts).await };
        self.run(cx, "watch", work).await
    }

    async fn connect(&self, cx: &OpContext, _id: &SandboxId, _port: u16) -> Result<Duplex> {
        let why = "ports there are reached over HTTP only, at addresses of their own";
        self.run(cx, "connect", async { Err(not_offered("connect", why)) }).await
    }

    async fn usage(&self, cx: &OpContext, id: &SandboxId) -> Result<Usage> {
        let work = async {
            let place = self.0.place(id).await?;
            let request = self.0.client.inside(&place, Method::GET, &["metrics"], &[]);
            match self.0.client.ask::<Metrics>(request).await {
                Ok(Metrics { mem_used, disk_used }) => Ok(Usage {
                    memory: ByteSize::bytes(mem_used),
                    disk: ByteSize::bytes(disk_used),
                    ..Usage::default()
                }),
                Err(failure) => Err(self.0.of_agent(&place, failure, of).await),
            }
        };
        self.run(cx, "usage", work).await
    }

    async fn transition(&self, cx: &OpContext, id: &SandboxId, to: Transition) -> Result<Sandbox> {
        self.run(cx, "transition", self.0.transition(id, to)).await
    }

    async fn set_network(&self, cx: &OpContext, id: &SandboxId, policy: NetworkPolicy) -> Result<()> {
        self.run(cx, "set_network", self.0.set_network(id, &policy)).await
    }

    async fn snapshot(&self, cx: &OpContext, id: &SandboxId, opts: SnapshotOptions) -> Result<Snapshot> {
        let work = async {
            if opts.kind == SnapshotKind::Memory {
                let why = "what runs there would go on under no name of ours";
                return Err(not_offered("snapshot_memory", why));
            }
            self.0.snapshot(cx, id, opts.id).await
        };
        self.run(cx, "snapshot", work).await
    }

    async fn delete_snapshot(&self, cx: &OpContext, id: &SnapshotId) -> Result<()> {
        self.run(cx, "delete_snapshot", self.0.forget(id)).await
    }

    async fn fork(&self, cx: &OpContext, _id: &SandboxId, _opts: ForkOptions) -> Result<Forked> {
        let why = "a fork there carries everything that runs, under no name of ours";
        self.run(cx, "fork", async { Err(not_offered("live_fork", why)) }).await
    }

    async fn destroy(&self, cx: &OpContext, id: &SandboxId) -> Result<()> {
        self.run(cx, "destroy", self.0.destroy(id)).await
    }

    /// Its API tells of no sandbox what it cost.
    async fn metered(&self, _cx: &OpContext, _id: &SandboxId) -> Result<Option<Vec<Metered>>> {
        Ok(None)
    }

    /// Whether the service answers, and takes our key.
    async fn health(&self, cx: &OpContext) -> Result<()> {
        let work = async { self.0.client.page(&self.0.all(), None).await.map(drop).map_err(of) };
        self.run(cx, "health", work).await
    }
}

fn not_offered(feature: &'static str, why: &'static str) -> Error {
    Error::unmet(vec![Unmet::new(feature, "yes", "no", why)])
}
