//! The launcher: the one process that makes jails, watches them and takes them down.
//!
//! It is single-threaded and synchronous, and it is forked before its client has any thread. It keeps the lease, the
//! id blocks, the cgroup leaves and a pidfd for each jail, and answers requests on a `SEQPACKET` socket.
//!
//! There are two kinds. The one that [`start`] forks serves one client: when the socket closes it ends every jail,
//! removes what they had on the host, and exits, so that a client that is killed leaves nothing behind. A
//! [`resident`] one outlives its clients, and a new client takes the jails over.

mod answers;
mod birth;
mod capture;
mod clients;
pub mod deputy;
mod disks;
mod door;
mod hello;
mod introduction;
mod molds;
mod networks;
mod protocol;
mod pulse;
mod reclaim;
pub mod resident;
mod rooms;
mod sources;
mod state;
mod strays;
mod surgery;
mod unmounts;
mod walls;
mod ward;
mod watch;
mod zygotes;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::fs::{MemfdFlags, Mode, SealFlags};
use rustix::io::Errno;
use rustix::process::Rlimit;
use sandstorm_sys::fork::Forked;

use clients::Clients;
use molds::Molds;
use networks::Networks;
pub use protocol::{
    Answer, EndCause, Ended, GuestId, JailId, Launched, Refusal, RefusalKind, Request, TransplantReport,
    VERSION,
};
pub use sources::MountSources;
use sources::Sources;
use state::State;
use watch::{Token, Watcher};

use crate::cgroup::{Controller, Hierarchies, Spares};
use crate::error::{JailError, doing};
use crate::identity::IdRange;
use crate::instance::{Instance, private_directory};
use crate::root::{Mounts, Prepared};
use crate::{descriptors, packet};

/// What a launcher needs to know of its host.
#[derive(Debug, Clone)]
pub struct LauncherConfig {
    /// Ids for jails that root makes.
    pub ids: IdRange,
    /// Parent of all our control groups, relative to the root of each hierarchy.
    pub cgroup_parent: PathBuf,
    /// Where leases and locks are; made when needed.
    pub runtime_dir: PathBuf,
    /// Where files are made for writable space on disk. They have no names.
    pub space_dir: PathBuf,
    /// The program that is the mold of all PID 1s, and so the agent.
    pub agent: &'static [u8],
    /// Warm interpreters that may be had here. Fixed for the life of the launcher: its client only names them.
    pub zygotes: Vec<ZygoteConfig>,
}

/// A kind of warm interpreter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZygoteConfig {
    /// What clients call it.
    pub name: String,
    /// Owned by root, writable by nobody else, and in the host template.
    pub interpreter: PathBuf,
    /// Modules to import before the first fork; what is not installed is left out.
    pub preload: Vec<String>,
    pub known: Vec<KnownScript>,
}

/// A script to begin before the first fork. All but its last statement, which may do no more than define, is run in the
/// zygote; a guest that is given just these bytes under this name goes on from there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownScript {
    /// Where jails have it.
    pub path: String,
    pub text: &'static [u8],
}

/// A forked launcher, seen from its client.
#[derive(Debug)]
pub struct Launcher {
    /// For [`Request`]s and [`Answer`]s. Closing it ends the launcher and all its jails.
    pub socket: OwnedFd,
    pub abilities: Abilities,
    pid: i32,
}

/// What a launcher can do on this host beside making jails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Abilities {
    /// It can make control groups.
    pub control_groups: bool,
    /// It can stop everything in a jail.
    pub freezer: bool,
    /// It can put guest interpreters into joinable jails.
    pub zygotes: bool,
    /// It can put the writable space of jails on disk.
    pub disk_space: bool,
}

impl Abilities {
    /// Looks at this host as this user.
    pub fn detect(config: &LauncherConfig) -> Self {
        let hierarchies = Hierarchies::detect();
        let control_groups = hierarchies.is_writable(&config.cgroup_parent);
        Self {
            control_groups,
            freezer: control_groups && hierarchies.has(Controller::Freezer),
            zygotes: zygote_obstacle(&config.zygotes).is_none(),
            disk_space: crate::image::obstacle(&config.space_dir, may_mount()).is_none(),
        }
    }
}

/// Why no guest interpreter can be had by this user on this host; `None`: nothing is in the way.
pub fn zygote_obstacle(zygotes: &[ZygoteConfig]) -> Option<String> {
    zygotes::obstacle(zygotes, may_mount())
}

impl Launcher {
    /// Waits until the launcher is gone. Close the socket first.
    pub fn join(pid: i32) -> io::Result<()> {
        sandstorm_sys::process::reap(pid).map(drop)
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }
}

/// Forks the launcher. Call it in `main`, before any thread exists.
pub fn start(config: LauncherConfig) -> Result<Launcher, JailError> {
    let (ours, theirs) = packet::pair().map_err(doing("make the launcher's socket"))?;
    match sandstorm_sys::fork::fork().map_err(doing("fork the launcher"))? {
        Forked::Parent { pid } => Ok(Launcher { socket: ours, abilities: Abilities::detect(&config), pid }),
        Forked::Child => {
            drop(ours);
            sandstorm_sys::fork::exit_now(match serve(theirs, config) {
                Ok(()) => 0,
                Err(_) => 1,
            })
        }
    }
}

