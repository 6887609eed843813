//! What a jail is made of, decided in full before any process exists. Nothing here is interpreted again later.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A whole jail.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JailSpec {
    /// Unique among living jails: names its group on the unified tree, and all others that are its own.
    pub name: String,
    pub hostname: String,
    pub root: RootSpec,
    pub limits: JailLimits,
    pub network: Network,
    /// What to do about a limit or wall that this host cannot give.
    pub strictness: Strictness,
    /// What follows when the kernel ends a process because the jail's memory is used up.
    pub on_memory: OnMemory,
    /// The launcher ends the jail after this time, whoever else forgot it.
    pub lifetime: Option<Duration>,
    /// The seccomp profile of the payload: the compatible one, or the one without locks and cache probes.
    pub strict_filter: bool,
    /// Guest interpreters may be put into it by a zygote.
    pub joinable: bool,
}

/// The root file system.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RootSpec {
    /// Trees and files of the host, mounted read-only with everything mounted below them.
    pub trees: Vec<Tree>,
    /// Symbolic links: `(where, target)`.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Files written into the root before it becomes read-only: `(where, content)`. Those in a folder `bin` are programs.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// Size of the one writable file system behind `/workspace`, `/home/user`, `/tmp`, `/dev/shm` and `/root`.
    pub scratch_bytes: u64,
    pub scratch_inodes: u64,
    /// It lies on the host's disk, not in memory. Only a launcher that is root makes such.
    pub scratch_on_disk: bool,
    /// Mounted like `trees` but left out of the Landlock rules. A real jail has none: it is how the tests show that
    /// the second wall stands when the first has a hole.
    pub exposed: Vec<Tree>,
}

/// A piece of the host's file system.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tree {
    pub source: PathBuf,
    pub target: PathBuf,
}

impl RootSpec {
    /// The most memory that a full writable file system takes; none if it is on disk, from where the kernel only caches what it
    /// can let go of. Of one in memory: its pages, what finds them, and what the kernel keeps of each
    /// file and name, which is some 1,200 bytes where names are as long as they can be.
    pub(crate) fn scratch_memory(&self) -> u64 {
        const OF_A_FILE: u64 = 1536;
        if self.scratch_on_disk {
            return 0;
        }
        let pages = self.scratch_bytes.saturating_add(self.scratch_bytes / 64);
        pages.saturating_add(self.scratch_inodes.saturating_mul(OF_A_FILE))
    }
}

/// Bounds that the kernel enforces on all processes of the jail together, and on each.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JailLimits {
    /// Of its programs. What the writable file system holds comes on top of it.
    pub memory_bytes: u64,
    pub processes: u64,
    /// Thousandths of a processor.
    pub cpu_milli: u64,
    /// Processor time of all processes together.
    pub cpu_time: Option<Duration>,
    pub open_files: u64,
}

/// How the jail meets the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Network {
    /// A namespace with nothing but loopback.
    Loopback,
    /// Loopback, and every other connection handed to sockets that the host holds.
    Captured,
}

/// What follows when the kernel ends a process because the jail's memory is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OnMemory {
    /// The jail ends: half a run is no run.
    EndAll,
    /// Nothing: the process is gone, and the jail lives on unless it was PID 1.
    EndProcess,
}

/// What happens when a wall or limit cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Strictness {
    /// The jail is refused with the reason.
    Strict,
    /// The jail runs and its report names what is missing.
    BestEffort,
}

/// The payload's ids inside the jail.
pub const PAYLOAD_ID: u32 = 1000;

/// Where the writable space shows: `(path, mode, no program may be started from it)`.
pub(crate) const WRITABLE: [(&str, u32, bool); 4] = [
    ("/workspace", 0o755, false),
    ("/home/user", 0o755, false),
    ("/tmp", 0o1777, false),
    ("/dev/shm", 0o1777, true),
];

/// The home of root inside, part of the same space: root's own to write, and where nothing of the host shows below it closed to
/// everybody else.
pub(crate) const ROOT_HOME: &str = "/root";
