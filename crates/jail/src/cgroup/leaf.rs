//! The groups of one jail.

mod reuse;
mod space;

use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::EventfdFlags;

use crate::cgroup::counters::keyed;
use crate::cgroup::gauge::Gauges;
use crate::cgroup::meter::{Home, Meter, PROCESS_REFUSALS, all_cpu_time, memory_files};
use crate::cgroup::{Controller, Counters, Hierarchies};
use crate::error::{JailError, doing};
use crate::spec::JailLimits;

/// Scheduler period. Short enough that a throttled jail stays responsive.
const PERIOD_MICROSECONDS: u64 = 100_000;

/// The usual share of processors and thirty-two times that, in the words of v1 and of v2.
const SHARES: [(&str, [&str; 2]); 2] = [("cpu.shares", ["1024", "32768"]), ("cpu.weight", ["100", "3200"])];

/// The groups of one jail. Dropping it does not remove them: that is [`Leaf::remove`], once they are empty. Its files are
/// opened when they are first needed and stay open.
#[derive(Debug)]
pub(crate) struct Leaf {
    /// The leaf on the unified tree and an open descriptor of it, for birth and for the kill switch.
    unified: Option<(PathBuf, OwnedFd)>,
    v1: BTreeMap<Controller, PathBuf>,
    /// Where each controller's files are: one of the above.
    homes: BTreeMap<Controller, PathBuf>,
    /// Limits that could not be set, with the reason.
    missing: Vec<(&'static str, String)>,
    /// What was written.
    limits: JailLimits,
    /// Memory that the writable file system may take beside what programs may.
    space: u64,
    /// The least that it was lately narrowed to.
    narrowed: Cell<Option<u64>>,
    was_narrowed: Cell<bool>,
    gauges: Gauges,
    entrances: OnceCell<Vec<OwnedFd>>,
    kill_switch: OnceCell<File>,
    alarm: OnceCell<Alarm>,
    /// Processor time of jails that had it before.
    used_before: Duration,
    was_frozen: Cell<bool>,
    /// It may use swap while it is frozen.
    may_swap: Cell<bool>,
    /// Other jails may have its v1 groups afterwards.
    lasts: bool,
}

impl Leaf {
    /// Makes the groups below `parent` (relative, such as `sandstorm/<instance>`) and writes every limit. What cannot be
    /// had is in [`Leaf::missing`]. `space`: memory that its writable file system may take.
    pub(crate) fn create(
        hierarchies: &Hierarchies,
        parent: &Path,
        name: &str,
        limits: &JailLimits,
        space: u64,
    ) -> Self {
        let mut leaf = Self::nowhere(limits, space);
        let path = parent.join(name);
        leaf.make(hierarchies, &path, &path, limits);
        leaf
    }

    fn nowhere(limits: &JailLimits, space: u64) -> Self {
        Self {
            unified: None,
            v1: BTreeMap::new(),
            homes: BTreeMap::new(),
            missing: Vec::new(),
            limits: limits.clone(),
            space,
            narrowed: Cell::new(None),
            was_narrowed: Cell::new(false),
            gauges: Gauges::default(),
            entrances: OnceCell::new(),
            kill_switch: OnceCell::new(),
            alarm: OnceCell::new(),
            used_before: Duration::ZERO,
            was_frozen: Cell::new(false),
            may_swap: Cell::new(false),
            lasts: false,
        }
    }

    /// `unified`: where it is on the unified tree, `path`: on all others.
    fn make(&mut self, hierarchies: &Hierarchies, unified: &Path, path: &Path, limits: &JailLimits) {
        self.make_unified(hierarchies, unified);
        self.make_v1(hierarchies, path);
        self.limit_memory(self.most_memory());
        self.limit("processes", Controller::Processes, &[("pids.max", limits.processes.to_string())]);
        self.limit_cpu(limits.cpu_milli);
        if !self.homes.contains_key(&Controller::CpuAccounting) && limits.cpu_time.is_some() {
            self.missing.push(("cpu_time", "no group that counts processor time could be made".to_owned()));
        }
    }

