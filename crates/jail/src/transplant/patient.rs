//! The destination on the table: calls in its name, and everything that is changed about it.

use std::ops::Range;
use std::time::Duration;

use sandstorm_sys::ptrace::{Registers, Stop, Traced, flag, is_call, number};

use super::error::{Cause, doing};
use super::maps::{Backing, Layout, Mapping};
use super::memory::Memory;
use super::plan::{Change, changes, free_place, is_seen_in_another_view};
use super::process::Process;
use super::special::Special;

/// A call in the destination's name takes microseconds; one that maps a file may wait for a disk.
const PATIENCE: Duration = Duration::from_secs(5);

/// Room for a path or a structure that a call points to.
const SCRATCH: u64 = 16 << 10;

/// The stopped destination.
#[derive(Debug)]
pub(super) struct Patient {
    pub(super) process: Process,
    pub(super) traced: Traced,
    pub(super) memory: Memory,
    /// Behind an instruction that makes a call.
    pub(super) behind: Registers,
    scratch: Option<u64>,
}

impl Patient {
    /// Stops the destination, which sleeps in a call.
    pub(super) fn stop(process: Process, mut traced: Traced) -> Result<Self, Cause> {
        match traced.interrupt(PATIENCE) {
            Ok(Stop::Interrupted) => {}
            Ok(stop) => return Err(Cause::refused(format!("the destination does not wait: {stop:?}"))),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(Cause::Gone(process.who)),
            Err(e) => return Err(doing("stop the destination")(e)),
        }
        let behind = traced.registers().map_err(doing("read the registers of the destination"))?;
        let memory = Memory::to_write(process)?;
        let mut instruction = [0; 2];
        memory.read_at(behind.instruction().wrapping_sub(2), &mut instruction)?;
        if behind.interrupted_call().is_none() || !is_call(&instruction) {
            return Err(Cause::refused("the destination does not wait for its job"));
        }
        Ok(Self { process, traced, memory, behind, scratch: None })
    }

