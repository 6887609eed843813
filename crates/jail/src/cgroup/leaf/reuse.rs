//! Groups that one jail after the other has.
//!
//! To make and unmake v1 groups costs more than most of what makes a jail. They are used again, under names of their own,
//! where there is a unified tree beside them: what a jail has there is new each time and has its name. Only limits that
//! are written the same, empty groups and counters that can be set back or never moved will do.

use std::fs;
use std::io;
use std::path::Path;

use super::Leaf;
use crate::cgroup::meter::memory_files;
use crate::cgroup::{Controller, Hierarchies};
use crate::spec::JailLimits;

/// Memory that a jail may leave behind for the next: the kernel frees small things late, and charges names of files
/// that it remembers to whoever asked for them first.
const LEFT_OVER: u64 = 1 << 20;

impl Leaf {
    /// Whether groups of this host can serve several jails.
    pub(crate) fn may_last(hierarchies: &Hierarchies) -> bool {
        let needed = [Controller::Memory, Controller::Processes, Controller::Cpu, Controller::CpuAccounting];
        hierarchies.unified.is_some()
            && hierarchies.on_unified.is_empty()
            && needed.iter().all(|controller| hierarchies.on_v1.contains_key(controller))
    }

    /// Makes groups for a jail, as [`Leaf::create`] does, that others can have afterwards. `own`: what they are called
    /// where that does not change.
    pub(crate) fn create_lasting(
        hierarchies: &Hierarchies,
        parent: &Path,
        (own, name): (&str, &str),
        limits: &JailLimits,
        space: u64,
    ) -> Self {
        let mut leaf = Self::nowhere(limits, space);
        leaf.make(hierarchies, &parent.join(name), &parent.join(own), limits);
        leaf.lasts = leaf.missing.is_empty() && leaf.unified.is_some();
        leaf
    }

    /// Whether a jail with these limits could have it.
    pub(crate) fn fits(&self, limits: &JailLimits, space: u64) -> bool {
        let written = |limits: &JailLimits| (limits.memory_bytes, limits.processes, limits.cpu_milli);
        written(&self.limits) == written(limits) && self.space == space
    }

    /// Gives it up for the next jail. To be called when everything in it was collected. `false`: it has to be removed.
    pub(crate) fn rest(&mut self) -> bool {
        let untouched = [self.memory_kills(), self.process_refusals(), self.processes()] == [Some(0); 3];
        let Some((dir, _)) = &self.unified else { return false };
        // Whoever is in one of the groups is in the unified one, too, since they are born there; and that one does not go
        // while there is anybody.
        if !self.lasts
            || !untouched
            || self.was_frozen.get()
            || self.was_narrowed.get()
            || fs::remove_dir(dir).is_err()
        {
            return false;
        }
        self.unified = None;
        self.kill_switch.take();
        true
    }

    /// Whether what the last jail used is gone.
    pub(crate) fn has_cooled(&self) -> bool {
        self.memory().is_some_and(|left| left <= LEFT_OVER) && self.processes() == Some(0)
    }

    /// Gives it to a jail. `false`: it has to be removed.
    pub(crate) fn wake(&mut self, hierarchies: &Hierarchies, parent: &Path, name: &str) -> bool {
        let Some(used) = self.all_cpu_time() else { return false };
        self.used_before = used;
        self.forget_alarm();
        self.make_unified(hierarchies, &parent.join(name));
        self.unified.is_some() && self.forget_peak().is_ok()
    }

    /// The alarm may have rung for something that the kernel found another way out of.
    fn forget_alarm(&self) {
        if let Some(alarm) = self.alarm.get() {
            let _ = rustix::io::read(&alarm.fd, &mut [0; 8]);
        }
    }

    fn forget_peak(&self) -> io::Result<()> {
        let dir = self.v1.get(&Controller::Memory).ok_or(io::ErrorKind::NotFound)?;
        let (_, peak, _) = memory_files(true);
        fs::write(dir.join(peak), "0")
    }
}
