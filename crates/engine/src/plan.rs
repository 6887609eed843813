//! From what a caller wants to what the launcher builds.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sandstorm_jail::template::{self, Additions};
use sandstorm_jail::{JailLimits, JailSpec, Network, OnMemory, RootSpec, Strictness, Tree};
use sandstorm_provider::{CreateOptions, HostMount};
use sandstorm_types::{Enforcement, NetworkPolicy, OnEnd, SandboxSpec, Space};

/// How long what was seen of this machine holds: it changes when somebody installs something.
const HOLDS: Duration = Duration::from_secs(10);

/// How many kinds are remembered. Most callers ask for the same few.
const MOST_KINDS: usize = 32;

/// Plans jails on this machine.
#[derive(Debug)]
pub(crate) struct Planner {
    /// Mounted in every sandbox beside the host's own.
    trees: Vec<Tree>,
    /// Whether interpreters may be put into jails.
    joinable: bool,
    /// Whether programs have the strict system-call filter.
    strict_filter: bool,
    seen: Mutex<Option<Seen>>,
}

/// What was seen of this machine, and the kinds of jails that were planned from it.
#[derive(Debug)]
struct Seen {
    at: Instant,
    /// The root without what differs between sandboxes.
    root: RootSpec,
    kinds: Vec<(Wishes, Arc<JailKind>)>,
}

/// What of a sandbox decides its kind.
#[derive(Debug, PartialEq, Eq)]
struct Wishes {
    limits: JailLimits,
    scratch_bytes: u64,
    scratch_inodes: u64,
    scratch_on_disk: bool,
    network: Network,
    strictness: Strictness,
    mounts: Vec<HostMount>,
}

/// A jail without what is said when somebody takes it: its name, its lifetime, what follows when memory runs out. It is
/// long, and each request compares and looks it up several times: so requests share it, and it is hashed once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct JailKind {
    hash: u64,
    jail: JailSpec,
}

impl JailKind {
    fn new(jail: JailSpec) -> Self {
        let mut hasher = DefaultHasher::new();
        jail.hash(&mut hasher);
        Self { hash: hasher.finish(), jail }
    }

    /// A jail of this kind. The stricter end is the one that it is made with: a sandbox for one run does not wait until the
    /// launcher has heard otherwise.
    pub(crate) fn jail(&self, name: String) -> JailSpec {
        JailSpec { name, ..self.jail.clone() }
    }
}

impl Hash for JailKind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Planner {
    pub(crate) fn new(trees: Vec<Tree>, joinable: bool, strict_filter: bool) -> Self {
        Self { trees, joinable, strict_filter, seen: Mutex::default() }
    }

    /// The kind of jail that this sandbox needs.
    pub(crate) fn kind(&self, spec: &SandboxSpec, options: &CreateOptions) -> Arc<JailKind> {
        let wishes = Wishes::of(spec, options);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = look(&mut seen);
        if let Some((_, kind)) = seen.kinds.iter().find(|(known, _)| *known == wishes) {
            return Arc::clone(kind);
        }
        let kind = Arc::new(JailKind::new(self.jail(seen.root.clone(), &wishes)));
        if seen.kinds.len() >= MOST_KINDS {
            seen.kinds.remove(0);
        }
        seen.kinds.push((wishes, Arc::clone(&kind)));
        kind
    }

    /// Whether nothing is mounted in or above the places where programs write.
    pub(crate) fn leaves_own_places(&self, options: &CreateOptions) -> bool {
        let trees = self.trees.iter().map(|tree| &tree.target);
        let touches = |target: &PathBuf| {
            ["/workspace", "/home/user"]
                .iter()
                .any(|place| target.starts_with(place) || Path::new(place).starts_with(target))
        };
        !trees.chain(options.mounts.iter().map(|mount| &mount.target)).any(touches)
    }

    fn jail(&self, mut root: RootSpec, wishes: &Wishes) -> JailSpec {
        let mounts = wishes.mounts.iter();
        let mounts = mounts.map(|m| Tree { source: m.source.clone(), target: m.target.clone() });
        root.trees.extend(self.trees.iter().cloned().chain(mounts));
        (root.scratch_bytes, root.scratch_inodes) = (wishes.scratch_bytes, wishes.scratch_inodes);
        root.scratch_on_disk = wishes.scratch_on_disk;
        JailSpec {
            name: String::new(),
            hostname: "sandbox".to_owned(),
            root,
            limits: wishes.limits.clone(),
            network: wishes.network,
            strictness: wishes.strictness,
            on_memory: OnMemory::EndAll,
            lifetime: None,
            strict_filter: self.strict_filter,
            joinable: self.joinable,
        }
    }
}

/// Looks at this machine, unless that was done lately. Kinds stay what they were while it does.
fn look(seen: &mut Option<Seen>) -> &mut Seen {
    if seen.as_ref().is_none_or(|seen| seen.at.elapsed() >= HOLDS) {
        // Any sandbox may get a network later, or be one that was made before anybody knew whether it has one.
        // Until there is a network the address leads nowhere, and look-ups fail at once.
        let name_server = Some(sandstorm_jail::network::NAMESERVER.into());
        let root = template::host(0, 0, Additions { trees: Vec::new(), name_server });
        let same = seen.take().filter(|seen| seen.root == root);
        let kinds = same.map(|seen| seen.kinds).unwrap_or_default();
        *seen = Some(Seen { at: Instant::now(), root, kinds });
    }
    seen.as_mut().expect("it was just put there")
}

impl Wishes {
    fn of(spec: &SandboxSpec, options: &CreateOptions) -> Self {
        let limits = &spec.limits;
        Self {
            limits: JailLimits {
                memory_bytes: limits.memory.as_u64(),
                // PID 1 and a file helper beside it are ours, not the caller's.
                processes: u64::from(limits.processes) + 2,
                cpu_milli: u64::from(limits.cpus.milli()),
                cpu_time: limits.cpu_time,
                open_files: u64::from(limits.open_files),
            },
            scratch_bytes: limits.disk.as_u64(),
            scratch_inodes: limits.inodes,
            scratch_on_disk: spec.space == Space::Disk,
            network: match spec.network {
                NetworkPolicy::None => Network::Loopback,
                NetworkPolicy::Allow(_) | NetworkPolicy::Open | NetworkPolicy::Filter(_) => Network::Captured,
            },
            strictness: match spec.enforcement {
                Enforcement::Strict => Strictness::Strict,
                Enforcement::BestEffort => Strictness::BestEffort,
            },
            mounts: options.mounts.clone(),
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
