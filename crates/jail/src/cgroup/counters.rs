//! What the kernel counted for a jail. Every verdict comes from here.

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A reading; what this host cannot count is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    pub cpu_time: Option<Duration>,
    pub memory_bytes: Option<u64>,
    pub peak_memory_bytes: Option<u64>,
    /// Processes and threads, PID 1 among them.
    pub processes: Option<u64>,
    /// Processes that the kernel ended because the jail's memory was used up.
    pub memory_kills: Option<u64>,
    /// Times that a process could not be made because there were too many.
    pub process_refusals: Option<u64>,
    pub disk_used_bytes: Option<u64>,
    pub disk_full: bool,
    pub inodes_used: Option<u64>,
    pub inodes_full: bool,
}

impl Counters {
    /// With what is used of the jail's scratch file system.
    pub(crate) fn with_disk(mut self, scratch: BorrowedFd<'_>) -> Self {
        if let Ok(disk) = rustix::fs::fstatfs(scratch) {
            let block = u64::try_from(disk.f_bsize).unwrap_or(0);
            self.disk_used_bytes = Some(disk.f_blocks.saturating_sub(disk.f_bfree).saturating_mul(block));
            self.disk_full = disk.f_blocks > 0 && disk.f_bavail == 0;
            self.inodes_used = Some(disk.f_files.saturating_sub(disk.f_ffree));
            self.inodes_full = disk.f_files > 0 && disk.f_ffree == 0;
        }
        self
    }
}

/// One line `key number` of a file with several.
pub(super) fn keyed(dir: &Path, file: &str, key: &str) -> Option<u64> {
    keyed_in(&fs::read_to_string(dir.join(file)).ok()?, key)
}

pub(super) fn keyed_in(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_matched_whole() {
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        assert_eq!(keyed_in(text, "oom_kill"), Some(3));
        assert_eq!(keyed_in(text, "oom"), None);
    }
}
