//! The cluster as a provider.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use sandstorm_agent_client::files;
use sandstorm_provider::{
    AttachFrom, ByteStream, CreateOptions, Duplex, Error, Exec, ExecRequest, ExecSignal, FileEvent, FileOp,
    FileReply, ForkOptions, Forked, ListFilter, Metered, OpContext, Provider, ProviderEvent, ProviderInfo,
    ReadRange, Refusals, Result, Sandbox, Snapshot, SnapshotOptions, Usage, WatchOptions, WriteOptions,
};
use sandstorm_types::{
    Capabilities, ExecId, GuestPath, NetworkPolicy, SandboxId, SandboxSpec, SnapshotId, Transition, Unmet,
};

use crate::cluster::Cluster;
use crate::config::Config;
use crate::counters;
use crate::error::of;
use crate::view;

/// Sandboxes as pods of a Kubernetes cluster.
#[derive(Debug)]
pub struct KubernetesProvider(Arc<Cluster>);

impl KubernetesProvider {
    /// Connects: makes the network policies, finds the pods that are ours, and from then on follows what happens to them.
    pub async fn connect(config: Config) -> Result<Self> {
        let name = config.name.clone();
        let met = Cluster::meet(config).await;
        met.map(Self).map_err(|error| error.with_operation("connect").with_provider(&name))
    }

    /// Ends what goes on in the background and waits for it. Pods stay.
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

    async fn agent(&self, id: &SandboxId) -> Result<sandstorm_agent_client::AgentClient> {
        self.0.living(id).await?.agent(&self.0).await
    }
}

impl Drop for KubernetesProvider {
    fn drop(&mut self) {
        self.0.tasks.stopping().cancel();
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Provider for KubernetesProvider {
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
        let made = Box::pin(self.0.create(cx, spec, opts)).await;
        made.map_err(|error| error.with_operation("create").with_provider(&self.0.info.name))
    }

    async fn get(&self, cx: &OpContext, id: &SandboxId) -> Result<Sandbox> {
        self.run(cx, "get", async { self.0.look(id) }).await
    }

    /// Every pod that carries our mark, whoever of us made it: what nobody knows any more is found here.
    fn list(&self, cx: &OpContext, filter: ListFilter) -> BoxStream<'static, Result<Sandbox>> {
        let name = &self.0.info.name;
        if let Err(error) = cx.check("list") {
            return stream::iter([Err(error.with_operation("list").with_provider(name))]).boxed();
        }
        let all = self.0.seen.all();
        let sandboxes: Vec<_> = all
            .into_iter()
            .filter_map(|(id, pod)| view::sandbox(&self.0.config, id, &pod))
            .filter(|sandbox| sandbox.labels.contains(&filter.labels))
            .map(Ok)
            .collect();
        stream::iter(sandboxes).boxed()
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
        let work = async { Ok(self.0.places.exec(exec)?.listen(*exec, from)) };
        self.run(cx, "attach", work).await
    }

    async fn signal(&self, cx: &OpContext, exec: &ExecId, signal: ExecSignal) -> Result<()> {
        let work = async { self.0.places.exec(exec)?.signal(signal).await };
        self.run(cx, "signal", work).await
    }

    async fn read_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        range: ReadRange,
    ) -> Result<ByteStream> {
        let work = async { files::read(&self.agent(id).await?, cx.user(), path, range).await };
        self.run(cx, "read_file", work).await
    }

    async fn write_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        opts: WriteOptions,
        body: ByteStream,
    ) -> Result<()> {
        let work = async { files::write(&self.agent(id).await?, cx.user(), path, opts, body).await };
        self.run(cx, "write_file", work).await
    }

    async fn files(&self, cx: &OpContext, id: &SandboxId, op: FileOp) -> Result<FileReply> {
        let work = async { files::operate(&self.agent(id).await?, cx.user(), op).await };
        self.run(cx, "files", work).await
    }

    async fn watch(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        opts: WatchOptions,
    ) -> Result<BoxStream<'static, Result<FileEvent>>> {
        let work = async { files::watch(&self.agent(id).await?, cx.user(), path, opts).await };
        self.run(cx, "watch", work).await
    }

    async fn connect(&self, cx: &OpContext, id: &SandboxId, port: u16) -> Result<Duplex> {
        let work = async {
            let agent = self.agent(id).await?;
            sandstorm_agent_client::connect(&agent, port, &self.0.tasks).await
        };
        self.run(cx, "connect", work).await
    }

    async fn usage(&self, cx: &OpContext, id: &SandboxId) -> Result<Usage> {
        let work = async { Ok(counters::read(&self.agent(id).await?).await?.usage(&self.0.config)) };
        self.run(cx, "usage", work).await
    }

    async fn transition(&self, cx: &OpContext, _id: &SandboxId, _to: Transition) -> Result<Sandbox> {
        self.run(cx, "transition", async { Err(cannot("pause", "a pod cannot stand still")) }).await
    }

    async fn set_network(&self, cx: &OpContext, _id: &SandboxId, _policy: NetworkPolicy) -> Result<()> {
        let why = "connections that exist would go on";
        self.run(cx, "set_network", async { Err(cannot("network_change", why)) }).await
    }

    async fn snapshot(&self, cx: &OpContext, _id: &SandboxId, _opts: SnapshotOptions) -> Result<Snapshot> {
        let why = "a cluster keeps no state of a pod";
        self.run(cx, "snapshot", async { Err(cannot("snapshot_files", why)) }).await
    }

    async fn delete_snapshot(&self, cx: &OpContext, _id: &SnapshotId) -> Result<()> {
        let why = "a cluster keeps no sandboxes that are not pods";
        self.run(cx, "delete_snapshot", async { Err(cannot("snapshot_files", why)) }).await
    }

    async fn fork(&self, cx: &OpContext, _id: &SandboxId, _opts: ForkOptions) -> Result<Forked> {
        let why = "the memory of a pod cannot be copied";
        self.run(cx, "fork", async { Err(cannot("live_fork", why)) }).await
    }

    async fn destroy(&self, cx: &OpContext, id: &SandboxId) -> Result<()> {
        self.run(cx, "destroy", Box::pin(self.0.destroy(id))).await
    }

    /// A cluster keeps no account of pods that are gone.
    async fn metered(&self, _cx: &OpContext, _id: &SandboxId) -> Result<Option<Vec<Metered>>> {
        Ok(None)
    }

    /// Whether the cluster answers, and lets us see our pods: all of them.
    async fn health(&self, cx: &OpContext) -> Result<()> {
        let one = kube::api::ListParams::default().limit(1);
        self.run(cx, "health", async {
            self.0.pods.list(&one).await.map_err(of)?;
            self.0.seen.check()
        })
        .await
    }
}

fn cannot(feature: &str, why: &str) -> Error {
    Error::unmet(vec![Unmet::new(feature, "yes", "no", why)])
}
