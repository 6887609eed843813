//! The trait that everything which holds sandboxes implements.

use std::fmt;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use sandstorm_types::{
    Capabilities, ExecId, GuestPath, NetworkPolicy, SandboxId, SandboxSpec, SnapshotId, Transition, Unmet,
};

use crate::{
    AttachFrom, ByteStream, CreateOptions, Duplex, Exec, ExecRequest, ExecSignal, FileEvent, FileOp,
    FileReply, ForkOptions, Forked, ListFilter, Metered, OpContext, ProviderEvent, ReadRange, Refusals,
    Result, Sandbox, Snapshot, SnapshotOptions, Usage, WatchOptions, WriteOptions,
};

/// Who a provider is. Never holds secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderInfo {
    /// Unique among registered providers: `local`, `e2b`, `cluster-eu`.
    pub name: String,
    /// What it is: `jail`, `docker`, `e2b`, `memory`.
    pub kind: String,
    pub region: Option<String>,
}

/// Anything that can hold sandboxes.
///
/// State lives behind `&self` and ids, so that a restart loses nothing and callers do not queue. No method
/// has a default body: every backend states what it does. Methods name the field of [`Capabilities`] that they
/// need; [`crate::layers::CapabilityCheck`] refuses calls without it, so that backends need not.
///
/// Every method ends early, with `Cancelled` or `Timeout`, when its context says so. An id that is not known
/// is `NotFound`; a sandbox in the wrong state is `Conflict`. Who owns a sandbox is the caller's matter.
#[async_trait]
pub trait Provider: fmt::Debug + Send + Sync + 'static {
    fn info(&self) -> &ProviderInfo;

    /// What it can do. Constant from when it is reached: callers may keep it then.
    fn capabilities(&self) -> Capabilities;

    /// Whether it could hold such a sandbox; otherwise every reason why not. Pure.
    fn admits(&self, spec: &SandboxSpec) -> Result<(), Vec<Unmet>>;

    /// Makes a sandbox that is ready when this returns. Creating twice with one id is a conflict.
    ///
    /// Dropping or cancelling it leaves either nothing or what `destroy` of `opts.id` removes.
    async fn create(&self, cx: &OpContext, spec: &SandboxSpec, opts: CreateOptions) -> Result<Sandbox>;

    async fn get(&self, cx: &OpContext, id: &SandboxId) -> Result<Sandbox>;

    /// Every sandbox that it holds and the filter lets through, whoever made it.
    fn list(&self, cx: &OpContext, filter: ListFilter) -> BoxStream<'static, Result<Sandbox>>;

    /// What happens without being asked for, from now on. Any number of listeners; each hears everything, or
    /// [`ProviderEvent::Lagged`] where it was too slow.
    fn events(&self) -> BoxStream<'static, ProviderEvent>;

    /// Collects what the network of a sandbox refuses from now on. `None`: this provider cannot tell, or has no such
    /// sandbox.
    fn refusals(&self, id: &SandboxId) -> Option<Box<dyn Refusals>>;

    /// Starts a program; needs `exec`, and `exec_stdin`, `exec_tty`, `exec_background`, `exec_channel`,
    /// `exec_root` as the request says. A program that cannot be started is an error or exits with 126 or 127.
    ///
    /// The context covers the start only. Dropping the events ends a foreground program.
    async fn exec(&self, cx: &OpContext, id: &SandboxId, req: ExecRequest) -> Result<Exec>;

    /// Listens to a program from a place on, also after its end while its output is kept; needs
    /// `exec_attach`. Dropping the events ends nothing.
    async fn attach(&self, cx: &OpContext, exec: &ExecId, from: AttachFrom) -> Result<Exec>;

    /// Sends a message to a program; one that has ended takes it in silence. A signal goes to the program and
    /// those that it started in its process group. Other signals than `Kill` need
    /// `exec_signals`, `Resize` needs `exec_tty`, `CloseStdin` needs `exec_stdin`.
    /// `Forget` goes to the program's log and needs `exec_attach`.
    async fn signal(&self, cx: &OpContext, exec: &ExecId, signal: ExecSignal) -> Result<()>;

    /// Reads a file or a part of it; needs `files`. This and all that follows on files is done as the user of the context:
    /// as root it needs `files_root`, too. The content is that of the moment of opening.
    async fn read_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        range: ReadRange,
    ) -> Result<ByteStream>;

    /// Writes a file whole, making folders above it; needs `files`. Readers see the old content or the new,
    /// and a body that fails midway changes nothing. Metadata needs `files_metadata`; without any, what was kept with an
    /// earlier file there is gone.
    async fn write_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        opts: WriteOptions,
        body: ByteStream,
    ) -> Result<()>;

    /// Other file operations; needs `files`, and `files_search` or `files_archive` for those.
    async fn files(&self, cx: &OpContext, id: &SandboxId, op: FileOp) -> Result<FileReply>;

    /// Changes below a path from now on; needs `files_watch`. The stream ends with the sandbox.
    async fn watch(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        opts: WatchOptions,
    ) -> Result<BoxStream<'static, Result<FileEvent>>>;

    /// Connects to a TCP port inside; needs `connect`.
    async fn connect(&self, cx: &OpContext, id: &SandboxId, port: u16) -> Result<Duplex>;

    /// What the sandbox uses; needs `usage`.
    async fn usage(&self, cx: &OpContext, id: &SandboxId) -> Result<Usage>;

    /// Pauses or resumes; needs `pause`. A paused sandbox keeps its programs but they do not run.
    async fn transition(&self, cx: &OpContext, id: &SandboxId, to: Transition) -> Result<Sandbox>;

    /// Changes what a sandbox may reach; needs `network_change`. It holds when this returns: connections that the new
    /// policy does not allow are over.
    async fn set_network(&self, cx: &OpContext, id: &SandboxId, policy: NetworkPolicy) -> Result<()>;

    /// Saves a ready sandbox, which goes on as if nothing had happened; needs `snapshot_files` or `snapshot_memory` as
    /// `opts.kind` says. Starting from it is `create`. It stays when the sandbox ends. Two of one id are a conflict.
    ///
    /// A failure, dropping or cancelling leaves nothing, or what `delete_snapshot` of `opts.id` removes.
    async fn snapshot(&self, cx: &OpContext, id: &SandboxId, opts: SnapshotOptions) -> Result<Snapshot>;

    /// Removes a saved sandbox; needs `snapshot_files` or `snapshot_memory`. Idempotent: absent is success. Sandboxes that
    /// started from it live on.
    async fn delete_snapshot(&self, cx: &OpContext, id: &SnapshotId) -> Result<()>;

    /// Makes a sandbox that goes on from where another one is, ready when this returns; needs `live_fork`. It has the
    /// files of the other's writable places as they are now, and those of its interpreters that `opts.execs` names, with
    /// their memory, under new ids: their logs begin anew. The other one goes on as if nothing had happened.
    ///
    /// The interpreters have to be idle: whoever asks sees to it that nobody speaks to them meanwhile. One that cannot be
    /// carried is a `Conflict` which says why, unless `opts.partial`. Whatever else runs there is not carried, and not
    /// named: its owner knows of it. A failure leaves nothing, dropping or cancelling what `destroy` of the new id removes.
    async fn fork(&self, cx: &OpContext, id: &SandboxId, opts: ForkOptions) -> Result<Forked>;

    /// Ends a sandbox and everything in it. Idempotent: absent is success. When it returns nothing is left.
    async fn destroy(&self, cx: &OpContext, id: &SandboxId) -> Result<()>;

    /// What the provider counted for everything that it had under this id, all of which has ended: one for each sandbox
    /// there, none if there never was any. `None`: it does not tell, so whoever wants to know measures from outside. An
    /// error: nobody can tell at present, such as while something of it lives.
    async fn metered(&self, cx: &OpContext, id: &SandboxId) -> Result<Option<Vec<Metered>>>;

    /// Whether it can be reached and used.
    async fn health(&self, cx: &OpContext) -> Result<()>;
}
