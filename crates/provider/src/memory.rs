//! The reference backend: sandboxes in this process's memory.
//!
//! It has a file tree with quotas, programs that run, wait, take signals and end, pauses and snapshots, but
//! no isolation and no real programs: a handful of commands under their usual paths (`echo`, `cat`,
//! `chmod`, `sleep`, `printf`, `pwd`, `test`, `stty size`, `true`, `false`) and as much of `sh -c` as to combine them.
//! It shows what each method of the trait means, and tests of what lies above need no machine.

mod archive;
mod error;
mod process;
mod programs;
mod shell;
mod tree;
mod world;

use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use sandstorm_types::{
    Capabilities, ExecId, GuestPath, Isolation, LimitName, LimitSet, NetworkPolicy, SandboxId, SandboxSpec,
    SnapshotId, Template, Transition, Unmet, User,
};
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinSet;

use self::error::MemoryError;
use self::process::Process;
use self::tree::Tree;
use self::world::{Running, World};
use crate::{
    AttachFrom, ByteStream, ChannelInput, CreateOptions, Duplex, Error, Events, Exec, ExecInput, ExecLog,
    ExecRequest, ExecSignal, FileChange, FileEvent, FileOp, FileReply, ForkOptions, Forked, Keep, ListFilter,
    Metered, NotCarried, OpContext, Provider, ProviderEvent, ProviderInfo, ReadRange, Refusals, Result,
    Sandbox, Snapshot, SnapshotKind, SnapshotOptions, Stdin, Usage, WatchOptions, WriteOptions,
};

/// Size of the pieces in which files are read.
const PIECE: usize = 64 * 1024;

/// A provider whose sandboxes live in memory.
#[derive(Debug)]
pub struct MemoryProvider {
    info: ProviderInfo,
    world: World,
    events: Events,
    /// Programs that run. Dropping the provider ends them.
    tasks: Mutex<JoinSet<()>>,
}

impl Default for MemoryProvider {
    fn default() -> Self {
        Self::named("memory")
    }
}

impl MemoryProvider {
    pub fn named(name: &str) -> Self {
        let info = ProviderInfo { name: name.to_owned(), kind: "memory".to_owned(), region: None };
        Self { info, world: World::default(), events: Events::default(), tasks: Mutex::default() }
    }

    /// Ends a sandbox as a crash would: for tests of what has to be done then.
    pub fn lose(&self, id: &SandboxId, reason: &str) -> Result<()> {
        self.world.lose(id, reason)?;
        self.events.tell(ProviderEvent::Ended { sandbox: *id, reason: reason.to_owned() });
        Ok(())
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(work);
    }

    /// Names the operation and the provider in an error.
    fn told<T>(&self, operation: &'static str, result: Result<T>) -> Result<T> {
        result.map_err(|error| error.with_operation(operation).with_provider(&self.info.name))
    }
}

