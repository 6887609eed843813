//! A provider that may not be reached yet: a server must be able to start while one of its providers is down.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use sandstorm_provider::{
    AttachFrom, ByteStream, CreateOptions, Duplex, Error, Exec, ExecRequest, ExecSignal, FileEvent, FileOp,
    FileReply, ForkOptions, Forked, ListFilter, Metered, OpContext, Provider, ProviderEvent, ProviderInfo,
    ReadRange, Refusals, Result, Sandbox, Snapshot, SnapshotOptions, Tasks, Usage, WatchOptions,
    WriteOptions,
};
use sandstorm_types::{
    Capabilities, ErrorKind, ExecId, GuestPath, NetworkPolicy, Retry, SandboxId, SandboxSpec, SnapshotId,
    Transition, Unmet,
};
use tokio::sync::watch;

/// Reaches a provider, or says why it cannot.
pub type Connect = Box<dyn Fn() -> BoxFuture<'static, Result<Arc<dyn Provider>>> + Send + Sync>;

/// How long after a failure it is tried again, and how long at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A provider that is being reached in the background. Until it is, it can do nothing and says why.
#[derive(Clone)]
pub struct Late(Arc<Inner>);

struct Inner {
    info: ProviderInfo,
    there: OnceLock<Arc<dyn Provider>>,
    reached: watch::Sender<bool>,
    /// Why it was not reached the last time.
    trouble: Mutex<String>,
}

impl fmt::Debug for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Late").field("info", &self.0.info).finish_non_exhaustive()
    }
}

impl Late {
    /// Begins to reach it and goes on until it is there.
    pub fn reach(info: ProviderInfo, connect: Connect, tasks: &Tasks) -> Self {
        let trouble = Mutex::new("nobody has answered yet".to_owned());
        let inner = Inner { info, there: OnceLock::new(), reached: watch::Sender::new(false), trouble };
        let late = Self(Arc::new(inner));
        let reaching = late.clone();
        tasks.start("reach a provider", async move { reaching.keep_trying(connect).await });
        late
    }

    /// Waits until it is there, but not longer than `patience`.
    pub async fn wait(&self, patience: Duration) -> bool {
        tokio::time::timeout(patience, self.reached()).await.is_ok()
    }