/// Serves one client until it closes its socket.
pub fn serve(socket: OwnedFd, config: LauncherConfig) -> Result<(), JailError> {
    match Workshop::prepare(config, None) {
        Ok(workshop) => {
            let watcher = Watcher::new().map_err(doing("make the list of what to wait for"))?;
            let client = watcher.readable(socket, Token::Client).map_err(doing("wait for the client"))?;
            State::new(Clients::Only(client), workshop, watcher, None).run()
        }
        Err(e) => refuse_all(&socket, e),
    }
}

/// A launcher that cannot work on this host says why to whoever asks, until nobody asks any more.
fn refuse_all(socket: &OwnedFd, error: JailError) -> Result<(), JailError> {
    while let Some((request, _)) =
        packet::receive::<Request>(socket.as_fd()).map_err(doing("read a request"))?
    {
        let answer = match request {
            Request::Launch { spec, .. } => {
                Answer::Refused { name: spec.name.clone(), refusal: Refusal::from(&error) }
            }
            Request::Count { name } => Answer::Counted { name, counters: None },
            _ => continue,
        };
        // A client that has gone reads no answer, and the next read says so.
        let _ = packet::send(socket.as_fd(), &answer, &[]);
    }
    Err(error)
}

/// Shared by all jails of this launcher.
struct Workshop {
    config: LauncherConfig,
    hierarchies: Hierarchies,
    /// What PID 1s are made from.
    molds: Molds,
    /// Of descriptors, for everything that is started from here.
    descriptor_limit: Rlimit,
    namespaces: Vec<u64>,
    /// Whether this process may mount in its own mount namespace.
    may_mount: bool,
    /// Networks of jails that have none, where this process may make them.
    networks: Option<Networks>,
    /// What a jail may show of the host. `None`: the client has the same rights as this process.
    sources: Option<Sources>,
    /// What is mounted on this host.
    mounts: Option<Mounts>,
    /// An empty directory, for views of trees.
    empty: Option<OwnedFd>,
    /// Roots that several jails have in common, where this process may make them.
    prepared: Prepared,
    /// Groups that wait for a jail.
    spares: Spares,
    /// The block of ids to try first.
    next_ids: u32,
    /// Exists once the first jail needed groups.
    instance: Option<Instance>,
}

impl Workshop {
    fn prepare(config: LauncherConfig, sources: Option<Sources>) -> Result<Self, JailError> {
        leave_terminal();
        let descriptor_limit = descriptors::allow_most();
        // Nobody inside may change groups, so they are given up here, where it is allowed.
        if rustix::process::geteuid().is_root() {
            rustix::thread::set_thread_groups(&[]).map_err(doing("give up supplementary groups"))?;
        }
        let agent = sealed(config.agent).map_err(doing("seal the agent program"))?;
        Ok(Self {
            hierarchies: Hierarchies::detect(),
            molds: Molds::new(agent, descriptor_limit, may_mount()),
            descriptor_limit,
            namespaces: crate::report::namespaces().map_err(doing("look at our own namespaces"))?,
            mounts: Mounts::new().ok(),
            empty: if may_mount() {
                crate::instance::empty_directory(&config.runtime_dir).ok()
            } else {
                None
            },
            prepared: Prepared::default(),
            spares: Spares::default(),
            next_ids: 0,
            instance: None,
            may_mount: may_mount(),
            networks: if may_mount() { Networks::new().ok() } else { None },
            sources,
            config,
        })
    }

    /// Why jails cannot have their writable space on disk.
    fn disk_obstacle(&self) -> Option<String> {
        crate::image::obstacle(&self.config.space_dir, self.may_mount)
    }

    /// Whether this user can make control groups.
    fn may_group(&self) -> bool {
        self.instance.is_some() || self.hierarchies.is_writable(&self.config.cgroup_parent)
    }

    /// The parent of this launcher's groups; takes the lease when it is first needed.
    fn group_parent(&mut self) -> Result<PathBuf, JailError> {
        if self.instance.is_none() {
            private_directory(&self.config.runtime_dir)?;
            self.instance = Some(Instance::begin(&self.config.runtime_dir, &self.config.cgroup_parent)?);
        }
        let name = self.instance.as_ref().map(Instance::name).unwrap_or_default();
        Ok(self.config.cgroup_parent.join(name))
    }
}

/// Ctrl-C in the client's terminal is the client's business; it ends us by closing the socket, after which there is
/// still work to do here.
fn leave_terminal() {
    let _ = rustix::process::setsid();
    sandstorm_sys::process::ignore_broken_pipes();
}

/// How soon the kernel ends this process when memory runs out.
pub(crate) fn memory_rank() -> i32 {
    let score = std::fs::read_to_string("/proc/self/oom_score_adj");
    score.ok().and_then(|score| score.trim().parse().ok()).unwrap_or(0)
}

fn may_mount() -> bool {
    use rustix::thread::{CapabilitySet, capabilities};
    rustix::process::geteuid().is_root()
        && capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Lets this process have as many descriptors as its user may give it: each sandbox needs some in its client. Payloads have
/// a limit of their own.
pub fn allow_descriptors() {
    descriptors::allow_all();
}

/// A copy of the agent that nobody can change any more, whoever gets hold of it.
fn sealed(program: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels since 6.3 want to be told that it will be executed; older ones do not know the flag.
    let memfd = match rustix::fs::memfd_create("sandstorm-agent", flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => rustix::fs::memfd_create("sandstorm-agent", flags)?,
        other => other?,
    };
    let mut file = File::from(memfd);
    file.write_all(program)?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(0o511))?;
    rustix::fs::fcntl_add_seals(
        &file,
        SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE,
    )?;
    Ok(file.into())
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