#[async_trait]
impl Provider for MemoryProvider {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            isolation: Isolation::Process,
            template_host: true,
            template_snapshot: true,
            exec: true,
            exec_stdin: true,
            exec_tty: true,
            exec_background: true,
            exec_attach: true,
            exec_signals: true,
            exec_channel: true,
            exec_root: true,
            files: true,
            files_archive: true,
            files_search: true,
            files_watch: true,
            files_metadata: true,
            files_root: true,
            usage: true,
            pause: true,
            pause_files: true,
            snapshot_files: true,
            live_fork: true,
            host_trees: true,
            network_none: true,
            network_change: true,
            writable_root: true,
            limits: LimitSet::EMPTY
                .with(LimitName::Wall)
                .with(LimitName::Disk)
                .with(LimitName::Inodes)
                .with(LimitName::Output),
            ..Capabilities::default()
        }
    }

    fn admits(&self, spec: &SandboxSpec) -> Result<(), Vec<Unmet>> {
        let unmet = self.capabilities().unmet(spec);
        if unmet.is_empty() { Ok(()) } else { Err(unmet) }
    }

    async fn create(&self, cx: &OpContext, spec: &SandboxSpec, opts: CreateOptions) -> Result<Sandbox> {
        let work = async {
            self.admits(spec).map_err(Error::unmet)?;
            // A point at which a cancelled creation stops; nothing exists before the insertion below.
            tokio::task::yield_now().await;
            let tree = match &spec.template {
                Template::Host => Tree::new(&spec.limits, spec.writable_root),
                Template::Snapshot(id) => {
                    let tree = self.world.snapshot(id)?.with_limits(&spec.limits, spec.writable_root);
                    tree.check_room()?;
                    tree
                }
                Template::Image(_) => unreachable!("the capabilities name no images"),
            };
            Ok(self.world.add(opts.id, spec, tree, SystemTime::now())?)
        };
        self.told("create", cx.run("create", work).await)
    }

    async fn get(&self, cx: &OpContext, id: &SandboxId) -> Result<Sandbox> {
        self.told("get", cx.run("get", async { Ok(self.world.get(id)?) }).await)
    }

    fn list(&self, cx: &OpContext, filter: ListFilter) -> BoxStream<'static, Result<Sandbox>> {
        let all = match cx.check("list") {
            Ok(()) => self.world.list(&filter).into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        };
        stream::iter(all).boxed()
    }

    fn events(&self) -> BoxStream<'static, ProviderEvent> {
        self.events.listen()
    }

    fn refusals(&self, _id: &SandboxId) -> Option<Box<dyn Refusals>> {
        None
    }

    async fn exec(&self, cx: &OpContext, id: &SandboxId, req: ExecRequest) -> Result<Exec> {
        let work = async {
            let (process, exec) = self.prepare(id, req)?;
            self.spawn(process.run_to_end());
            Ok(exec)
        };
        self.told("exec", cx.run("exec", work).await)
    }

    async fn attach(&self, cx: &OpContext, exec: &ExecId, from: AttachFrom) -> Result<Exec> {
        let work = async {
            let running = self.world.running(exec)?;
            let (first, events) = running.log.events(from);
            Ok(Exec { id: *exec, first, events, input: running.input, channel: running.channel })
        };
        self.told("attach", cx.run("attach", work).await)
    }

    async fn signal(&self, cx: &OpContext, exec: &ExecId, signal: ExecSignal) -> Result<()> {
        let work = async {
            let running = self.world.running(exec)?;
            match signal {
                ExecSignal::CloseStdin => running.input.close().await?,
                ExecSignal::Resize(size) => running.resize(size)?,
                ExecSignal::Forget { before } => running.forget(before),
                other => running.kill(other.number().unwrap_or_default())?,
            }
            Ok(())
        };
        self.told("signal", cx.run("signal", work).await)
    }

    async fn read_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        range: ReadRange,
    ) -> Result<ByteStream> {
        let work = async {
            let mut rest = part(self.world.read_tree(id, |tree| tree.read(path))??, range);
            let pieces = std::iter::from_fn(move || {
                let piece = rest.split_to(rest.len().min(PIECE));
                (!piece.is_empty()).then_some(Ok(piece))
            });
            Ok(ByteStream::new(stream::iter(pieces)))
        };
        self.told("read_file", cx.run("read_file", work).await)
    }

    async fn write_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        opts: WriteOptions,
        body: ByteStream,
    ) -> Result<()> {
        let work = async {
            let most = usize::try_from(self.world.get(id)?.limits.disk.as_u64()).unwrap_or(usize::MAX);
            let bytes = body.collect(most).await.map_err(|error| MemoryError::of_body(error, path))?;
            let write = |tree: &mut Tree| tree.write_as(cx.user(), path, bytes, opts.metadata);
            Ok(self.world.change_tree(id, write)?)
        };
        self.told("write_file", cx.run("write_file", work).await)
    }

    async fn files(&self, cx: &OpContext, id: &SandboxId, op: FileOp) -> Result<FileReply> {
        self.told("files", cx.run("files", self.file_op(cx.user(), id, op)).await)
    }

    async fn watch(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        opts: WatchOptions,
    ) -> Result<BoxStream<'static, Result<FileEvent>>> {
        let work = async {
            self.world.read_tree(id, |tree| tree.stat(path))??;
            let changes = self.world.changes(id)?;
            Ok(watched(changes, path.clone(), opts))
        };
        self.told("watch", cx.run("watch", work).await)
    }

    async fn connect(&self, cx: &OpContext, id: &SandboxId, port: u16) -> Result<Duplex> {
        let work = async {
            self.world.ready(id)?;
            Err(MemoryError::Refused { port }.into())
        };
        self.told("connect", cx.run("connect", work).await)
    }

    async fn usage(&self, cx: &OpContext, id: &SandboxId) -> Result<Usage> {
        self.told("usage", cx.run("usage", async { Ok(self.world.usage(id)?) }).await)
    }

    async fn transition(&self, cx: &OpContext, id: &SandboxId, to: Transition) -> Result<Sandbox> {
        self.told("transition", cx.run("transition", async { Ok(self.world.transition(id, to)?) }).await)
    }

    async fn set_network(&self, cx: &OpContext, id: &SandboxId, policy: NetworkPolicy) -> Result<()> {
        let work = async {
            self.world.get(id)?;
            // Its programs reach nothing whatever the policy says, so there is only one that holds.
            self.admits(&SandboxSpec { network: policy, ..SandboxSpec::default() }).or_else(|unmet| {
                let network: Vec<_> =
                    unmet.into_iter().filter(|unmet| unmet.feature.starts_with("network")).collect();
                if network.is_empty() { Ok(()) } else { Err(Error::unmet(network)) }
            })
        };
        self.told("set_network", cx.run("set_network", work).await)
    }

    async fn snapshot(&self, cx: &OpContext, id: &SandboxId, opts: SnapshotOptions) -> Result<Snapshot> {
        let work = async {
            match opts.kind {
                SnapshotKind::Files => Ok(self.world.save(id, opts)?),
                SnapshotKind::Memory => Err(MemoryError::NoMemorySnapshots.into()),
            }
        };
        self.told("snapshot", cx.run("snapshot", work).await)
    }

    async fn delete_snapshot(&self, cx: &OpContext, id: &SnapshotId) -> Result<()> {
        let work = async {
            self.world.forget_snapshot(id);
            Ok(())
        };
        self.told("delete_snapshot", cx.run("delete_snapshot", work).await)
    }

    async fn fork(&self, cx: &OpContext, id: &SandboxId, opts: ForkOptions) -> Result<Forked> {
        let work = async {
            self.admits(&opts.spec).map_err(Error::unmet)?;
            let why = "a program in this process's memory cannot be copied";
            for (from, _) in &opts.execs {
                self.world.running(from)?;
                if !opts.partial {
                    return Err(MemoryError::NotCarried(*from, why).into());
                }
            }
            let tree = self.world.read_tree(id, Tree::clone)?;
            let tree = tree.with_limits(&opts.spec.limits, opts.spec.writable_root);
            let sandbox = self.world.add(opts.create.id, &opts.spec, tree, SystemTime::now())?;
            let left = opts
                .execs
                .iter()
                .map(|(from, _)| NotCarried { what: format!("exec {from}"), why: why.to_owned() });
            Ok(Forked { sandbox, carried: Vec::new(), not_carried: left.collect() })
        };
        self.told("fork", cx.run("fork", work).await)
    }

    async fn destroy(&self, cx: &OpContext, id: &SandboxId) -> Result<()> {
        let work = async {
            for log in self.world.remove(id) {
                log.ended().await;
            }
            Ok(())
        };
        self.told("destroy", cx.run("destroy", work).await)
    }

    async fn metered(&self, _cx: &OpContext, _id: &SandboxId) -> Result<Option<Vec<Metered>>> {
        Ok(None)
    }

    async fn health(&self, cx: &OpContext) -> Result<()> {
        cx.check("health")
    }
}