    fn make_v1(&mut self, hierarchies: &Hierarchies, path: &Path) {
        // Each process has to be moved into each of them.
        let needs_freezer = self.unified_freezer().is_none();
        for (controller, mount) in &hierarchies.on_v1 {
            if *controller == Controller::Freezer && !needs_freezer {
                continue;
            }
            let dir = mount.join(path);
            if create_directory(&dir).is_ok() {
                self.v1.insert(*controller, dir.clone());
                self.homes.insert(*controller, dir);
            }
        }
    }

    fn make_unified(&mut self, hierarchies: &Hierarchies, path: &Path) {
        let Some(mount) = &hierarchies.unified else { return };
        enable_controllers(hierarchies, mount, path);
        let dir = mount.join(path);
        if create_directory(&dir).is_ok()
            && let Ok(fd) = open_directory(&dir)
        {
            let implied = [Controller::CpuAccounting, Controller::Freezer];
            for controller in hierarchies.on_unified.iter().copied().chain(implied) {
                if !self.v1.contains_key(&controller) {
                    self.homes.insert(controller, dir.clone());
                }
            }
            // The jail may not grow groups of its own.
            let _ = fs::write(dir.join("cgroup.max.descendants"), "0");
            self.unified = Some((dir, fd));
        }
    }

    fn limit_memory(&mut self, bytes: u64) {
        let bytes = bytes.to_string();
        if self.v1.contains_key(&Controller::Memory) {
            self.limit("memory", Controller::Memory, &[("memory.limit_in_bytes", bytes.clone())]);
            self.limit_swap("memory.memsw.limit_in_bytes", &bytes);
        } else {
            self.limit("memory", Controller::Memory, &[("memory.max", bytes)]);
            self.limit_swap("memory.swap.max", "0");
            // What goes to zswap has a slot of swap as well, so the limit above covers it where this one is not known.
            if let Some(dir) = self.homes.get(&Controller::Memory) {
                let _ = fs::write(dir.join("memory.zswap.max"), "0");
            }
        }
    }

    /// Without a limit on swap the limit on memory only says how much of it is in memory.
    fn limit_swap(&mut self, file: &str, most: &str) {
        let Some(dir) = self.homes.get(&Controller::Memory) else { return };
        let reason = match fs::write(dir.join(file), most) {
            Ok(()) => None,
            // Without swap accounting the file does not exist; a host without swap needs no limit on it.
            Err(e) if e.kind() == io::ErrorKind::NotFound && !host_swaps() => None,
            Err(e) => {
                Some(format!("{file}: {e}; swap is not limited: switch it off, or boot with swapaccount=1"))
            }
        };
        if let (Some(reason), true) = (reason, self.missing.iter().all(|(name, _)| *name != "memory")) {
            self.missing.push(("memory", reason));
        }
    }

    fn limit_cpu(&mut self, milli: u64) {
        let quota = milli.saturating_mul(PERIOD_MICROSECONDS) / 1000;
        if self.v1.contains_key(&Controller::Cpu) {
            let period = ("cpu.cfs_period_us", PERIOD_MICROSECONDS.to_string());
            self.limit("cpus", Controller::Cpu, &[period, ("cpu.cfs_quota_us", quota.to_string())]);
        } else {
            self.limit("cpus", Controller::Cpu, &[("cpu.max", format!("{quota} {PERIOD_MICROSECONDS}"))]);
        }
    }

    /// Whether it goes first where processors are short, because everybody else waits for who is in it. Where that cannot be
    /// said, it takes its turn.
    pub(crate) fn prefer(&self, preferred: bool) {
        let [v1, v2] = SHARES;
        let (file, shares) = if self.v1.contains_key(&Controller::Cpu) { v1 } else { v2 };
        if let Some(dir) = self.homes.get(&Controller::Cpu) {
            let _ = fs::write(dir.join(file), shares[usize::from(preferred)]);
        }
    }

    /// Writes the files of one limit, or notes why not.
    fn limit(&mut self, name: &'static str, controller: Controller, files: &[(&str, String)]) {
        let reason = match self.homes.get(&controller) {
            None => Some(format!("no writable {} group", controller.name())),
            Some(dir) => files.iter().find_map(|(file, value)| {
                fs::write(dir.join(file), value).err().map(|e| format!("{file}: {e}"))
            }),
        };
        if let Some(reason) = reason {
            self.missing.push((name, reason));
        }
    }