    pub(super) fn call(&mut self, what: &str, number: i64, arguments: &[u64]) -> Result<u64, Cause> {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        self.traced.call(&self.behind, number, all, PATIENCE).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound if e.raw_os_error().is_none() => Cause::Gone(self.process.who),
            _ => doing(format!("{what} in the destination"))(e),
        })
    }

    /// Puts bytes where a call can point at them.
    pub(super) fn put(&self, bytes: &[u8]) -> Result<u64, Cause> {
        match self.scratch {
            Some(scratch) if bytes.len() as u64 <= SCRATCH => {
                self.memory.write_at(scratch, bytes)?;
                Ok(scratch)
            }
            _ => Err(doing("pass an argument to the destination")(std::io::ErrorKind::InvalidInput.into())),
        }
    }

    /// Drops pages that only the destination has.
    pub(super) fn discard(&mut self, ranges: &[Range<u64>]) -> Result<(), Cause> {
        ranges.iter().try_for_each(|range| {
            let arguments = [range.start, range.end - range.start, flag::DONT_NEED];
            self.call("drop pages", number::MADVISE, &arguments).map(drop)
        })
    }

    /// Does with what was copied what a fork does: some memory is empty in a child, some is not there. `layout`: as it was
    /// laid out, which may be without the latter already.
    pub(super) fn leave_out(&mut self, special: &Special, layout: &Layout) -> Result<(), Cause> {
        if let Some(what) = &special.refused {
            return Err(Cause::refused(format!("the source has {what}")));
        }
        self.discard(&special.wiped)?;
        let carried = |range: &&Range<u64>| layout.mappings.iter().any(|mapping| mapping.range == **range);
        special.left_behind.iter().filter(carried).try_for_each(|range| self.unmap(range))
    }

    fn unmap(&mut self, range: &Range<u64>) -> Result<(), Cause> {
        self.call("unmap memory", number::MUNMAP, &[range.start, range.end - range.start]).map(drop)
    }

    /// Lays out the address space, which is like `found`, like the source's.
    pub(super) fn lay_out(&mut self, source: &Layout, mut found: Layout) -> Result<(), Cause> {
        let place = free_place([source, &found], SCRATCH)
            .ok_or_else(|| Cause::refused("the source left no room in its address space"))?;
        self.map_anonymous(&(place..place + SCRATCH), 3, flag::MAP_FIXED_NOREPLACE)?;
        self.scratch = Some(place);
        match (source.heap_end, found.heap_end) {
            (Some(end), Some(now)) if end != now => {
                if self.call("move the end of the heap", number::BRK, &[end])? != end {
                    return Err(Cause::refused("the destination may not have a heap of that size"));
                }
                match end > now {
                    true => found.grow_heap(end),
                    false => found = self.layout()?,
                }
            }
            (Some(_), Some(_)) | (None, None) => {}
            _ => return Err(Cause::Unlike("only one of them has a heap".to_owned())),
        }
        let changes_to_make = changes(source, &found)?;
        let maps_files = changes_to_make.iter().any(Change::maps_a_file);
        changes_to_make.into_iter().try_for_each(|change| self.apply(change))?;
        // What was to be mapped without a file is there, or the call would have failed. A file is known by its path only,
        // and has to be the same by its inode. Each jail has a view of its own of the host's trees, with other devices.
        if !maps_files {
            return Ok(());
        }
        let found = self.layout()?;
        match changes(source, &found)?.iter().find(|change| !is_seen_in_another_view(change, &found)) {
            None => Ok(()),
            Some(Change::Map(Mapping { backing: Backing::File { path, .. }, .. })) => Err(Cause::refused(
                format!("the source has mapped a file that the destination does not have: {path}"),
            )),
            Some(change) => {
                Err(Cause::refused(format!("the destination does not take a mapping: {change:x?}")))
            }
        }
    }

    /// Its mappings without the one for our own use.
    fn layout(&self) -> Result<Layout, Cause> {
        let mut layout = Layout::of(&self.process)?;
        layout.mappings.retain(|mapping| Some(mapping.range.start) != self.scratch);
        Ok(layout)
    }

    fn apply(&mut self, change: Change) -> Result<(), Cause> {
        match change {
            Change::Unmap(range) => self.unmap(&range),
            Change::Protect(range, protection) => {
                let arguments = [range.start, range.end - range.start, protection.into()];
                self.call("protect memory", number::MPROTECT, &arguments).map(drop)
            }
            // The kernel extends a stack for whoever looks right below it.
            Change::GrowStack(to) => self.memory.read_at(to, &mut [0]).map_err(|_| {
                Cause::refused("the stack of the source is larger than the destination's may be")
            }),
            Change::Map(Mapping { range, protection, shared, backing }) => match backing {
                Backing::File { offset, path, .. } => {
                    self.map_file(&range, protection, shared, offset, &path)
                }
                _ => self.map_anonymous(&range, protection, flag::MAP_FIXED),
            },
        }
    }

    fn map_anonymous(&mut self, range: &Range<u64>, protection: u8, fixed: u64) -> Result<(), Cause> {
        // Without reservation: how much the source promised itself is not known, and the group's limit counts.
        let flags = flag::MAP_PRIVATE | flag::MAP_ANONYMOUS | flag::MAP_NORESERVE | fixed;
        let arguments = [range.start, range.end - range.start, protection.into(), flags, u64::MAX, 0];
        self.call("map memory", number::MMAP, &arguments).map(drop)
    }

    /// Opens the file as the destination, with its rights and under its root.
    fn map_file(
        &mut self,
        range: &Range<u64>,
        protection: u8,
        shared: bool,
        offset: u64,
        path: &str,
    ) -> Result<(), Cause> {
        let missing = |_| {
            Cause::refused(format!("the source has mapped a file that the destination does not have: {path}"))
        };
        let name = self.put(&[path.as_bytes(), &[0]].concat())?;
        // Not blocking: whatever is at that path, opening it must come to an end.
        let how = flag::CLOSE_ON_EXEC | flag::NON_BLOCKING;
        let file = self.call("open a file", number::OPENAT, &[flag::HERE, name, how]).map_err(missing)?;
        let kind = if shared { flag::MAP_SHARED } else { flag::MAP_PRIVATE };
        let arguments =
            [range.start, range.end - range.start, protection.into(), kind | flag::MAP_FIXED, file, offset];
        let mapped = self.call("map a file", number::MMAP, &arguments).map_err(missing);
        self.call("close a file", number::CLOSE, &[file])?;
        mapped.map(drop)
    }

    /// Takes away what was mapped for our own use.
    pub(super) fn clear_up(&mut self) -> Result<(), Cause> {
        match self.scratch.take() {
            Some(scratch) => self.unmap(&(scratch..scratch + SCRATCH)),
            None => Ok(()),
        }
    }
}
