//! The embedded engine: launcher, runtime and provider, in that order.

use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use sandstorm_config::{Config, DiskSpace, Environment, Loaded, SystemCalls};
use sandstorm_engine::{AGENT, DiskSpaceConfig, LocalConfig, LocalProvider, PoolConfig, SnapshotConfig};
use sandstorm_jail::cgroup::delegated_parent;
use sandstorm_jail::launcher::deputy::Deputy;
use sandstorm_jail::launcher::resident::{self, ResidentConfig};
use sandstorm_jail::launcher::{self, Abilities, Launcher, LauncherConfig, MountSources, ZygoteConfig};
use sandstorm_jail::{IdRange, Tree};
use sandstorm_language::Roots;
use sandstorm_provider::{CreateOptions, Expected, HostMount};
use sandstorm_types::{ByteSize, Enforcement, SandboxSpec, TenantId};

use crate::serve::Home;
use crate::zygotes;

/// A resident launcher that a server found or made, before it had threads.
#[derive(Debug)]
pub(crate) struct Resident {
    launcher: resident::Resident,
    deputy: Deputy,
    zygotes: Vec<ZygoteConfig>,
    /// Why the control group that an ordinary user was started in does not serve.
    pub(crate) no_group: Option<String>,
}

impl Resident {
    /// Finds the launcher of a state directory or forks one: nothing before this may have started a thread.
    pub(crate) fn start(loaded: &Loaded, home: &Home, uid: Option<u32>) -> anyhow::Result<Self> {
        let config = &loaded.config;
        let mut trees: Vec<PathBuf> = config.template.mounts.iter().map(|m| m.source.clone()).collect();
        trees.push(home.layers());
        // Of all languages and package managers: they may be installed while this runs.
        let patterns = sandstorm_language::mount_patterns().map(str::to_owned).collect();
        let zygotes = zygotes::configured(config).unwrap_or_else(|why| {
            tracing::info!(why, "there are no warm interpreters");
            Vec::new()
        });
        let mut launcher_config = LauncherConfig {
            zygotes: zygotes.clone(),
            space_dir: home.folder().to_owned(),
            ..launcher_config(loaded)
        };
        let mut no_group = None;
        // Root has all groups, and whoever names one wants that one.
        if config.cgroup_parent.is_none() && !rustix::process::geteuid().is_root() {
            match delegated_parent() {
                Ok(parent) => launcher_config.cgroup_parent = parent,
                Err(why) => no_group = Some(why),
            }
        }
        let resident = ResidentConfig {
            socket: home.launcher_socket(),
            allowed_uid: uid.unwrap_or_else(|| rustix::process::geteuid().as_raw()),
            launcher: launcher_config,
            orphan_after: config.serve.orphan_after,
            mount_sources: MountSources { trees, patterns },
        };
        let launcher = resident::connect_or_start(&resident).context("the launcher could not be started")?;
        let (deputy, launcher) =
            Deputy::start(&resident, launcher).context("the launcher's deputy could not be started")?;
        Ok(Self { launcher, deputy, zygotes, no_group })
    }

    /// The engine over this launcher, with every sandbox that an earlier server left.
    pub(crate) async fn provider(self, config: &Config, home: &Home) -> anyhow::Result<Arc<LocalProvider>> {
        let provider = LocalProvider::new(LocalConfig {
            name: "local".to_owned(),
            region: config.providers.get("local").and_then(|local| local.region.clone()),
            denied: config.network.denied.clone(),
            nat64: config.network.nat64.clone(),
            launcher: self.launcher.socket,
            abilities: self.launcher.abilities,
            resident: Some(home.launcher_socket()),
            deputy: Some(self.deputy),
            journals: Some(home.journals()),
            trees: trees(config),
            zygotes: self.zygotes,
            pool: pool(config),
            strict_filter: strict_filter(config),
            snapshots: snapshots(config, home),
            disk_space: Some(disk_space(config, home)),
        })
        .context("the engine could not be started")?;
        let adopted =
            provider.adopt().await.context("the sandboxes of an earlier server were not taken over")?;
        if !adopted.is_empty() {
            tracing::info!(sandboxes = adopted.len(), "sandboxes of an earlier server taken over");
        }
        Ok(Arc::new(provider))
    }
}

/// Whether programs get the strict filter of system calls.
pub(crate) fn strict_filter(config: &Config) -> bool {
    config.system_calls == SystemCalls::Strict
}

fn snapshots(config: &Config, home: &Home) -> Option<SnapshotConfig> {
    let most = config.snapshots.space;
    (most > ByteSize::default()).then(|| SnapshotConfig { folder: home.snapshots(), most })
}

fn disk_space(config: &Config, home: &Home) -> DiskSpaceConfig {
    let DiskSpace { total, per_tenant, keep_free } = config.disk_space;
    DiskSpaceConfig { folder: home.folder().to_owned(), total, per_tenant, keep_free }
}

fn pool(config: &Config) -> Option<PoolConfig> {
    let pool = &config.pool;
    // Each holds a block of ids, and those who ask need some.
    let max = usize::try_from(pool.max.min(config.ids.blocks / 2)).unwrap_or(usize::MAX);
    pool.enabled.then_some(PoolConfig { max, memory: pool.memory.as_u64(), max_age: pool.max_age })
}

