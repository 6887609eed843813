//! The provider of sandboxes on this machine.

mod adopt;
mod change;
mod execs;
mod fork;
mod make;
mod names;
mod save;

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use sandstorm_agent_client::files;
use sandstorm_jail::Tree;
use sandstorm_jail::cgroup::Extent;
use sandstorm_jail::launcher::deputy::Deputy;
use sandstorm_jail::launcher::{Abilities, RefusalKind, ZygoteConfig};
use sandstorm_provider::{
    AttachFrom, ByteStream, CreateOptions, Duplex, Error, Events, Exec, ExecRequest, ExecSignal, FileEvent,
    FileOp, FileReply, ForkOptions, Forked, ListFilter, Metered, OpContext, Provider, ProviderEvent,
    ProviderInfo, ReadRange, Refusals, Result, Sandbox, Snapshot, SnapshotOptions, Tasks, Usage,
    WatchOptions, WriteOptions,
};
use sandstorm_types::{
    Capabilities, Enforcement, ErrorKind, ExecId, GuestPath, IpNetwork, Isolation, LimitName, LimitSet,
    Nat64Prefix, NetworkPolicy, SandboxId, SandboxSpec, SnapshotId, Step, Template, TenantId, Transition,
    Unmet,
};

use self::execs::{Execs, Reserved};
use crate::disk_space::{DiskSpace, DiskSpaceConfig};
use crate::exec;
use crate::launcher::{LauncherClient, LauncherError};
use crate::living::{Living, usage_of};
use crate::network::{Seen, Surroundings};
use crate::plan::Planner;
use crate::pool::{Key, Maker, Pool, PoolConfig, Zygotes};
use crate::snapshots::{SnapshotConfig, Snapshots};

/// What the provider is made from.
#[derive(Debug)]
pub struct LocalConfig {
    /// Its name among the providers.
    pub name: String,
    /// The region that it is in, by the operator's word.
    pub region: Option<String>,
    /// What no sandbox reaches, whatever its policy says.
    pub denied: Vec<IpNetwork>,
    /// Prefixes of this network's translators from IPv6 to IPv4, beside those that can be found out.
    pub nat64: Vec<Nat64Prefix>,
    /// The socket of a launcher: one that was forked before any thread, or a resident one.
    pub launcher: OwnedFd,
    /// What the launcher can do on this host.
    pub abilities: Abilities,
    /// Where a resident launcher is found again; `None` for a forked one, with which everything ends.
    pub resident: Option<PathBuf>,
    /// Who can make a resident launcher and its guardian anew; without one the launcher is gone for good when both are.
    pub deputy: Option<Deputy>,
    /// Where execs are written down, so that another process can take the sandboxes over; needs a resident launcher.
    pub journals: Option<PathBuf>,
    /// Further trees of the host that every sandbox sees.
    pub trees: Vec<Tree>,
    /// The warm interpreters that the launcher was started with.
    pub zygotes: Vec<ZygoteConfig>,
    /// Without it every sandbox is made when it is asked for.
    pub pool: Option<PoolConfig>,
    /// Programs have the strict system-call filter. Guest interpreters have the compatible one, so there are none.
    pub strict_filter: bool,
    /// Without it no sandbox is saved.
    pub snapshots: Option<SnapshotConfig>,
    /// Without it sandboxes may have of the disk what there is.
    pub disk_space: Option<DiskSpaceConfig>,
}

impl LocalConfig {
    /// For a launcher that was forked and ends with this process.
    pub fn forked(name: &str, launcher: OwnedFd, abilities: Abilities) -> Self {
        Self {
            name: name.to_owned(),
            region: None,
            denied: Vec::new(),
            nat64: Vec::new(),
            launcher,
            abilities,
            resident: None,
            deputy: None,
            journals: None,
            trees: Vec::new(),
            zygotes: Vec::new(),
            pool: None,
            strict_filter: false,
            snapshots: None,
            disk_space: None,
        }
    }
}

/// Sandboxes in jails on this machine.
#[derive(Debug)]
pub struct LocalProvider {
    info: ProviderInfo,
    planner: Planner,
    launcher: LauncherClient,
    maker: Maker,
    pool: Option<Pool>,
    abilities: Abilities,
    journals: Option<PathBuf>,
    snapshots: Option<Arc<Snapshots>>,
    disk_space: DiskSpace,
    surroundings: Surroundings,
    sandboxes: Mutex<HashMap<SandboxId, Arc<Living>>>,
    execs: Arc<Execs>,
    events: Events,
    tasks: Tasks,
}