    /// Limits that this host does not enforce by groups, with the reason.
    pub(crate) fn missing(&self) -> &[(&'static str, String)] {
        &self.missing
    }

    /// Controllers in force.
    pub(crate) fn controllers(&self) -> Vec<Controller> {
        self.homes.keys().copied().collect()
    }

    /// Where PID 1 is born.
    pub(crate) fn birthplace(&self) -> Option<BorrowedFd<'_>> {
        self.unified.as_ref().map(|(_, fd)| fd.as_fd())
    }

    /// Descriptors through which PID 1 joins the v1 groups, by writing `0`.
    pub(crate) fn entrances(&self) -> Result<&[OwnedFd], JailError> {
        if let Some(open) = self.entrances.get() {
            return Ok(open);
        }
        let open = |dir: &PathBuf| {
            let tasks = dir.join("tasks");
            let opened = OpenOptions::new().write(true).open(&tasks);
            opened.map(OwnedFd::from).map_err(doing(format!("open {}", tasks.display())))
        };
        let opened = self.v1_directories().into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
        Ok(self.entrances.get_or_init(|| opened))
    }

    /// Lets go of them. They are opened again when somebody needs them.
    pub(crate) fn close_entrances(&mut self) {
        self.entrances.take();
    }

    /// Each once: several controllers may share one mount.
    fn v1_directories(&self) -> Vec<&PathBuf> {
        let mut dirs: Vec<&PathBuf> = self.v1.values().collect();
        dirs.sort_unstable();
        dirs.dedup();
        dirs
    }

    /// A descriptor that becomes ready (readable on v1, priority on v2) when the jail ran out of memory.
    pub(crate) fn memory_alarm(&self) -> io::Result<Option<Alarm>> {
        if let Some(alarm) = self.alarm.get() {
            return alarm.try_clone().map(Some);
        }
        if let Some(dir) = self.v1.get(&Controller::Memory) {
            let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let control = File::open(dir.join("memory.oom_control"))?;
            let line = format!("{} {}", event.as_raw_fd(), control.as_raw_fd());
            fs::write(dir.join("cgroup.event_control"), line)?;
            return self.alarm.get_or_init(|| Alarm { fd: event, priority: false }).try_clone().map(Some);
        }
        match self.homes.get(&Controller::Memory) {
            Some(dir) => {
                let events = File::open(dir.join("memory.events"))?;
                Ok(Some(Alarm { fd: events.into(), priority: true }))
            }
            None => Ok(None),
        }
    }

    /// Whether anything here counts processor time.
    pub(crate) fn counts_cpu_time(&self) -> bool {
        self.homes.contains_key(&Controller::CpuAccounting)
    }

    /// Processor time of this jail.
    pub(crate) fn cpu_time(&self) -> Option<Duration> {
        self.all_cpu_time().map(|all| all.saturating_sub(self.used_before))
    }

    fn all_cpu_time(&self) -> Option<Duration> {
        let dir = self.homes.get(&Controller::CpuAccounting)?;
        all_cpu_time(&self.gauges, dir, self.v1.contains_key(&Controller::CpuAccounting)).ok()
    }

    /// Where others can read its counters. `None`: it has no group that is there for exactly as long as it is the jail's.
    pub(crate) fn meter(&self) -> Option<Meter> {
        let unified = self.unified.as_ref().map(|(dir, _)| dir.join("cgroup.events"));
        let named = self.v1.values().next().filter(|_| !self.lasts).map(|dir| dir.join("notify_on_release"));
        let home = |controller: Controller| {
            let dir = self.homes.get(&controller)?.clone();
            Some(Home { dir, on_v1: self.v1.contains_key(&controller) })
        };
        Some(Meter {
            own: unified.or(named)?,
            memory: home(Controller::Memory),
            processes: home(Controller::Processes),
            cpu_time: home(Controller::CpuAccounting),
            used_before: self.used_before,
        })
    }

    /// Processes that the kernel ended because memory was used up.
    pub(crate) fn memory_kills(&self) -> Option<u64> {
        let (dir, (file, ..)) = self.memory_home()?;
        self.gauges.memory_kills.keyed(dir, file, "oom_kill").ok()
    }

