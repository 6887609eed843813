//! Which pages of the source the destination lacks: two forks of one process share the frames of what neither wrote to.

use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use sandstorm_sys::ptrace::{PageRegion, populated};

use super::error::{Cause, doing};
use super::maps::{Backing, END_OF_USER_SPACE, Layout, Mapping, WRITE};
use super::process::Process;

pub(super) const PAGE: u64 = 4096;

/// Most address space that is looked through page by page, on a kernel that cannot skip what is empty.
const MOST_TO_LOOK_THROUGH: u64 = 64 << 30;

/// Private memory up to this is looked at page by page.
const FEW: u64 = 1 << 30;

/// Bytes of the page table that are read at a time.
const ENTRIES: usize = 64 << 10;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const FILE: u64 = 1 << 61;
const EXCLUSIVE: u64 = 1 << 56;
const FRAME: u64 = (1 << 55) - 1;

/// Pages in a row that go the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) range: Range<u64>,
    /// The mapping can be written to as it is.
    pub(super) writable: bool,
    /// The destination reads zeroes there now, or will.
    pub(super) empty: bool,
}

impl Run {
    /// One page. `ours`: what the destination has there.
    fn of(page: u64, mapping: &Mapping, ours: u64) -> Self {
        Self {
            range: page..page + PAGE,
            writable: mapping.protection & WRITE != 0,
            empty: ours & (PRESENT | SWAPPED) == 0 && !matches!(mapping.backing, Backing::File { .. }),
        }
    }
}

/// The page table of a guest, and how to look for what is in it.
#[derive(Debug)]
pub(super) struct PageMap {
    process: Process,
    file: File,
    can_skip: bool,
}

impl PageMap {
    pub(super) fn of(process: Process) -> Result<Self, Cause> {
        let file = process.open("pagemap")?;
        let can_skip = populated(file.as_fd(), 0, PAGE, &mut [PageRegion::default(); 1]).is_ok();
        Ok(Self { process, file, can_skip })
    }

    /// Stretches with pages of the process's own in its private mappings, in order.
    pub(super) fn own(&self, layout: &Layout) -> Result<Vec<Range<u64>>, Cause> {
        let candidates = if self.can_skip { self.scan()? } else { self.look_through(layout)? };
        Ok(common(&candidates, &private(layout)))
    }

    fn scan(&self) -> Result<Vec<Range<u64>>, Cause> {
        let mut regions = vec![PageRegion::default(); 1024];
        let mut found = Vec::new();
        let mut from = 0;
        while from < END_OF_USER_SPACE {
            let scanned = populated(self.file.as_fd(), from, END_OF_USER_SPACE, &mut regions);
            let (count, walked_to) = scanned.map_err(|e| self.process.failed("pagemap", e))?;
            let own = regions[..count].iter().filter(|region| region.is_own());
            own.for_each(|region| push(&mut found, region.start..region.end));
            if walked_to <= from {
                return Err(doing("go through the page tables")(ErrorKind::InvalidData.into()));
            }
            from = walked_to;
        }
        Ok(found)
    }

    fn look_through(&self, layout: &Layout) -> Result<Vec<Range<u64>>, Cause> {
        let private = || layout.mappings.iter().filter(|mapping| !mapping.shared);
        let total: u64 = private().map(|mapping| mapping.range.end - mapping.range.start).sum();
        if total > MOST_TO_LOOK_THROUGH {
            return Err(Cause::refused(format!("the {} has mapped {} GiB", self.process.who, total >> 30)));
        }
        let mut found = Vec::new();
        for mapping in private() {
            self.each(mapping.range.clone(), |page, entry| {
                if is_own(entry) {
                    push(&mut found, page..page + PAGE);
                }
                Ok(())
            })?;
        }
        Ok(found)
    }

