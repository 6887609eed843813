//! The provider of sandboxes on this machine.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use sandstorm_agent::frame::Decoder;
use sandstorm_agent::protocol::{CONNECTED, FileError, Stream, Task};
use sandstorm_egress::SystemResolver;
use sandstorm_jail::Tree;
use sandstorm_jail::launcher::RefusalKind;
use sandstorm_provider::{
    ByteStream, CreateOptions, Duplex, Error, Exec, ExecRequest, ExecSignal, FileEvent, FileOp, FileReply,
    ListFilter, Offset, OpContext, Provider, ProviderInfo, Result, Sandbox, SnapshotOptions, Usage,
    WatchOptions,
};
use sandstorm_types::{
    Capabilities, Enforcement, ErrorKind, ExecId, GuestPath, Isolation, LimitName, LimitSet, SandboxId,
    SandboxSpec, SnapshotId, Step, Transition, Unmet,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::agent::{AgentClient, AgentError, TaskEvent};
use crate::exec::{self, Followed, lost};
use crate::launcher::{LauncherClient, LauncherError};
use crate::living::{self, Living, usage_of};
use crate::network::Egress;
use crate::tasks::Tasks;
use crate::{files, plan, walls};

/// What the provider is made from.
#[derive(Debug)]
pub struct LocalConfig {
    /// Its name among the providers.
    pub name: String,
    /// The socket of a launcher that was forked before any thread.
    pub launcher: OwnedFd,
    /// Further trees of the host that every sandbox sees.
    pub trees: Vec<Tree>,
    /// Whether the launcher can make control groups.
    pub control_groups: bool,
}

/// Sandboxes in jails on this machine.
#[derive(Debug)]
pub struct LocalProvider {
    info: ProviderInfo,
    trees: Vec<Tree>,
    launcher: LauncherClient,
    resolver: SystemResolver,
    /// What this machine lets us enforce.
    limits: LimitSet,
    sandboxes: Mutex<HashMap<SandboxId, Arc<Living>>>,
    execs: Mutex<HashMap<ExecId, Followed>>,
    tasks: Tasks,
}

impl LocalProvider {
    /// Must be called inside a tokio runtime.
    pub fn new(config: LocalConfig) -> io::Result<Self> {
        let tasks = Tasks::default();
        Ok(Self {
            info: ProviderInfo { name: config.name, kind: "jail".to_owned(), region: None },
            trees: config.trees,
            launcher: LauncherClient::new(config.launcher, &tasks)?,
            resolver: SystemResolver::default(),
            limits: enforceable(config.control_groups),
            sandboxes: Mutex::default(),
            execs: Mutex::default(),
            tasks,
        })
    }

    /// Ends everything and waits for it. The launcher then reads the end of its socket.
    pub async fn shut_down(self) {
        let all: Vec<SandboxId> = self.sandboxes().keys().copied().collect();
        for id in all {
            self.remove(&id).await;
        }
        self.tasks.stop().await;
    }

    fn sandboxes(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Living>>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn execs(&self) -> MutexGuard<'_, HashMap<ExecId, Followed>> {
        self.execs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn living(&self, id: &SandboxId) -> Result<Arc<Living>> {
        self.sandboxes()
            .get(id)
            .cloned()
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "there is no such sandbox").with("sandbox", id))
    }

    fn followed(&self, id: &ExecId) -> Result<Followed> {
        self.execs()
            .get(id)
            .cloned()
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "there is no such exec").with("exec", id))
    }

    async fn make(&self, spec: &SandboxSpec, options: CreateOptions) -> Result<Sandbox> {
        self.admits(spec).map_err(Error::unmet)?;
        let id = options.id;
        if self.sandboxes().contains_key(&id) {
            return Err(
                Error::new(ErrorKind::Conflict, "there is such a sandbox already").with("sandbox", id)
            );
        }
        let mounts =
            options.mounts.iter().map(|m| Tree { source: m.source.clone(), target: m.target.clone() });
        let trees = self.trees.iter().cloned().chain(mounts).collect();
        let jail = plan::jail(spec, &options, trees);
        // A creation that is dropped on the way must not leave a jail: the guard asks for its end.
        let guard = KillUnlessKept { launcher: &self.launcher, name: Some(jail.name.clone()) };
        let mut launch = self.launcher.launch(jail).await.map_err(refused)?;
        let descriptors = launch.descriptors.split_off(1);
        let socket = launch.descriptors.remove(0);
        let agent = AgentClient::new(socket, &self.tasks).map_err(|e| {
            Error::new(ErrorKind::Internal, "the agent's socket cannot be used").with_source(e)
        })?;
        let egress = Egress::start(descriptors, &spec.network, &self.resolver)?;
        agent.ready().await.map_err(lost)?;
        let walls = walls::of_jail(&launch.launched.report, &spec.network, spec.limits.cpu_time.is_some());
        let living = Living::new(id, spec.clone(), agent, self.launcher.clone(), walls, egress);
        self.sandboxes().insert(id, Arc::clone(&living));
        guard.keep();
        // A sandbox that cannot be spoken to is of no use, and whoever broke the connection gets no more time.
        let (agent, launcher, name) = (living.agent.clone(), self.launcher.clone(), living.name());
        self.tasks.start("sandbox link", async move {
            agent.lost().await;
            let _ = launcher.kill(&name).await;
        });
        let watched = Arc::clone(&living);
        let ended = launch.ended;
        self.tasks.start("sandbox end", async move {
            // A launcher that is gone took its jails with it.
            let ended = ended.await.unwrap_or_else(|_| living::gone(&watched.name()));
            // An end that nobody asked for is a failure.
            if !watched.step(Step::Terminated) {
                watched.step(Step::Fail { reason: format!("the sandbox ended: {:?}", ended.cause) });
            }
            if !ended.stuck.is_empty() {
                tracing::error!(sandbox = %watched.id, stuck = ?ended.stuck, "control groups do not empty");
            }
            watched.ended.send_replace(Some(ended));
        });
        Ok(living.describe())
    }

    /// Ends a sandbox and forgets it. Absent is fine.
    async fn remove(&self, id: &SandboxId) {
        let Some(living) = self.sandboxes().get(id).cloned() else { return };
        living.step(Step::Terminate);
        if living.ended.borrow().is_none() && self.launcher.kill(&living.name()).await.is_ok() {
            living.end().await;
        }
        self.sandboxes().remove(id);
        self.execs().retain(|_, exec| exec.sandbox != *id);
    }

    fn told<T>(&self, operation: &'static str, result: Result<T>) -> Result<T> {
        result.map_err(|error| error.with_operation(operation).with_provider(&self.info.name))
    }
}