impl LocalProvider {
    /// Must be called inside a tokio runtime.
    pub fn new(config: LocalConfig) -> io::Result<Self> {
        let (tasks, events) = (Tasks::default(), Events::default());
        let execs = Arc::new(Execs::default());
        tasks.start("old logs", Arc::clone(&execs).drop_old());
        let journals = config.journals.filter(|_| config.resident.is_some());
        // A launcher that cannot have them, or was started without, would refuse each.
        let able = config.abilities.zygotes && !config.strict_filter;
        let zygotes = Arc::new(Zygotes::new(if able { config.zygotes } else { Vec::new() }));
        let launcher = LauncherClient::new(config.launcher, config.resident, config.deputy, &tasks)?;
        // A jail that was made ahead can be kept later only if it has a door, and joinable ones have.
        let joinable = config.pool.is_some() || !zygotes.is_empty();
        let planner = Planner::new(config.trees, joinable, config.strict_filter);
        let maker = Maker::new(launcher.clone(), tasks.clone(), zygotes);
        Ok(Self {
            info: ProviderInfo { name: config.name, kind: "jail".to_owned(), region: config.region },
            planner,
            launcher,
            pool: config.pool.map(|pool| Pool::new(pool, maker.clone())),
            maker,
            abilities: config.abilities,
            journals,
            snapshots: config.snapshots.map(Snapshots::open).transpose()?,
            disk_space: DiskSpace::new(config.disk_space),
            surroundings: Surroundings::new(config.denied, config.nat64, events.clone(), tasks.clone()),
            sandboxes: Mutex::default(),
            execs,
            events,
            tasks,
        })
    }

    /// Ends everything and waits for it. A forked launcher then reads the end of its socket.
    pub async fn shut_down(self) {
        self.drain_pool().await;
        let all: Vec<SandboxId> = self.sandboxes().keys().copied().collect();
        let ends = futures_util::future::join_all(all.iter().map(|id| self.remove(id))).await;
        if let Some(error) = ends.into_iter().find_map(Result::err) {
            tracing::warn!(%error, "not every sandbox could be ended");
        }
        self.tasks.stop().await;
    }

    /// Lets go of everything: what a resident launcher keeps waits for the next host.
    pub async fn detach(self) {
        self.drain_pool().await;
        self.tasks.stop().await;
    }

    /// Ends everything and a resident launcher too.
    pub async fn shut_down_launcher(self) {
        if let Err(error) = self.launcher.shut_down().await {
            tracing::warn!(%error, "the launcher could not be told to end");
        }
        self.shut_down().await;
    }

    /// Resolves when there is no launcher and will be none, with the reason: nothing can be done here any more.
    pub fn lost(&self) -> impl Future<Output = String> + Send + use<> {
        let launcher = self.launcher.clone();
        async move { launcher.lost().await }
    }

    /// Keeps so many sandboxes of this kind ready at all times.
    pub fn keep_ready(&self, tenant: TenantId, spec: &SandboxSpec, options: &CreateOptions, count: usize) {
        if let (Some(pool), Ok(())) = (&self.pool, self.admits(spec)) {
            let jail = self.planner.kind(spec, options);
            let (zygotes, owner) = (&self.maker.zygotes, tenant.to_string());
            let zygote = options.expects.as_ref().and_then(|expected| zygotes.choose(expected, &owner));
            let zygote = zygote.map(|zygote| zygote.name.as_str());
            pool.pin(&Arc::new(Key::new(tenant, jail, zygote)), count);
        }
    }

    /// The name of a sandbox's jail, which its group on the unified tree has too: for people who look.
    pub fn jail(&self, id: &SandboxId) -> Option<String> {
        self.sandboxes().get(id).map(|living| living.name())
    }

    /// How many sandboxes wait for somebody to ask for them.
    pub fn ready(&self) -> usize {
        self.pool.as_ref().map_or(0, Pool::ready)
    }

    /// Ends every sandbox that waits; from now on each is made when it is asked for.
    pub async fn drain_pool(&self) {
        if let Some(pool) = &self.pool {
            pool.drain().await;
        }
    }