    fn each(
        &self,
        range: Range<u64>,
        mut visit: impl FnMut(u64, u64) -> Result<(), Cause>,
    ) -> Result<(), Cause> {
        let mut entries = [0; 8192];
        let mut page = range.start;
        while page < range.end {
            let count = ((range.end - page) / PAGE).min(entries.len() as u64 / 8);
            let bytes = &mut entries[..count as usize * 8];
            self.entries(page, bytes)?;
            for entry in bytes.chunks_exact(8) {
                visit(page, number(entry))?;
                page += PAGE;
            }
        }
        Ok(())
    }

    fn entries(&self, page: u64, into: &mut [u8]) -> Result<(), Cause> {
        self.file.read_exact_at(into, page / PAGE * 8).map_err(|e| match e.kind() {
            // The address space is gone.
            ErrorKind::UnexpectedEof => Cause::Gone(self.process.who),
            _ => self.process.failed("pagemap", e),
        })
    }
}

/// The private mappings, joined where they meet.
fn private(layout: &Layout) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let private = |mapping: &&Mapping| !mapping.shared && !matches!(mapping.backing, Backing::Kernel(_));
    layout.mappings.iter().filter(private).for_each(|mapping| push(&mut found, mapping.range.clone()));
    found
}

fn number(entry: &[u8]) -> u64 {
    u64::from_ne_bytes(entry.try_into().expect("entries have eight bytes"))
}

/// What to do about pages.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// To copy from the source.
    pub(super) copy: Vec<Run>,
    /// Written to by the destination alone: to be dropped, so that zeroes or the file show again.
    pub(super) discard: Vec<Range<u64>>,
}

/// Compares, page by page.
pub(super) fn difference(
    (source, source_layout): (&PageMap, &Layout),
    (destination, destination_layout): (&PageMap, &Layout),
) -> Result<Difference, Cause> {
    let mut difference = Difference::default();
    let mut theirs = vec![0; ENTRIES];
    let mut ours = vec![0; ENTRIES];
    for stretch in to_compare((source, source_layout), (destination, destination_layout))? {
        let mut page = stretch.start;
        while page < stretch.end {
            let count = ((stretch.end - page) / PAGE).min(ENTRIES as u64 / 8);
            let length = count as usize * 8;
            source.entries(page, &mut theirs[..length])?;
            destination.entries(page, &mut ours[..length])?;
            let mut mapping = None;
            for (theirs, ours) in theirs[..length].chunks_exact(8).zip(ours.chunks_exact(8)) {
                let (theirs, ours) = (number(theirs), number(ours));
                if is_own(theirs) && !same(theirs, ours)? {
                    if mapping.is_none_or(|mapping: &Mapping| page >= mapping.range.end) {
                        mapping = source_layout.at(page);
                    }
                    if let Some(mapping) = mapping {
                        add(&mut difference.copy, Run::of(page, mapping, ours));
                    }
                } else if is_own(ours) && !is_own(theirs) {
                    push(&mut difference.discard, page..page + PAGE);
                }
                page += PAGE;
            }
        }
    }
    Ok(difference)
}

/// Where either of the two may have pages of its own. To look at each page is quicker than to ask first, unless there are
/// too many.
fn to_compare(
    (source, source_layout): (&PageMap, &Layout),
    (destination, destination_layout): (&PageMap, &Layout),
) -> Result<Vec<Range<u64>>, Cause> {
    let all = private(source_layout);
    let size: u64 = all.iter().map(|range| range.end - range.start).sum();
    if size <= FEW {
        return Ok(all);
    }
    let (own, others) = (source.own(source_layout)?, destination.own(destination_layout)?);
    let mut either = own.clone();
    either.extend(common(&without(&others, &own), &all));
    either.sort_unstable_by_key(|range| range.start);
    Ok(either)
}

/// A page that is neither a file's nor missing.
fn is_own(entry: u64) -> bool {
    entry & SWAPPED != 0 || entry & PRESENT != 0 && entry & FILE == 0
}

