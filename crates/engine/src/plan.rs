//! From what a caller wants to what the launcher builds.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sandstorm_jail::template::{self, Additions};
use sandstorm_jail::{JailLimits, JailSpec, Network, OnMemory, RootSpec, Strictness, Tree};
use sandstorm_provider::CreateOptions;
use sandstorm_types::{Enforcement, NetworkPolicy, OnEnd, SandboxSpec};

/// How long what was seen of this machine holds: it changes when somebody installs something.
const HOLDS: Duration = Duration::from_secs(10);

/// Plans jails on this machine.
#[derive(Debug)]
pub(crate) struct Planner {
    /// Mounted in every sandbox beside the host's own.
    trees: Vec<Tree>,
    /// Whether interpreters may be put into jails.
    joinable: bool,
    /// The root without what differs between sandboxes.
    root: Mutex<Option<(Instant, RootSpec)>>,
}

impl Planner {
    pub(crate) fn new(trees: Vec<Tree>, joinable: bool) -> Self {
        Self { trees, joinable, root: Mutex::default() }
    }

    /// A jail for this sandbox. The lifetime of one that outlives this process can be extended, so it is left to whoever
    /// keeps its clock; without anybody the launcher ends it as an orphan.
    pub(crate) fn jail(&self, spec: &SandboxSpec, options: &CreateOptions, kept: bool) -> JailSpec {
        let limits = &spec.limits;
        let mut root = self.root();
        let mounts =
            options.mounts.iter().map(|m| Tree { source: m.source.clone(), target: m.target.clone() });
        root.trees.extend(self.trees.iter().cloned().chain(mounts));
        (root.scratch_bytes, root.scratch_inodes) = (limits.disk.as_u64(), limits.inodes);
        JailSpec {
            name: options.id.bare(),
            hostname: "sandbox".to_owned(),
            root,
            limits: JailLimits {
                memory_bytes: limits.memory.as_u64(),
                // PID 1 and a file helper beside it are ours, not the caller's.
                processes: u64::from(limits.processes) + 2,
                cpu_milli: u64::from(limits.cpus.milli()),
                cpu_time: limits.cpu_time,
                open_files: u64::from(limits.open_files),
            },
            network: match spec.network {
                NetworkPolicy::None => Network::Loopback,
                NetworkPolicy::Allow(_) | NetworkPolicy::Open => Network::Captured,
            },
            strictness: match spec.enforcement {
                Enforcement::Strict => Strictness::Strict,
                Enforcement::BestEffort => Strictness::BestEffort,
            },
            on_memory: on_memory(options.ephemeral),
            lifetime: if kept { None } else { lifetime(spec) },
            strict_filter: false,
            joinable: self.joinable,
        }
    }

    fn root(&self) -> RootSpec {
        let mut known = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((seen, root)) if seen.elapsed() < HOLDS => root.clone(),
            _ => {
                // Any sandbox may get a network later, or be one that was made before anybody knew whether it has one.
                // Until there is a network the address leads nowhere, and look-ups fail at once.
                let name_server = Some(sandstorm_jail::network::NAMESERVER.into());
                let root = template::host(0, 0, Additions { trees: Vec::new(), name_server });
                *known = Some((Instant::now(), root.clone()));
                root
            }
        }
    }
}

/// Where one program after the other runs, the end of one is not the end of the others.
pub(crate) fn on_memory(ephemeral: bool) -> OnMemory {
    if ephemeral { OnMemory::EndAll } else { OnMemory::EndProcess }
}

/// The launcher's own clock is the backstop of a lifetime that ends in deletion.
pub(crate) fn lifetime(spec: &SandboxSpec) -> Option<Duration> {
    (spec.lifetime.then == OnEnd::Delete).then(|| spec.lifetime.after.saturating_add(Duration::from_secs(1)))
}
