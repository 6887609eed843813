//! Where a case happens: a launcher's address, journals, and the hosts that come and go.

use std::cell::{Cell, RefCell};
use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use sandstorm_engine::{AGENT, DiskSpaceConfig, LocalConfig, LocalProvider, PoolConfig, SnapshotConfig};
use sandstorm_jail::IdRange;
use sandstorm_jail::launcher::resident::{self, Resident, ResidentConfig};
use sandstorm_jail::launcher::{LauncherConfig, MountSources, ZygoteConfig};
use sandstorm_provider::{
    AttachFrom, Collected, CreateOptions, ExecRequest, OpContext, Provider, ProviderExt,
};
use sandstorm_sys::fork::{Forked, exit_now, fork};
use sandstorm_types::{ByteSize, Enforcement, ExecId, SandboxId, SandboxSpec, TenantId};

/// How long anything may take that has to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How long a whole case may take. The suite for all providers is one.
const WHOLE_CASE: Duration = Duration::from_secs(300);

/// What a host does.
pub(crate) type Life = for<'a> fn(&'a Host) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// `life!(|host| …)`: an asynchronous life.
macro_rules! life {
    (|$host:ident| $body:expr) => {{
        fn life(host: &$crate::place::Host) -> std::pin::Pin<Box<dyn Future<Output = ()> + '_>> {
            let $host = host;
            Box::pin(async move { $body })
        }
        life as $crate::place::Life
    }};
}

pub(crate) use life;

/// The interpreter of the system.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