/// The same frame, seen in both at once. A page of which one of them is the only user is not the other's, even if the
/// frame has the same number because it was moved between the two looks.
fn same(theirs: u64, ours: u64) -> Result<bool, Cause> {
    if theirs & PRESENT == 0 {
        return Ok(false);
    }
    if theirs & FRAME == 0 {
        return Err(doing("see the numbers of memory frames")(ErrorKind::PermissionDenied.into()));
    }
    Ok(ours & PRESENT != 0 && theirs & FRAME == ours & FRAME && (theirs | ours) & EXCLUSIVE == 0)
}

fn add(runs: &mut Vec<Run>, next: Run) {
    match runs.last_mut() {
        Some(last)
            if last.range.end == next.range.start
                && (last.writable, last.empty) == (next.writable, next.empty) =>
        {
            last.range.end = next.range.end;
        }
        _ => runs.push(next),
    }
}

fn push(ranges: &mut Vec<Range<u64>>, next: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == next.start => last.end = next.end,
        _ => ranges.push(next),
    }
}

/// What lies in both; each in order and without overlap.
fn common(one: &[Range<u64>], other: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut others = other.iter().peekable();
    for range in one {
        while let Some(next) = others.peek() {
            let both = range.start.max(next.start)..range.end.min(next.end);
            if both.start < both.end {
                push(&mut found, both);
            }
            if next.end > range.end {
                break;
            }
            others.next();
        }
    }
    found
}

/// What lies in the first only.
fn without(one: &[Range<u64>], other: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut first = 0;
    for range in one {
        let mut from = range.start;
        first += other[first..].partition_point(|next| next.end <= range.start);
        for next in other[first..].iter().take_while(|next| next.start < range.end) {
            if from < next.start {
                found.push(from..next.start);
            }
            from = from.max(next.end);
        }
        if from < range.end {
            found.push(from..range.end);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::transplant::error::Who;

    fn ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
        proptest::collection::vec(0_u64..2, 24).prop_map(|bits| {
            let mut found = Vec::new();
            bits.iter()
                .enumerate()
                .filter(|(_, bit)| **bit == 1)
                .for_each(|(i, _)| push(&mut found, i as u64..i as u64 + 1));
            found
        })
    }

    fn members(ranges: &[Range<u64>]) -> Vec<u64> {
        ranges.iter().cloned().flatten().collect()
    }

    proptest! {
        #[test]
        fn sets_of_ranges_are_sets(one in ranges(), other in ranges()) {
            let is_in = |set: &[Range<u64>], n: &u64| set.iter().any(|range| range.contains(n));
            let both: Vec<u64> = (0..24).filter(|n| is_in(&one, n) && is_in(&other, n)).collect();
            let first: Vec<u64> = (0..24).filter(|n| is_in(&one, n) && !is_in(&other, n)).collect();
            prop_assert_eq!(members(&common(&one, &other)), both);
            prop_assert_eq!(members(&without(&one, &other)), first);
        }
    }

    /// The two ways of finding pages agree, up to pages of zeroes, which only one of them can tell.
    #[test]
    fn both_ways_find_what_was_written() {
        let process = Process { who: Who::Source, pid: std::process::id() as i32 };
        let written = vec![7_u8; 4 << 20];
        let address = written.as_ptr() as u64 / PAGE * PAGE + PAGE;
        let layout = Layout::of(&process).unwrap();
        for can_skip in [true, false] {
            let map = PageMap { can_skip, ..PageMap::of(process).unwrap() };
            let own = map.own(&layout).unwrap();
            let holds = own.iter().any(|range| range.start <= address && address + (3 << 20) <= range.end);
            assert!(holds, "can skip: {can_skip}");
        }
        assert_eq!(written[5], 7);
    }

    #[test]
    fn only_a_frame_that_both_use_is_the_same() {
        let shared = PRESENT | 5;
        assert!(same(shared, shared).unwrap());
        assert!(!same(shared, PRESENT | 6).unwrap());
        assert!(!same(shared | EXCLUSIVE, shared | EXCLUSIVE).unwrap());
        assert!(!same(shared, 0).unwrap());
        assert!(!same(SWAPPED | 5, SWAPPED | 5).unwrap());
        assert!(same(PRESENT, PRESENT).is_err());
    }
}
