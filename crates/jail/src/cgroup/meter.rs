//! Reading what the kernel counted for a jail by the paths of its groups, without asking the launcher.
//!
//! Groups may be another jail's afterwards (`leaf/reuse.rs`). One of them never is: it has the jail's name, and goes before
//! the others are given on. A reading counts only if that one is there when everything was read.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::cgroup::counters::{Counters, keyed_in};

/// More than any of these files ever holds.
const LONGEST: usize = 4096;

/// Where the counters of one jail are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    /// The group that is there for exactly as long as the jail.
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
    pub fn read(&self, scratch: BorrowedFd<'_>, extent: Extent) -> Option<Counters> {
        let counters = self.read_groups(extent).ok()?.with_disk(scratch);
        rustix::fs::access(&self.own, rustix::fs::Access::EXISTS).ok()?;
        Some(counters)
    }

    /// Whatever is missing was there once, unless this kernel never had it: half a reading is none.
    fn read_groups(&self, extent: Extent) -> io::Result<Counters> {
        let mut counters = Counters::default();
        if let Some(cpu_time) = &self.cpu_time {
            let used = match cpu_time.on_v1 {
                true => Duration::from_nanos(cpu_time.number("cpuacct.usage")?),
                false => Duration::from_micros(cpu_time.keyed("cpu.stat", "usage_usec")?),
            };
            counters.cpu_time = Some(used.saturating_sub(self.used_before));
        }
        if let Some(memory) = &self.memory {
            let (kills, peak, now) = memory_files(memory.on_v1);
            counters.memory_kills = Some(memory.keyed(kills, "oom_kill")?);
            counters.peak_memory_bytes = match memory.number(peak) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                read => Some(read?),
            };
            if extent == Extent::Everything {
                counters.memory_bytes = Some(memory.number(now)?);
            }
        }
        if let Some(processes) = &self.processes {
            counters.process_refusals = Some(processes.keyed("pids.events", "max")?);
            if extent == Extent::Everything {
                counters.processes = Some(processes.number("pids.current")?);
            }
        }
        Ok(counters)
    }
}

/// Which files tell of ends for want of memory, of the most memory so far, and of the memory now.
pub(super) fn memory_files(on_v1: bool) -> (&'static str, &'static str, &'static str) {
    match on_v1 {
        true => ("memory.oom_control", "memory.max_usage_in_bytes", "memory.usage_in_bytes"),
        false => ("memory.events", "memory.peak", "memory.current"),
    }
}

impl Home {
    fn number(&self, file: &str) -> io::Result<u64> {
        read(&self.dir.join(file), |text| text.trim().parse().ok())
    }

    fn keyed(&self, file: &str, key: &str) -> io::Result<u64> {
        read(&self.dir.join(file), |text| keyed_in(text, key))
    }
}

fn read(path: &Path, find: impl FnOnce(&str) -> Option<u64>) -> io::Result<u64> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut buffer = [0; LONGEST];
    let length = rustix::io::read(&file, &mut buffer)?;
    let text = std::str::from_utf8(&buffer[..length]).map_err(io::Error::other)?;
    find(text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests;