    fn memory(&self) -> Option<u64> {
        let (dir, (_, _, file)) = self.memory_home()?;
        self.gauges.memory.number(dir, file).ok()
    }

    fn peak_memory(&self) -> Option<u64> {
        let (dir, (_, file, _)) = self.memory_home()?;
        self.gauges.peak_memory.number(dir, file).ok()
    }

    fn memory_home(&self) -> Option<(&Path, (&'static str, &'static str, &'static str))> {
        let dir = self.homes.get(&Controller::Memory)?;
        Some((dir, memory_files(self.v1.contains_key(&Controller::Memory))))
    }

    fn processes(&self) -> Option<u64> {
        self.gauges.processes.number(self.homes.get(&Controller::Processes)?, "pids.current").ok()
    }

    fn process_refusals(&self) -> Option<u64> {
        let dir = self.homes.get(&Controller::Processes)?;
        self.gauges.process_refusals.keyed(dir, PROCESS_REFUSALS, "max").ok()
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters {
            cpu_time: self.cpu_time(),
            memory_bytes: self.memory(),
            processes: self.processes(),
            peak_memory_bytes: self.peak_memory(),
            memory_kills: self.memory_kills(),
            process_refusals: self.process_refusals(),
            ..Counters::default()
        }
    }

    /// Ends every process of the jail at once, where the kernel has the switch. The launcher also ends PID 1 by its
    /// descriptor, and with it the namespace: either alone is enough.
    pub(crate) fn kill(&self) {
        let Some((dir, _)) = &self.unified else { return };
        let switch = match self.kill_switch.get() {
            Some(switch) => switch,
            None => match OpenOptions::new().write(true).open(dir.join("cgroup.kill")) {
                Ok(opened) => self.kill_switch.get_or_init(|| opened),
                Err(_) => return,
            },
        };
        let _ = rustix::io::write(switch, b"1");
    }

    /// Starts to freeze everything in the jail, or lets it go on.
    pub(crate) fn freeze(&self, frozen: bool) -> io::Result<()> {
        self.was_frozen.set(true);
        if !frozen && self.may_swap.get() {
            // A jail that would go on with swap would have twice its limit on memory. It stays frozen, and the next attempt to
            // let it go on writes the limit again.
            self.set_swap_limit(0)?;
            self.may_swap.set(false);
        }
        match self.freezer() {
            Some(Freezer::Unified(dir)) => {
                fs::write(dir.join("cgroup.freeze"), if frozen { "1" } else { "0" })
            }
            Some(Freezer::V1(dir)) => {
                fs::write(dir.join("freezer.state"), if frozen { "FROZEN" } else { "THAWED" })
            }
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// How the kernel is asked to take back what a frozen jail holds: all page cache, and the rest where the host has swap.
    /// `None`: this kernel cannot be asked, or there is nothing.
    pub(crate) fn reclaim(&self) -> Option<Reclaim> {
        let dir = self.homes.get(&Controller::Memory)?;
        let used = self.memory().filter(|used| *used > 0)?;
        if self.v1.contains_key(&Controller::Memory) {
            // Its limit on swap is one on both together, and stays.
            let file = OpenOptions::new().write(true).open(dir.join("memory.force_empty")).ok()?;
            return Some(Reclaim { file, word: "0".to_owned() });
        }
        let file = OpenOptions::new().write(true).open(dir.join("memory.reclaim")).ok()?;
        if host_swaps() {
            // While it runs it may not swap, so that its limit bounds what it takes of the host. A host that refuses swap
            // takes back its page cache only.
            let allowed = self.set_swap_limit(self.limits.memory_bytes).is_ok();
            self.may_swap.set(allowed || self.may_swap.get());
        }
        Some(Reclaim { file, word: used.to_string() })
    }

    /// Below what is in use this only keeps more from going there.
    fn set_swap_limit(&self, bytes: u64) -> io::Result<()> {
        const FILE: &str = "memory.swap.max";
        let Some(dir) = self.homes.get(&Controller::Memory) else { return Ok(()) };
        fs::write(dir.join(FILE), bytes.to_string())
            .map_err(|error| io::Error::new(error.kind(), format!("{FILE}: {error}")))
    }

    /// Whether everything in the jail stands still.
    pub(crate) fn is_frozen(&self) -> bool {
        match self.freezer() {
            Some(Freezer::Unified(dir)) => keyed(dir, "cgroup.events", "frozen") == Some(1),
            Some(Freezer::V1(dir)) => {
                fs::read_to_string(dir.join("freezer.state")).is_ok_and(|state| state.trim() == "FROZEN")
            }
            None => false,
        }
    }

    /// The unified tree's freezer where the kernel has it: frozen processes can still be killed there.
    fn freezer(&self) -> Option<Freezer<'_>> {
        self.unified_freezer()
            .map(Freezer::Unified)
            .or_else(|| self.v1.get(&Controller::Freezer).map(|dir| Freezer::V1(dir)))
    }

    fn unified_freezer(&self) -> Option<&Path> {
        let (dir, _) = self.unified.as_ref()?;
        dir.join("cgroup.freeze").exists().then_some(dir)
    }

    /// Removes the groups. They must be empty; what the kernel has not finished yet is waited for, briefly.
    /// The paths that could not be removed come back.
    pub(crate) fn remove(&self) -> Vec<PathBuf> {
        let dirs = self.v1_directories().into_iter().chain(self.unified.as_ref().map(|(dir, _)| dir));
        dirs.filter(|dir| !remove_directory(dir)).cloned().collect()
    }
}

/// Where a jail is frozen.
enum Freezer<'a> {
    Unified(&'a Path),
    V1(&'a Path),
}

/// See [`Leaf::reclaim`]: what to write where. The kernel may take seconds for it.
#[derive(Debug)]
pub(crate) struct Reclaim {
    pub(crate) file: File,
    pub(crate) word: String,
}

/// See [`Leaf::memory_alarm`].
#[derive(Debug)]
pub(crate) struct Alarm {
    pub(crate) fd: OwnedFd,
    pub(crate) priority: bool,
}

impl Alarm {
    fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, priority: self.priority })
    }
}

/// Whether this host has swap in use. Below the heading there is a line for each area.
fn host_swaps() -> bool {
    fs::read_to_string("/proc/swaps").is_ok_and(|swaps| swaps.lines().count() > 1)
}

fn create_directory(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        // The launcher's first jail: the groups above are not there yet.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            dir.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::create_dir(dir))
        }
        other => other,
    }
}