impl MemoryProvider {
    /// Everything that a program needs, and the caller's ends of it.
    fn prepare(&self, id: &SandboxId, req: ExecRequest) -> Result<(Process, Exec), MemoryError> {
        let place = self.world.ready(id)?;
        for (path, content) in &req.files {
            self.world.change_tree(id, |tree| tree.write(path, content.clone()))?;
        }
        let log = ExecLog::new(Keep::of(&req, req.output.unwrap_or(place.sandbox.limits.output)));
        if req.is_streamed() {
            log.pass_on_beyond();
        }
        let (input, stdin) = match &req.stdin {
            Stdin::Stream => {
                let (input, frames) = ExecInput::channel(16);
                let (kept, to_program) = mpsc::channel(16);
                self.spawn(programs::keep_input(frames, kept));
                (input, programs::Input::from(to_program))
            }
            Stdin::Given(bytes) => (ExecInput::none(), programs::Input::from(bytes.clone())),
            Stdin::Empty => (ExecInput::none(), programs::Input::from(Bytes::new())),
        };
        let (channel, messages) = req.channel.then(|| ChannelInput::channel(1)).unzip();
        let (signals, received) = mpsc::channel(8);
        let running = Running::new(log.clone(), signals, input.clone(), channel.clone(), req.tty);
        let process = Process::new(self.world.clone(), place, &running, received, stdin, messages, &req)?;
        self.world.start(id, req.id, running.clone())?;
        let events = match req.background {
            true => log.events(AttachFrom::START).1,
            false => log.paced_events(Some(Box::new(running.kill_on_drop()))),
        };
        Ok((process, Exec { id: req.id, first: 0, events, input, channel }))
    }