    fn sandboxes(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Living>>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn living(&self, id: &SandboxId) -> Result<Arc<Living>> {
        self.sandboxes()
            .get(id)
            .cloned()
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "there is no such sandbox").with("sandbox", id))
    }

    /// Ends a sandbox and forgets it. Absent is fine.
    async fn remove(&self, id: &SandboxId) -> std::result::Result<(), LauncherError> {
        let Some(living) = self.sandboxes().get(id).cloned() else { return Ok(()) };
        living.step(Step::Terminate);
        living.stop_reading();
        if living.ended.borrow().is_none() {
            match living.kill().await {
                Ok(()) => drop(living.end().await),
                // It lives on for now, and whoever asks again finds it.
                Err(LauncherError::Silent) => return Err(LauncherError::Silent),
                // It went with its launcher.
                Err(_) => {}
            }
        }
        self.sandboxes().remove(id);
        self.execs.remove_all(id);
        if let Some(dir) = &living.journals {
            let _ = std::fs::remove_dir_all(dir);
            names::forget(dir);
        }
        Ok(())
    }

    /// What a sandbox needs and this host is known not to have.
    fn unmet(&self, spec: &SandboxSpec) -> Vec<Unmet> {
        let mut spec = spec.clone();
        spec.enforcement = Enforcement::BestEffort;
        let mut unmet = self.capabilities().unmet(&spec);
        for unmet in unmet.iter_mut().filter(|unmet| unmet.feature == DISK_SPACE) {
            unmet.why =
                "the writable space cannot be on this machine's disk: that takes root, loop devices, mke2fs \
                         (package e2fsprogs), and a state directory that is not in memory"
                    .to_owned();
        }
        unmet
    }

    fn told<T>(&self, operation: &'static str, result: Result<T>) -> Result<T> {
        result.map_err(|error| error.with_operation(operation).with_provider(&self.info.name))
    }
}

/// The feature that says where the writable space may lie.
const DISK_SPACE: &str = "disk_space";

/// Without control groups nothing counts what all processes of a sandbox use together.
fn enforceable(control_groups: bool) -> LimitSet {
    let grouped = [LimitName::Memory, LimitName::Processes, LimitName::Cpus, LimitName::CpuTime];
    LimitName::ALL.into_iter().filter(|name| control_groups || !grouped.contains(name)).collect()
}

