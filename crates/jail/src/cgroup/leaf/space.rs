//! Memory of programs beside that of the writable file system.
//!
//! That is a tmpfs, and the kernel charges what is written to it to the group of whoever writes, as it does with memory. One
//! limit for both would let a full file system end programs. So the group's limit is the sum: the file system is never larger
//! than its part, so the kernel ends a process for memory only when programs have more than theirs. They could have what the
//! file system leaves, too; so what they have is looked at from time to time ([`Leaf::program_memory`]), and the limit of
//! a group whose programs have too much is [narrowed](Leaf::narrow) to what it uses, which leaves the choice whom to end,
//! and the count of that, to the kernel.

use std::fs;
use std::os::fd::BorrowedFd;

use super::Leaf;
use crate::cgroup::Controller;

/// What a group uses changes between a look and what follows from it.
const MARGIN: u64 = 256 << 10;

impl Leaf {
    /// What programs and the writable file system may have together.
    pub(super) fn most_memory(&self) -> u64 {
        self.limits.memory_bytes.saturating_add(self.space)
    }

    /// Whether it has to be looked at what programs have: else the kernel's limit is theirs alone.
    pub(crate) fn shares_memory(&self) -> bool {
        self.space > 0 && self.homes.contains_key(&Controller::Memory)
    }

    /// Memory that programs may have.
    pub(crate) fn memory_limit(&self) -> u64 {
        self.limits.memory_bytes
    }

    /// Memory that programs have: their own, and what they share but for files of the writable file system. Copies of files of
    /// the host do not count, since the kernel drops them when it needs the room. While all of that is below the limit it may
    /// be counted nevertheless.
    pub(crate) fn program_memory(&self, scratch: BorrowedFd<'_>) -> Option<u64> {
        let before = bytes_in(scratch)?;
        let rough = self.memory()?.saturating_sub(before);
        if rough <= self.limits.memory_bytes {
            return Some(rough);
        }
        let (dir, _) = self.memory_home()?;
        let own = if self.v1.contains_key(&Controller::Memory) { "rss" } else { "anon" };
        let [own, shared] = self.gauges.memory_parts.both(dir, "memory.stat", [own, "shmem"]).ok()?;
        // What was written or removed meanwhile is not held against programs.
        let files = before.max(bytes_in(scratch)?);
        Some(own.saturating_add(shared.saturating_sub(files)).min(rough))
    }

    /// Lets the group have no more than it has.
    pub(crate) fn narrow(&self) {
        let Some(now) = self.memory() else { return };
        // What was let go of meanwhile is not given back.
        let most = now.saturating_add(MARGIN).min(self.narrowed.get().unwrap_or(self.most_memory()));
        self.was_narrowed.set(true);
        self.narrowed.set(Some(most));
        // Refused where more is used by now; then it is looked at again soon.
        self.set_memory(most, false);
    }

    /// Lets the group have all that it may.
    pub(crate) fn widen(&self) {
        self.narrowed.set(None);
        self.set_memory(self.most_memory(), true);
    }

    /// On v1 what is swapped is limited together with memory, and never to less than that.
    fn set_memory(&self, most: u64, wider: bool) {
        let Some(dir) = self.homes.get(&Controller::Memory) else { return };
        if !self.v1.contains_key(&Controller::Memory) {
            let _ = fs::write(dir.join("memory.max"), most.to_string());
            return;
        }
        let mut files = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"];
        if wider {
            files.reverse();
        }
        for file in files {
            let path = dir.join(file);
            if path.exists() {
                let _ = fs::write(path, most.to_string());
            }
        }
    }
}

/// What a file system holds.
fn bytes_in(scratch: BorrowedFd<'_>) -> Option<u64> {
    let disk = rustix::fs::fstatfs(scratch).ok()?;
    let block = u64::try_from(disk.f_bsize).ok()?;
    Some(disk.f_blocks.saturating_sub(disk.f_bfree).saturating_mul(block))
}
