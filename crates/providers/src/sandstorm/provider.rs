//! The other server as a provider.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use sandstorm_client::Sample;
use sandstorm_provider::{
    AttachFrom, ByteStream, CreateOptions, Duplex, Error, Exec, ExecRequest, ExecSignal, FileEvent, FileOp,
    FileReply, ForkOptions, Forked, ListFilter, Metered, OpContext, Provider, ProviderEvent, ProviderInfo,
    ReadRange, Refusals, Result, Sandbox, Snapshot, SnapshotKind, SnapshotOptions, Usage, WatchOptions, WriteOptions,
};
use sandstorm_types::{
    ByteSize, Capabilities, ErrorKind, ExecId, GuestPath, NetworkPolicy, SandboxId, SandboxSpec, SnapshotId,
    State, Transition, Unmet,
};

use super::client::Far;
use super::config::Config;
use super::error::{no_sandbox, of, senseless};
use super::view;

/// Sandboxes on another Sandstorm server.
#[derive(Debug)]
pub struct SandstormProvider(Arc<Far>);

impl SandstormProvider {
    /// Connects: reads what the server can do, and from then on follows what happens there.
    pub async fn connect(config: Config) -> Result<Self> {
        let name = config.name.clone();
        let meeting = async {
            let far = Far::meet(config).await?;
            let news = far.news(None).await?;
            Ok((Arc::new(far), news))
        };
        let met: Result<_> = meeting.await;
        let (far, news) = met.map_err(|error| error.with_operation("connect").with_provider(&name))?;
        far.tasks.start("follow news", Arc::clone(&far).follow_news(news));
        far.tasks.start("keep leases", Arc::clone(&far).keep_leases());
        Ok(Self(far))
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

impl Drop for SandstormProvider {
    fn drop(&mut self) {
        self.0.tasks.stopping().cancel();
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Provider for SandstormProvider {
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
            let theirs = self.0.client.sandbox(place.theirs()).await.map_err(of)?;
            if theirs.id != place.theirs() || view::our_id(&self.0.owner, &theirs) != Some(*id) {
                return Err(senseless("it shows another sandbox"));
            }
            if view::is_gone(theirs.state) {
                return Err(no_sandbox(id));
            }
            self.0.seen(*id, &theirs)
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
        let work = async { self.0.file_op(cx, &self.0.place(id).await?, op).await };
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

    async fn connect(&self, cx: &OpContext, id: &SandboxId, port: u16) -> Result<Duplex> {
        let work = async {
            let place = self.0.place(id).await?;
            self.0.client.tunnel(place.theirs(), port).await.map(Duplex::new).map_err(of)
        };
        self.run(cx, "connect", work).await
    }

    async fn usage(&self, cx: &OpContext, id: &SandboxId) -> Result<Usage> {
        let work = async {
            let place = self.0.place(id).await?;
            self.0.client.sandbox_usage(place.theirs()).await.map(|sample| used(&sample)).map_err(of)
        };
        self.run(cx, "usage", work).await
    }

    async fn transition(&self, cx: &OpContext, id: &SandboxId, to: Transition) -> Result<Sandbox> {
        let work = async {
            let (client, place) = (&self.0.client, self.0.place(id).await?);
            let before = self.0.seen(*id, &client.sandbox(place.theirs()).await.map_err(of)?)?;
            // To them what is so already is success; here it is a conflict.
            before.state.after(to.first_step()).map_err(|conflict| {
                Error::new(ErrorKind::Conflict, conflict.to_string()).with("sandbox", id)
            })?;
            let (changed, wanted) = match to {
                Transition::PauseFiles => {
                    let why = "a server is asked to pause with memory only";
                    return Err(Error::unmet(vec![Unmet::new("pause_files", "yes", "no", why)]));
                }
                Transition::Pause => (client.pause_sandbox(place.theirs()).await, State::Paused),
                Transition::Resume => (client.resume_sandbox(place.theirs()).await, State::Ready),
            };
            let seen = self.0.seen(*id, &changed.map_err(of)?)?;
            if seen.state == wanted { Ok(seen) } else { Err(senseless("the sandbox is in another state")) }
        };
        self.run(cx, "transition", work).await
    }

    async fn set_network(&self, cx: &OpContext, id: &SandboxId, policy: NetworkPolicy) -> Result<()> {
        let work = async {
            let place = self.0.place(id).await?;
            let theirs = self.0.client.set_network(place.theirs(), &policy).await.map_err(of)?;
            let now = view::part::<NetworkPolicy>(&theirs, "network", "the network policy cannot be read")?;
            if now == policy { Ok(()) } else { Err(senseless("the sandbox has another network policy")) }
        };
        self.run(cx, "set_network", work).await
    }

    async fn snapshot(&self, cx: &OpContext, id: &SandboxId, opts: SnapshotOptions) -> Result<Snapshot> {
        let name = &self.0.info.name;
        let saved = match opts.kind {
            SnapshotKind::Files => self.0.snapshot(cx, id, opts.id, opts.most).await,
            SnapshotKind::Memory => Err(no_memory()),
        };
        saved.map_err(|error| error.with_operation("snapshot").with_provider(name))
    }

    async fn delete_snapshot(&self, cx: &OpContext, id: &SnapshotId) -> Result<()> {
        self.run(cx, "delete_snapshot", self.0.forget_snapshot(id)).await
    }

    async fn fork(&self, cx: &OpContext, id: &SandboxId, opts: ForkOptions) -> Result<Forked> {
        let forked = self.0.fork(cx, id, opts).await;
        forked.map_err(|error| error.with_operation("fork").with_provider(&self.0.info.name))
    }

    async fn destroy(&self, cx: &OpContext, id: &SandboxId) -> Result<()> {
        self.run(cx, "destroy", self.0.destroy(id)).await
    }

    async fn metered(&self, cx: &OpContext, id: &SandboxId) -> Result<Option<Vec<Metered>>> {
        self.run(cx, "metered", self.0.metered(id)).await
    }

    /// Whether the server takes work, and ours.
    async fn health(&self, cx: &OpContext) -> Result<()> {
        let work = async {
            self.0.client.ready().await.map_err(of)?;
            self.0.client.version().await.map(drop).map_err(of)
        };
        self.run(cx, "health", work).await
    }
}

fn no_memory() -> Error {
    let why = "the API of the server does not carry it";
    Error::unmet(vec![Unmet::new("snapshot_memory", "yes", "no", why)])
}

fn used(sample: &Sample) -> Usage {
    Usage {
        cpu: Duration::from_millis(sample.cpu_ms),
        memory: ByteSize::bytes(sample.memory_bytes),
        peak_memory: ByteSize::bytes(sample.peak_memory_bytes),
        processes: sample.processes,
        disk: ByteSize::bytes(sample.disk_bytes),
        inodes: sample.inodes,
    }
}