/// Without control groups nothing counts what all processes of a sandbox use together.
fn enforceable(control_groups: bool) -> LimitSet {
    let grouped = [LimitName::Memory, LimitName::Processes, LimitName::Cpus, LimitName::CpuTime];
    LimitName::ALL.into_iter().filter(|name| control_groups || !grouped.contains(name)).collect()
}

/// Asks for a jail's end unless it was kept.
struct KillUnlessKept<'a> {
    launcher: &'a LauncherClient,
    name: Option<String>,
}

impl KillUnlessKept<'_> {
    fn keep(mut self) {
        self.name = None;
    }
}

impl Drop for KillUnlessKept<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            self.launcher.kill_now(name);
        }
    }
}

fn refused(error: LauncherError) -> Error {
    match error {
        LauncherError::Gone => Error::new(ErrorKind::Provider, "the launcher is gone"),
        LauncherError::Refused(refusal) => {
            let kind = match refusal.kind {
                RefusalKind::Isolation => ErrorKind::Isolation,
                RefusalKind::Capacity => ErrorKind::Capacity,
                RefusalKind::Host => ErrorKind::Internal,
            };
            Error::new(kind, refusal.message)
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Provider for LocalProvider {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            isolation: Isolation::Container,
            template_host: true,
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
            connect: true,
            usage: true,
            network_none: true,
            network_allow: true,
            network_open: true,
            limits: self.limits,
            ..Capabilities::default()
        }
    }

    /// What this host cannot enforce is known only when a jail is made, which refuses it by name.
    fn admits(&self, spec: &SandboxSpec) -> Result<(), Vec<Unmet>> {
        let mut spec = spec.clone();
        spec.enforcement = Enforcement::BestEffort;
        let unmet = self.capabilities().unmet(&spec);
        if unmet.is_empty() { Ok(()) } else { Err(unmet) }
    }

    async fn create(&self, cx: &OpContext, spec: &SandboxSpec, opts: CreateOptions) -> Result<Sandbox> {
        self.told("create", cx.run("create", self.make(spec, opts)).await)
    }

    async fn get(&self, cx: &OpContext, id: &SandboxId) -> Result<Sandbox> {
        let found = cx.check("get").and_then(|()| self.living(id)).map(|living| living.describe());
        self.told("get", found)
    }

    fn list(&self, cx: &OpContext, filter: ListFilter) -> BoxStream<'static, Result<Sandbox>> {
        let all: Vec<Result<Sandbox>> = match cx.check("list") {
            Ok(()) => {
                let fits = |sandbox: &Sandbox| sandbox.labels.contains(&filter.labels);
                self.sandboxes().values().map(|living| living.describe()).filter(fits).map(Ok).collect()
            }
            Err(error) => vec![Err(error)],
        };
        stream::iter(all).boxed()
    }

    async fn exec(&self, cx: &OpContext, id: &SandboxId, req: ExecRequest) -> Result<Exec> {
        let work = async {
            let (exec, followed) = exec::start(&self.living(id)?, req, &self.tasks).await?;
            self.execs().insert(exec.id, followed);
            Ok(exec)
        };
        self.told("exec", cx.run("exec", work).await)
    }

    async fn attach(&self, cx: &OpContext, exec: &ExecId, from: Offset) -> Result<Exec> {
        let found = cx.check("attach").and_then(|()| self.followed(exec)).map(|followed| Exec {
            id: *exec,
            events: followed.log.events(from),
            input: followed.input.clone(),
            channel: None,
        });
        self.told("attach", found)
    }

    async fn signal(&self, cx: &OpContext, exec: &ExecId, signal: ExecSignal) -> Result<()> {
        let work = async { self.followed(exec)?.signal(signal).await };
        self.told("signal", cx.run("signal", work).await)
    }

    async fn read_file(&self, cx: &OpContext, id: &SandboxId, path: &GuestPath) -> Result<ByteStream> {
        let opened = cx.run("read_file", async { files::read(&*self.living(id)?, path).await }).await;
        self.told("read_file", opened)
    }

    async fn write_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        body: ByteStream,
    ) -> Result<()> {
        let work = async { files::write(&*self.living(id)?, path, body).await };
        self.told("write_file", cx.run("write_file", work).await)
    }

    async fn files(&self, cx: &OpContext, id: &SandboxId, op: FileOp) -> Result<FileReply> {
        let work = async { files::operate(&*self.living(id)?, op).await };
        self.told("files", cx.run("files", work).await)
    }

    async fn watch(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        opts: WatchOptions,
    ) -> Result<BoxStream<'static, Result<FileEvent>>> {
        let work = async { files::watch(&*self.living(id)?, path, opts).await };
        self.told("watch", cx.run("watch", work).await)
    }

    async fn connect(&self, cx: &OpContext, id: &SandboxId, port: u16) -> Result<Duplex> {
        let work = async { connect(&*self.living(id)?, port, &self.tasks).await };
        self.told("connect", cx.run("connect", work).await)
    }

    async fn usage(&self, cx: &OpContext, id: &SandboxId) -> Result<Usage> {
        let work = async { Ok(usage_of(&self.living(id)?.counters().await)) };
        self.told("usage", cx.run("usage", work).await)
    }

    async fn transition(&self, _: &OpContext, id: &SandboxId, to: Transition) -> Result<Sandbox> {
        let unmet = Unmet::new("pause", format!("{to:?}"), "no", "this provider cannot pause sandboxes");
        self.told("transition", Err(Error::unmet(vec![unmet]).with("sandbox", id)))
    }

    async fn snapshot(&self, _: &OpContext, id: &SandboxId, _: SnapshotOptions) -> Result<SnapshotId> {
        let unmet = Unmet::new("snapshot_files", "yes", "no", "this provider cannot save sandboxes");
        self.told("snapshot", Err(Error::unmet(vec![unmet]).with("sandbox", id)))
    }

    async fn destroy(&self, cx: &OpContext, id: &SandboxId) -> Result<()> {
        let work = async {
            self.remove(id).await;
            Ok(())
        };
        self.told("destroy", cx.run("destroy", work).await)
    }

    async fn health(&self, cx: &OpContext) -> Result<()> {
        let work = async { self.launcher.count("").await.map(drop).map_err(refused) };
        self.told("health", cx.run("health", work).await)
    }
}