/// Has ready what the first run of a new server will most likely need: Python with the default limits.
pub(crate) fn keep_ready(config: &Config, enforcement: Enforcement, provider: &LocalProvider) {
    let Some(python) = zygotes::python(config) else { return };
    let Some(interpreter) = python.programs.values().next().cloned() else { return };
    let same = |path: PathBuf| HostMount { source: path.clone(), target: path };
    let options = CreateOptions {
        mounts: python.mounts.into_iter().map(same).collect(),
        ephemeral: true,
        expects: Some(Expected { interpreter, modules: Vec::new() }),
        ..CreateOptions::default()
    };
    let spec = SandboxSpec { limits: config.limits, enforcement, ..SandboxSpec::default() };
    let count = usize::try_from(config.pool.prefill).unwrap_or(usize::MAX);
    provider.keep_ready(TenantId::LOCAL, &spec, &options, count);
}

fn launcher_config(loaded: &Loaded) -> LauncherConfig {
    let config = &loaded.config;
    LauncherConfig {
        ids: IdRange { start: config.ids.start, blocks: config.ids.blocks },
        cgroup_parent: PathBuf::from(config.cgroup_parent.as_deref().unwrap_or("sandstorm")),
        runtime_dir: runtime_dir(loaded),
        // A disk even where `/tmp` is none.
        space_dir: PathBuf::from("/var/tmp"),
        agent: AGENT,
        zygotes: Vec::new(),
    }
}

/// A launcher that was forked, and a runtime to talk to it.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) provider: Arc<LocalProvider>,
    launcher_pid: i32,
}

impl Local {
    /// Forks the launcher first: nothing before this may have started a thread.
    pub(crate) fn start(loaded: &Loaded) -> anyhow::Result<Self> {
        Self::with_zygotes(loaded, Vec::new())
    }

    /// The same with warm interpreters, for whoever stays.
    pub(crate) fn with_zygotes(loaded: &Loaded, zygotes: Vec<ZygoteConfig>) -> anyhow::Result<Self> {
        let config = &loaded.config;
        let launcher = LauncherConfig { zygotes: zygotes.clone(), ..launcher_config(loaded) };
        let launcher = launcher::start(launcher).context("the launcher could not be started")?;
        let pid = launcher.pid();
        let Launcher { socket, abilities, .. } = launcher;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("the runtime could not be started")?;
        let provider = runtime.block_on(async { provider(config, socket, abilities, zygotes) })?;
        Ok(Self { runtime, provider: Arc::new(provider), launcher_pid: pid })
    }

    /// Ends every sandbox and waits until the launcher has gone too.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        let Self { runtime, provider, launcher_pid } = self;
        if let Some(provider) = Arc::into_inner(provider) {
            runtime.block_on(provider.shut_down());
        }
        // A thread may still wait for a line of input that never comes.
        runtime.shutdown_background();
        Launcher::join(launcher_pid).context("the launcher did not end")
    }
}

fn provider(
    config: &Config,
    socket: OwnedFd,
    abilities: Abilities,
    zygotes: Vec<ZygoteConfig>,
) -> anyhow::Result<LocalProvider> {
    let forked = LocalConfig::forked("local", socket, abilities);
    let (denied, nat64) = (config.network.denied.clone(), config.network.nat64.clone());
    let strict_filter = strict_filter(config);
    let config = LocalConfig { trees: trees(config), zygotes, strict_filter, denied, nat64, ..forked };
    LocalProvider::new(config).context("the engine could not be started")
}

/// Trees that every sandbox sees because the configuration says so.
fn trees(config: &Config) -> Vec<Tree> {
    let tree = |m: &sandstorm_config::Mount| Tree { source: m.source.clone(), target: m.target.clone() };
    config.template.mounts.iter().map(tree).collect()
}

/// Where toolchains are looked for: what a sandbox sees, and what the configuration adds to that.
pub(crate) fn roots(config: &Config) -> Roots {
    let mut roots = Roots::host();
    for mount in &config.template.mounts {
        roots = roots.with_toolchain(mount.target.clone());
    }
    for (name, language) in &config.languages {
        if let Some(program) = &language.program {
            roots = roots.with_program(name, program);
        }
    }
    roots
}

/// The state directory, made for its owner alone if it is missing. `None`: there is no place for one. One that cannot be
/// made is for its users to complain about: a run that keeps nothing does not need it.
pub(crate) fn state_dir(loaded: &Loaded) -> Option<&Path> {
    let dir = loaded.state_dir().ok()?;
    let _ = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    Some(dir)
}

/// Leases and locks live where the machine forgets them at its next start, and at one place for each user: two places
/// would mean two locks on one id. Where somebody else has taken the name in `/tmp`, the state directory has to do.
fn runtime_dir(loaded: &Loaded) -> PathBuf {
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return PathBuf::from("/run/sandstorm");
    }
    let ours = |path: &Path| {
        std::fs::symlink_metadata(path).map(|found| found.is_dir() && found.uid() == uid.as_raw())
    };
    let named =
        Environment::of_process().get("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let usual = PathBuf::from(format!("/run/user/{}", uid.as_raw()));
    if let Some(dir) = named.into_iter().chain([usual]).find(|dir| ours(dir).unwrap_or(false)) {
        return dir.join("sandstorm");
    }
    let temporary = PathBuf::from(format!("/tmp/sandstorm-{}", uid.as_raw()));
    match (ours(&temporary), state_dir(loaded)) {
        (Ok(false), Some(state)) => state.join("run"),
        _ => temporary,
    }
}