fn open_directory(dir: &Path) -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    Ok(rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// On v2 a controller works in a group only if every group above hands it down.
fn enable_controllers(hierarchies: &Hierarchies, mount: &Path, path: &Path) {
    if hierarchies.on_unified.is_empty() {
        return;
    }
    let mut dir = mount.to_owned();
    for part in path.parent().into_iter().flatten().map(Some).chain([None]) {
        for name in hierarchies.to_enable() {
            // A refusal shows as a limit that cannot be set, with its reason.
            let _ = fs::write(dir.join("cgroup.subtree_control"), format!("+{name}"));
        }
        let Some(part) = part else { break };
        dir.push(part);
        let _ = fs::create_dir(&dir);
    }
}

/// A group that just lost its last process can be busy for a moment.
fn remove_directory(dir: &Path) -> bool {
    for attempt in 0..50u64 {
        match fs::remove_dir(dir) {
            Ok(()) => return true,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return true,
            Err(_) => std::thread::sleep(Duration::from_millis(attempt.min(20))),
        }
    }
    false
}

/// Ends and removes whatever an instance left below its part of the tree. Its lease must be held by the caller.
pub(crate) fn sweep(hierarchies: &Hierarchies, instance: &Path) -> bool {
    let mounts = hierarchies.on_v1.values().chain(&hierarchies.unified);
    let mut clean = true;
    for mount in mounts {
        let dir = mount.join(instance);
        let Ok(jails) = fs::read_dir(&dir) else { continue };
        for jail in jails.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
            let _ = fs::write(jail.path().join("cgroup.kill"), "1");
            clean &= remove_directory(&jail.path());
        }
        clean &= remove_directory(&dir);
    }
    clean
}

#[cfg(test)]
mod tests;