    async fn keep_trying(&self, connect: Connect) {
        let mut pause = FIRST_PAUSE;
        loop {
            match connect().await {
                Ok(provider) => {
                    let _ = self.0.there.set(provider);
                    self.0.reached.send_replace(true);
                    tracing::info!(provider = self.0.info.name, "a provider is reached");
                    return;
                }
                Err(error) => {
                    tracing::warn!(provider = self.0.info.name, %error, "a provider is not reached");
                    *self.trouble() = error.to_string();
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn reached(&self) -> Arc<dyn Provider> {
        let mut reached = self.0.reached.subscribe();
        loop {
            if let Some(there) = self.0.there.get() {
                return Arc::clone(there);
            }
            if reached.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn trouble(&self) -> std::sync::MutexGuard<'_, String> {
        self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn there(&self) -> Result<&Arc<dyn Provider>> {
        self.0.there.get().ok_or_else(|| {
            Error::new(ErrorKind::Provider, "the provider is not reached yet")
                .with("reason", self.trouble())
                .with_retry(Retry::Elsewhere)
                .with_not_started()
                .with_provider(&self.0.info.name)
        })
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Provider for Late {
    fn info(&self) -> &ProviderInfo {
        &self.0.info
    }

    fn capabilities(&self) -> Capabilities {
        self.0.there.get().map(|there| there.capabilities()).unwrap_or_default()
    }

    fn admits(&self, spec: &SandboxSpec) -> Result<(), Vec<Unmet>> {
        match self.0.there.get() {
            Some(there) => there.admits(spec),
            None => {
                Err(vec![Unmet::new(Unmet::CONNECTION, "reached", "not reached yet", self.trouble().clone())])
            }
        }
    }

    async fn create(&self, cx: &OpContext, spec: &SandboxSpec, opts: CreateOptions) -> Result<Sandbox> {
        self.there()?.create(cx, spec, opts).await
    }

    async fn get(&self, cx: &OpContext, id: &SandboxId) -> Result<Sandbox> {
        self.there()?.get(cx, id).await
    }

    fn list(&self, cx: &OpContext, filter: ListFilter) -> BoxStream<'static, Result<Sandbox>> {
        match self.there() {
            Ok(there) => there.list(cx, filter),
            Err(error) => stream::once(async { Err(error) }).boxed(),
        }
    }

    fn events(&self) -> BoxStream<'static, ProviderEvent> {
        let late = self.clone();
        stream::once(async move { late.reached().await }).flat_map(|there| there.events()).boxed()
    }

    fn refusals(&self, id: &SandboxId) -> Option<Box<dyn Refusals>> {
        self.0.there.get().and_then(|there| there.refusals(id))
    }

    async fn exec(&self, cx: &OpContext, id: &SandboxId, req: ExecRequest) -> Result<Exec> {
        self.there()?.exec(cx, id, req).await
    }

    async fn attach(&self, cx: &OpContext, exec: &ExecId, from: AttachFrom) -> Result<Exec> {
        self.there()?.attach(cx, exec, from).await
    }

    async fn signal(&self, cx: &OpContext, exec: &ExecId, signal: ExecSignal) -> Result<()> {
        self.there()?.signal(cx, exec, signal).await
    }

    async fn read_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        range: ReadRange,
    ) -> Result<ByteStream> {
        self.there()?.read_file(cx, id, path, range).await
    }

    async fn write_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        opts: WriteOptions,
        body: ByteStream,
    ) -> Result<()> {
        self.there()?.write_file(cx, id, path, opts, body).await
    }

    async fn files(&self, cx: &OpContext, id: &SandboxId, op: FileOp) -> Result<FileReply> {
        self.there()?.files(cx, id, op).await
    }

    async fn watch(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        opts: WatchOptions,
    ) -> Result<BoxStream<'static, Result<FileEvent>>> {
        self.there()?.watch(cx, id, path, opts).await
    }

    async fn connect(&self, cx: &OpContext, id: &SandboxId, port: u16) -> Result<Duplex> {
        self.there()?.connect(cx, id, port).await
    }

    async fn usage(&self, cx: &OpContext, id: &SandboxId) -> Result<Usage> {
        self.there()?.usage(cx, id).await
    }

    async fn transition(&self, cx: &OpContext, id: &SandboxId, to: Transition) -> Result<Sandbox> {
        self.there()?.transition(cx, id, to).await
    }

    async fn set_network(&self, cx: &OpContext, id: &SandboxId, policy: NetworkPolicy) -> Result<()> {
        self.there()?.set_network(cx, id, policy).await
    }

    async fn snapshot(&self, cx: &OpContext, id: &SandboxId, opts: SnapshotOptions) -> Result<Snapshot> {
        self.there()?.snapshot(cx, id, opts).await
    }

    async fn delete_snapshot(&self, cx: &OpContext, id: &SnapshotId) -> Result<()> {
        self.there()?.delete_snapshot(cx, id).await
    }

    async fn fork(&self, cx: &OpContext, id: &SandboxId, opts: ForkOptions) -> Result<Forked> {
        self.there()?.fork(cx, id, opts).await
    }

    async fn destroy(&self, cx: &OpContext, id: &SandboxId) -> Result<()> {
        self.there()?.destroy(cx, id).await
    }

    async fn metered(&self, cx: &OpContext, id: &SandboxId) -> Result<Option<Vec<Metered>>> {
        self.there()?.metered(cx, id).await
    }

    async fn health(&self, cx: &OpContext) -> Result<()> {
        self.there()?.health(cx).await
    }
}