pub(crate) fn refused(error: LauncherError) -> Error {
    match error {
        LauncherError::Gone => Error::new(ErrorKind::Provider, "the launcher is gone"),
        LauncherError::Away => Error::new(ErrorKind::Capacity, "the launcher is being started again")
            .with_retry_after(Duration::from_secs(1)),
        LauncherError::Silent => Error::new(ErrorKind::Capacity, "the launcher does not answer")
            .with_retry_after(Duration::from_secs(5)),
        LauncherError::Refused(refusal) => {
            let kind = match refusal.kind {
                RefusalKind::Isolation => ErrorKind::Isolation,
                RefusalKind::Capacity => ErrorKind::Capacity,
                RefusalKind::Host => ErrorKind::Internal,
                RefusalKind::Gone => ErrorKind::NotFound,
                RefusalKind::Forbidden => ErrorKind::Conflict,
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
            template_snapshot: self.snapshots.is_some(),
            snapshot_files: self.snapshots.is_some(),
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
            connect: true,
            usage: true,
            network_none: true,
            network_allow: true,
            network_open: true,
            network_change: true,
            pause: self.abilities.freezer,
            pause_files: self.abilities.freezer,
            disk_space: self.abilities.disk_space,
            live_fork: self.promises_forks(),
            host_trees: true,
            warm_start: !self.maker.zygotes.is_empty(),
            limits: enforceable(self.abilities.control_groups),
            ..Capabilities::default()
        }
    }

    /// What this host cannot enforce is known only when a jail is made, which refuses it by name.
    fn admits(&self, spec: &SandboxSpec) -> Result<(), Vec<Unmet>> {
        let unmet = self.unmet(spec);
        if unmet.is_empty() { Ok(()) } else { Err(unmet) }
    }

    async fn create(&self, cx: &OpContext, spec: &SandboxSpec, opts: CreateOptions) -> Result<Sandbox> {
        let tenant = cx.tenant();
        let made = match &spec.template {
            Template::Snapshot(id) => {
                cx.run("create", Box::pin(self.make_from(tenant, *id, spec, opts))).await
            }
            _ => cx.run("create", self.make(tenant, spec, opts)).await,
        };
        self.told("create", made)
    }

    async fn get(&self, cx: &OpContext, id: &SandboxId) -> Result<Sandbox> {
        let found = cx
            .check("get")
            .and_then(|()| self.living(id))
            .map(|living| living.describe(self.info.region.as_deref()));
        self.told("get", found)
    }

    fn list(&self, cx: &OpContext, filter: ListFilter) -> BoxStream<'static, Result<Sandbox>> {
        let all: Vec<Result<Sandbox>> = match cx.check("list") {
            Ok(()) => {
                let fits = |sandbox: &Sandbox| sandbox.labels.contains(&filter.labels);
                self.sandboxes()
                    .values()
                    .map(|living| living.describe(self.info.region.as_deref()))
                    .filter(fits)
                    .map(Ok)
                    .collect()
            }
            Err(error) => vec![Err(error)],
        };
        stream::iter(all).boxed()
    }

    fn events(&self) -> BoxStream<'static, ProviderEvent> {
        self.events.listen()
    }

    fn refusals(&self, id: &SandboxId) -> Option<Box<dyn Refusals>> {
        self.living(id).ok().map(|living| Box::new(Seen(living.egress.watch())) as Box<_>)
    }

    async fn exec(&self, cx: &OpContext, id: &SandboxId, req: ExecRequest) -> Result<Exec> {
        let work = async {
            let living = self.living(id)?;
            self.execs.reserve(req.id)?;
            let exec_id = req.id;
            let reserved = Reserved { execs: &self.execs, id: Some(exec_id) };
            let (exec, followed) = exec::start(&living, req, &self.tasks).await?;
            reserved.fill(followed);
            Ok(exec)
        };
        self.told("exec", cx.run("exec", work).await)
    }

    async fn attach(&self, cx: &OpContext, exec: &ExecId, from: AttachFrom) -> Result<Exec> {
        let found = cx.check("attach").and_then(|()| self.execs.get(exec)).map(|followed| {
            let (first, events) = followed.log.events(from);
            Exec { id: *exec, first, events, input: followed.input, channel: followed.channel }
        });
        self.told("attach", found)
    }

    async fn signal(&self, cx: &OpContext, exec: &ExecId, signal: ExecSignal) -> Result<()> {
        let work = async { self.execs.get(exec)?.signal(signal).await };
        self.told("signal", cx.run("signal", work).await)
    }

    async fn read_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        range: ReadRange,
    ) -> Result<ByteStream> {
        let opened = cx
            .run("read_file", async { files::read(self.living(id)?.reach()?, cx.user(), path, range).await })
            .await;
        self.told("read_file", opened)
    }

    async fn write_file(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        opts: WriteOptions,
        body: ByteStream,
    ) -> Result<()> {
        let work = async { files::write(self.living(id)?.reach()?, cx.user(), path, opts, body).await };
        self.told("write_file", cx.run("write_file", work).await)
    }

    async fn files(&self, cx: &OpContext, id: &SandboxId, op: FileOp) -> Result<FileReply> {
        let work = async { files::operate(self.living(id)?.reach()?, cx.user(), op).await };
        self.told("files", cx.run("files", work).await)
    }

    async fn watch(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        opts: WatchOptions,
    ) -> Result<BoxStream<'static, Result<FileEvent>>> {
        let work = async { files::watch(self.living(id)?.reach()?, cx.user(), path, opts).await };
        self.told("watch", cx.run("watch", work).await)
    }

    async fn connect(&self, cx: &OpContext, id: &SandboxId, port: u16) -> Result<Duplex> {
        let work =
            async { sandstorm_agent_client::connect(self.living(id)?.reach()?, port, &self.tasks).await };
        self.told("connect", cx.run("connect", work).await)
    }

    async fn usage(&self, cx: &OpContext, id: &SandboxId) -> Result<Usage> {
        let work = async { Ok(usage_of(&self.living(id)?.counters(Extent::Everything).await)) };
        self.told("usage", cx.run("usage", work).await)
    }

    async fn transition(&self, cx: &OpContext, id: &SandboxId, to: Transition) -> Result<Sandbox> {
        let work = async {
            let living = self.living(id)?;
            self.change_state(&living, to).await?;
            Ok(living.describe(self.info.region.as_deref()))
        };
        self.told("transition", cx.run("transition", work).await)
    }

    async fn set_network(&self, cx: &OpContext, id: &SandboxId, policy: NetworkPolicy) -> Result<()> {
        let work = async { self.change_network(&self.living(id)?, policy).await };
        self.told("set_network", cx.run("set_network", work).await)
    }

    async fn snapshot(&self, cx: &OpContext, id: &SandboxId, opts: SnapshotOptions) -> Result<Snapshot> {
        self.told("snapshot", cx.run("snapshot", self.save(id, opts)).await)
    }

    async fn delete_snapshot(&self, cx: &OpContext, id: &SnapshotId) -> Result<()> {
        self.told("delete_snapshot", cx.run("delete_snapshot", self.forget(id)).await)
    }

    async fn fork(&self, cx: &OpContext, id: &SandboxId, opts: ForkOptions) -> Result<Forked> {
        self.told("fork", cx.run("fork", self.fork_living(cx, id, opts)).await)
    }

    async fn destroy(&self, cx: &OpContext, id: &SandboxId) -> Result<()> {
        let work = async { self.remove(id).await.map_err(refused) };
        self.told("destroy", cx.run("destroy", work).await)
    }

    /// Whoever asks here measures here.
    async fn metered(&self, _cx: &OpContext, _id: &SandboxId) -> Result<Option<Vec<Metered>>> {
        Ok(None)
    }

    async fn health(&self, cx: &OpContext) -> Result<()> {
        let work = async { self.launcher.count("").await.map(drop).map_err(refused) };
        self.told("health", cx.run("health", work).await)
    }
}
