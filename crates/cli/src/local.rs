//! The embedded engine: launcher, runtime and provider, in that order.

use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use sandstorm_config::{Config, Environment, Loaded};
use sandstorm_engine::{AGENT, LocalConfig, LocalProvider, PoolConfig, SnapshotConfig};
use sandstorm_jail::launcher::resident::{self, ResidentConfig};
use sandstorm_jail::launcher::{self, Abilities, Launcher, LauncherConfig, ZygoteConfig};
use sandstorm_jail::{IdRange, Tree};
use sandstorm_language::{Catalogue, Roots};
use sandstorm_provider::{CreateOptions, Expected, HostMount};
use sandstorm_types::{ByteSize, Enforcement, SandboxSpec, TenantId};

use crate::serve::Home;
use crate::zygotes;

/// A resident launcher that a server found or made, before it had threads.
#[derive(Debug)]
pub(crate) struct Resident {
    launcher: resident::Resident,
    zygotes: Vec<ZygoteConfig>,
}

impl Resident {
    /// Finds the launcher of a state directory or forks one: nothing before this may have started a thread.
    pub(crate) fn start(loaded: &Loaded, home: &Home, uid: Option<u32>) -> anyhow::Result<Self> {
        let config = &loaded.config;
        let mut mount_sources: Vec<PathBuf> =
            config.template.mounts.iter().map(|m| m.source.clone()).collect();
        mount_sources.push(home.layers());
        mount_sources.extend(toolchains(config));
        let zygotes = zygotes::configured(config).unwrap_or_else(|why| {
            tracing::info!(why, "there are no warm interpreters");
            Vec::new()
        });
        let launcher = resident::connect_or_start(&ResidentConfig {
            socket: home.launcher_socket(),
            allowed_uid: uid.unwrap_or_else(|| rustix::process::geteuid().as_raw()),
            launcher: LauncherConfig { zygotes: zygotes.clone(), ..launcher_config(loaded) },
            orphan_after: config.serve.orphan_after,
            mount_sources,
        })
        .context("the launcher could not be started")?;
        Ok(Self { launcher, zygotes })
    }

    /// The engine over this launcher, with every sandbox that an earlier server left.
    pub(crate) async fn provider(self, config: &Config, home: &Home) -> anyhow::Result<Arc<LocalProvider>> {
        let provider = LocalProvider::new(LocalConfig {
            name: "local".to_owned(),
            launcher: self.launcher.socket,
            abilities: self.launcher.abilities,
            resident: Some(home.launcher_socket()),
            journals: Some(home.journals()),
            trees: trees(config),
            zygotes: self.zygotes,
            pool: pool(config),
            snapshots: snapshots(config, home),
        })
        .context("the engine could not be started")?;
        let adopted =
            provider.adopt().await.context("the sandboxes of an earlier server were not taken over")?;
        if !adopted.is_empty() {
            tracing::info!(sandboxes = adopted.len(), "sandboxes of an earlier server taken over");
        }
        keep_ready(config, &provider);
        Ok(Arc::new(provider))
    }
}

fn snapshots(config: &Config, home: &Home) -> Option<SnapshotConfig> {
    let most = config.snapshots.space;
    (most > ByteSize::default()).then(|| SnapshotConfig { folder: home.snapshots(), most })
}

fn pool(config: &Config) -> Option<PoolConfig> {
    let pool = &config.pool;
    // Each holds a block of ids, and those who ask need some.
    let max = usize::try_from(pool.max.min(config.ids.blocks / 2)).unwrap_or(usize::MAX);
    pool.enabled.then_some(PoolConfig { max, memory: pool.memory.as_u64(), max_age: pool.max_age })
}

/// Has ready what the first run of a new server will most likely need: Python with the default limits.
fn keep_ready(config: &Config, provider: &LocalProvider) {
    let Some(python) = zygotes::python(config) else { return };
    let Some(interpreter) = python.programs.values().next().cloned() else { return };
    let same = |path: PathBuf| HostMount { source: path.clone(), target: path };
    let options = CreateOptions {
        mounts: python.mounts.into_iter().map(same).collect(),
        ephemeral: true,
        expects: Some(Expected { interpreter, modules: Vec::new() }),
        ..CreateOptions::default()
    };
    let spec = SandboxSpec {
        limits: config.limits,
        enforcement: config.enforcement.unwrap_or(Enforcement::Strict),
        ..SandboxSpec::default()
    };
    let count = usize::try_from(config.pool.prefill).unwrap_or(usize::MAX);
    provider.keep_ready(TenantId::LOCAL, &spec, &options, count);
}

/// Folders that the toolchains of this machine need beside the host's own.
fn toolchains(config: &Config) -> Vec<PathBuf> {
    let roots = roots(config);
    let found = Catalogue::embedded().iter().filter_map(|language| language.detect(&roots).ok());
    found.flat_map(|toolchain| toolchain.mounts).collect()
}

fn launcher_config(loaded: &Loaded) -> LauncherConfig {
    let config = &loaded.config;
    LauncherConfig {
        ids: IdRange { start: config.ids.start, blocks: config.ids.blocks },
        cgroup_parent: PathBuf::from(config.cgroup_parent.as_deref().unwrap_or("sandstorm")),
        runtime_dir: runtime_dir(loaded),
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
    let config = LocalConfig { trees: trees(config), zygotes, ..forked };
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
