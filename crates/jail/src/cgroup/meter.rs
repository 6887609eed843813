//! Reading what the kernel counted for a jail by the paths of its groups, without asking the launcher.
//!
//! Groups may be another jail's afterwards (`leaf/reuse.rs`). One of them never is: it has the jail's name, and goes before
//! the others are given on. A reading counts only if that one is there when everything was read.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cgroup::counters::Counters;
use crate::cgroup::gauge::{Gauge, Gauges};

/// Where the counters of one jail are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    /// A file of the group that is there for exactly as long as the jail.
    pub(super) own: PathBuf,
    pub(super) memory: Option<Home>,
    pub(super) processes: Option<Home>,
    pub(super) cpu_time: Option<Home>,
    /// Processor time of jails that had the group before.
    pub(super) used_before: Duration,
}

/// A group that counts something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Home {
    pub(super) dir: PathBuf,
    pub(super) on_v1: bool,
}

/// How much is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// What tells why a program ended, and what it used in all.
    Verdict,
    /// What the jail uses at the moment, too.
    Everything,
}

impl Meter {
    /// A reading. `scratch`: a descriptor of the jail's scratch file system. `None`: it cannot be read by this process, or the
    /// jail is gone; whoever keeps the jail knows more.
    pub fn read(&self, gauges: &Gauges, scratch: BorrowedFd<'_>, extent: Extent) -> Option<Counters> {
        let counters = self.read_groups(gauges, extent).ok()?.with_disk(scratch);
        gauges.own.is_there(&self.own).then_some(counters)
    }

    /// Which groups these are, where they may be another jail's afterwards.
    pub fn lasting(&self) -> Option<[PathBuf; 3]> {
        let lasting =
            |home: &Option<Home>| home.as_ref().filter(|home| home.on_v1).map(|home| home.dir.clone());
        Some([lasting(&self.memory)?, lasting(&self.processes)?, lasting(&self.cpu_time)?])
    }

    /// The files of a verdict, opened, so that they only have to be read when it is due. What cannot be opened is tried
    /// again then. `found`: those that were opened for a jail which had the same groups before.
    pub fn open(&self, found: Gauges) -> Gauges {
        let gauges = Gauges { own: Gauge::default(), ..found };
        let _ = gauges.own.open(&self.own);
        if let Some(Home { dir, on_v1 }) = &self.cpu_time {
            let _ = gauges.cpu_time.open(&dir.join(cpu_time_file(*on_v1)));
        }
        if let Some(Home { dir, on_v1 }) = &self.memory {
            let (kills, peak, _) = memory_files(*on_v1);
            let _ = gauges.memory_kills.open(&dir.join(kills));
            let _ = gauges.peak_memory.open(&dir.join(peak));
        }
        if let Some(Home { dir, .. }) = &self.processes {
            let _ = gauges.process_refusals.open(&dir.join(PROCESS_REFUSALS));
        }
        gauges
    }

    /// Whatever is missing was there once, unless this kernel never had it: half a reading is none.
    fn read_groups(&self, gauges: &Gauges, extent: Extent) -> io::Result<Counters> {
        let mut counters = Counters::default();
        if let Some(Home { dir, on_v1 }) = &self.cpu_time {
            let used = all_cpu_time(gauges, dir, *on_v1)?;
            counters.cpu_time = Some(used.saturating_sub(self.used_before));
        }
        if let Some(Home { dir, on_v1 }) = &self.memory {
            let (kills, peak, now) = memory_files(*on_v1);
            counters.memory_kills = Some(gauges.memory_kills.keyed(dir, kills, "oom_kill")?);
            counters.peak_memory_bytes = match gauges.peak_memory.number(dir, peak) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                read => Some(read?),
            };
            if extent == Extent::Everything {
                counters.memory_bytes = Some(gauges.memory.number(dir, now)?);
            }
        }
        if let Some(Home { dir, .. }) = &self.processes {
            counters.process_refusals = Some(gauges.process_refusals.keyed(dir, PROCESS_REFUSALS, "max")?);
            if extent == Extent::Everything {
                counters.processes = Some(gauges.processes.number(dir, "pids.current")?);
            }
        }
        Ok(counters)
    }
}

/// Which file tells how often a process could not be made.
pub(super) const PROCESS_REFUSALS: &str = "pids.events";

fn cpu_time_file(on_v1: bool) -> &'static str {
    if on_v1 { "cpuacct.usage" } else { "cpu.stat" }
}

/// Processor time of a group since there is one.
pub(super) fn all_cpu_time(gauges: &Gauges, dir: &Path, on_v1: bool) -> io::Result<Duration> {
    let file = cpu_time_file(on_v1);
    match on_v1 {
        true => gauges.cpu_time.number(dir, file).map(Duration::from_nanos),
        false => gauges.cpu_time.keyed(dir, file, "usage_usec").map(Duration::from_micros),
    }
}

/// Which files tell of ends for want of memory, of the most memory so far, and of the memory now.
pub(super) fn memory_files(on_v1: bool) -> (&'static str, &'static str, &'static str) {
    match on_v1 {
        true => ("memory.oom_control", "memory.max_usage_in_bytes", "memory.usage_in_bytes"),
        false => ("memory.events", "memory.peak", "memory.current"),
    }
}

#[cfg(test)]
mod tests;