/// A connection to a port inside, relayed by the agent. Resolves when it is made.
async fn connect(living: &Living, port: u16, tasks: &Tasks) -> Result<Duplex> {
    living.check_ready()?;
    let mut handle = living.agent.start(Task::Connect { port }).map_err(lost)?;
    loop {
        match handle.next().await {
            Some(TaskEvent::Started(_)) => {}
            Some(TaskEvent::Output { stream: Stream::Error, bytes }) if bytes.first() == Some(&CONNECTED) => {
                break;
            }
            Some(TaskEvent::Output { stream: Stream::Error, bytes }) => {
                let mut decoder = Decoder::default();
                decoder.push(&bytes);
                return Err(match decoder.take::<FileError>() {
                    Ok(Some(error)) => files::file_error(&error).with("port", port),
                    _ => lost(AgentError::Protocol("a malformed refusal")),
                });
            }
            _ => return Err(lost(AgentError::Gone)),
        }
    }
    let (theirs, ours) = tokio::io::duplex(64 * 1024);
    let (mut reading, mut writing) = tokio::io::split(ours);
    let input = handle.input.clone();
    tasks.start("connection in", async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(n @ 1..) = reading.read(&mut buffer).await {
            if input.write(&buffer[..n]).await.is_err() {
                return;
            }
        }
        let _ = input.close();
    });
    tasks.start("connection out", async move {
        while let Some(event) = handle.next().await {
            match event {
                TaskEvent::Output { stream: Stream::Output, bytes }
                    if writing.write_all(&bytes).await.is_err() =>
                {
                    break;
                }
                TaskEvent::Exited { .. } | TaskEvent::Failed(_) => break,
                _ => {}
            }
        }
        let _ = writing.shutdown().await;
    });
    Ok(Duplex::new(theirs))
}