pub(crate) struct Place {
    dir: tempfile::TempDir,
    /// How long the launcher waits for a host.
    pub(crate) orphan_after: Cell<Duration>,
    /// Whether hosts make sandboxes ahead.
    pub(crate) pool: Cell<Option<PoolConfig>>,
    /// Whether the launcher has warm interpreters.
    pub(crate) zygotes: Cell<bool>,
    /// What jails may show beside layers, as whoever connects next says.
    pub(crate) patterns: RefCell<Vec<String>>,
    /// How much sandboxes may have of the disk.
    pub(crate) disk_space: RefCell<Option<DiskSpaceConfig>>,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            orphan_after: Cell::new(WHOLE_CASE),
            pool: Cell::new(None),
            zygotes: Cell::new(false),
            patterns: RefCell::default(),
            disk_space: RefCell::default(),
        }
    }

    /// Python without anything loaded, where this place has warm interpreters.
    fn zygotes(&self) -> Vec<ZygoteConfig> {
        let python = || ZygoteConfig {
            name: "python".to_owned(),
            interpreter: PYTHON.into(),
            preload: Vec::new(),
            known: Vec::new(),
        };
        self.zygotes.get().then(python).into_iter().collect()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn config(&self) -> ResidentConfig {
        ResidentConfig {
            socket: self.path("launcher.sock"),
            allowed_uid: rustix::process::geteuid().as_raw(),
            launcher: LauncherConfig {
                ids: IdRange { start: 2_013_265_920, blocks: 4000 },
                cgroup_parent: "sandstorm".into(),
                runtime_dir: self.path("run"),
                space_dir: "/var/tmp".into(),
                agent: AGENT,
                zygotes: self.zygotes(),
            },
            orphan_after: self.orphan_after.get(),
            mount_sources: MountSources {
                trees: vec![self.path("layers")],
                patterns: self.patterns.borrow().clone(),
            },
        }
    }

    pub(crate) fn connect(&self) -> Resident {
        resident::connect_or_start(&self.config()).unwrap()
    }

    /// A host in a process of its own, which lives until it is killed.
    pub(crate) fn fork_host(&self, life: Life) -> Pid {
        match fork().unwrap() {
            Forked::Parent { pid } => Pid::from_raw(pid).unwrap(),
            Forked::Child => {
                let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    self.live(|host| {
                        Box::pin(async move {
                            life(host).await;
                            std::future::pending::<()>().await;
                        })
                    });
                }));
                exit_now(if lived.is_ok() { 0 } else { 1 })
            }
        }
    }

    /// A host in this process. Nothing can be forked afterwards.
    pub(crate) fn live<T>(
        &self,
        life: impl for<'a> FnOnce(&'a Host) -> Pin<Box<dyn Future<Output = T> + 'a>>,
    ) -> T {
        let resident = self.connect();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let launcher = resident.pid;
            let connection = resident.socket.try_clone().unwrap();
            let provider = LocalProvider::new(LocalConfig {
                name: "local".to_owned(),
                region: None,
                denied: Vec::new(),
                nat64: Vec::new(),
                launcher: resident.socket,
                abilities: resident.abilities,
                resident: Some(self.path("launcher.sock")),
                deputy: None,
                journals: Some(self.path("journals")),
                trees: Vec::new(),
                zygotes: self.zygotes(),
                pool: self.pool.get(),
                strict_filter: false,
                snapshots: Some(SnapshotConfig { folder: self.path("snapshots"), most: ByteSize::gib(1) }),
                disk_space: self.disk_space.borrow().clone(),
            });
            let host = Host {
                provider: Arc::new(provider.unwrap()),
                cx: OpContext::new(TenantId::LOCAL),
                notes: self.path("notes"),
                launcher,
                groups: resident.abilities.control_groups,
                connection,
            };
            let lived = tokio::time::timeout(WHOLE_CASE, life(&host)).await;
            lived.expect("the case takes too long")
        })
    }

    /// Waits for what a host notes.
    pub(crate) fn note(&self, name: &str) -> String {
        let give_up = Instant::now() + WHOLE_CASE;
        loop {
            match fs::read_to_string(self.path("notes").join(name)) {
                Ok(note) => return note,
                Err(_) => assert!(Instant::now() < give_up, "there is no note {name}"),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the launcher with all that it has, and looks whether anything is left.
    pub(crate) fn clear(&self) {
        if let Ok(resident) = resident::connect(&self.path("launcher.sock")) {
            use std::os::fd::AsFd;
            sandstorm_jail::packet::send(
                resident.socket.as_fd(),
                &sandstorm_jail::launcher::Request::Shutdown,
                &[],
            )
            .unwrap();
        }
        let give_up = Instant::now() + PATIENCE;
        while self.path("launcher.sock").exists() {
            assert!(Instant::now() < give_up, "the launcher does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Waits, outside of any host, until something is so.
pub(crate) fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < give_up, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The same in a host.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < give_up, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Kills a process as the kernel would when memory runs out.
pub(crate) fn kill(pid: Pid) {
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    let _ = sandstorm_sys::process::reap(pid.as_raw_nonzero().get());
}

pub(crate) struct Host {
    pub(crate) provider: Arc<LocalProvider>,
    pub(crate) cx: OpContext,
    notes: PathBuf,
    pub(crate) launcher: u32,
    /// Whether processes are counted and found by their control groups.
    pub(crate) groups: bool,
    /// Another hand on the connection to the launcher.
    pub(crate) connection: std::os::fd::OwnedFd,
}

impl Host {
    /// Leaves a note for other processes; it is there as a whole or not at all.
    pub(crate) fn tell(&self, name: &str, note: impl ToString) {
        fs::create_dir_all(&self.notes).unwrap();
        let beside = self.notes.join(format!("{name}.new"));
        fs::write(&beside, note.to_string()).unwrap();
        fs::rename(beside, self.notes.join(name)).unwrap();
    }

    pub(crate) fn told(&self, name: &str) -> String {
        fs::read_to_string(self.notes.join(name)).unwrap()
    }

    pub(crate) async fn sandbox(&self) -> SandboxId {
        let spec = SandboxSpec { enforcement: Enforcement::BestEffort, ..SandboxSpec::default() };
        self.provider.create(&self.cx, &spec, CreateOptions::default()).await.unwrap().id
    }

    pub(crate) async fn background(&self, sandbox: &SandboxId, line: &str) -> ExecId {
        let mut request = ExecRequest::shell(line);
        (request.background, request.lasting) = (true, true);
        self.provider.exec(&self.cx, sandbox, request).await.unwrap().id
    }

    pub(crate) async fn output(&self, sandbox: &SandboxId, line: &str) -> String {
        let done = self.provider.exec_collect(&self.cx, sandbox, ExecRequest::shell(line)).await.unwrap();
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// Everything that a program wrote, from its start to its end.
    pub(crate) async fn whole(&self, exec: &ExecId) -> Collected {
        self.provider.attach(&self.cx, exec, AttachFrom::START).await.unwrap().collect().await.unwrap()
    }

    /// Processes of a sandbox on this machine, by their control groups.
    pub(crate) fn processes(&self, sandbox: &SandboxId) -> Vec<Pid> {
        let name = self.provider.jail(sandbox).unwrap_or_else(|| sandbox.bare());
        let ours = |pid: &str| {
            fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|groups| groups.contains(&name))
        };
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|pid| ours(pid)).filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
    }
}