    async fn file_op(&self, user: User, id: &SandboxId, op: FileOp) -> Result<FileReply> {
        let reply = match op {
            FileOp::Stat { path } => FileReply::Info(self.world.read_tree(id, |tree| tree.stat(&path))??),
            FileOp::List { path, depth, limit } => {
                let (entries, more) = self.world.read_tree(id, |tree| tree.list(&path, depth, limit))??;
                FileReply::List { entries, more }
            }
            FileOp::Search { root, pattern, limit } => {
                let (paths, more) =
                    self.world.read_tree(id, |tree| tree.search(&root, &pattern, limit))??;
                FileReply::Found { paths, more }
            }
            FileOp::Pack { path } => {
                let archive = self.world.read_tree(id, |tree| archive::pack(tree, &path))??;
                FileReply::Archive(ByteStream::from(archive))
            }
            FileOp::Unpack { path, archive } => {
                let bytes = archive.collect(archive::MAX_ARCHIVE).await?;
                self.world.change_tree(id, |tree| archive::unpack(tree, &path, &bytes))?;
                FileReply::Done
            }
            change => {
                self.world.change_tree(id, |tree| match change {
                    FileOp::MakeDir { path } => tree.make_dir_as(user, &path),
                    FileOp::Move { from, to } => tree.rename(&from, &to),
                    FileOp::Remove { path, recursive } => tree.remove(&path, recursive),
                    FileOp::SetMode { path, mode } => tree.set_mode(&path, mode),
                    _ => unreachable!("the other operations are handled above"),
                })?;
                FileReply::Done
            }
        };
        Ok(reply)
    }
}

fn part(mut whole: Bytes, range: ReadRange) -> Bytes {
    let skipped = usize::try_from(range.offset).unwrap_or(usize::MAX).min(whole.len());
    let mut rest = whole.split_off(skipped);
    rest.truncate(range.length.and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX));
    rest
}

/// Changes at or below `path`; only its own entries unless recursive.
fn watched(
    changes: broadcast::Receiver<FileEvent>,
    path: GuestPath,
    opts: WatchOptions,
) -> BoxStream<'static, Result<FileEvent>> {
    stream::unfold((changes, path), move |(mut changes, path)| async move {
        loop {
            let event = match changes.recv().await {
                Ok(event) => event,
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    FileEvent { path: path.clone(), change: FileChange::Lost }
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            };
            let near = event.path == path || event.path.parent().as_ref() == Some(&path);
            if near || (opts.recursive && event.path.is_within(&path)) {
                return Some((Ok(event), (changes, path)));
            }
        }
    })
    .boxed()
}
