//! What has to change in one address space so that it is laid out like another. Pure.

use std::ops::Range;
use std::path::Path;

use super::error::Cause;
use super::maps::{Backing, Layout, Mapping, WRITE};
use crate::spec::WRITABLE;

/// One change to the destination's mappings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Unmap(Range<u64>),
    /// Maps anew, over whatever is there.
    Map(Mapping),
    Protect(Range<u64>, u8),
    /// The stack has to reach down to here.
    GrowStack(u64),
}

impl Change {
    pub(super) fn maps_a_file(&self) -> bool {
        matches!(self, Self::Map(Mapping { backing: Backing::File { .. }, .. }))
    }
}

/// The changes that make `destination` like `source`, in the order of addresses.
pub(super) fn changes(source: &Layout, destination: &Layout) -> Result<Vec<Change>, Cause> {
    let mut changes: Vec<Change> = Vec::new();
    let mut borders: Vec<u64> = source
        .mappings
        .iter()
        .chain(&destination.mappings)
        .flat_map(|mapping| [mapping.range.start, mapping.range.end])
        .collect();
    borders.sort_unstable();
    borders.dedup();
    for border in borders.windows(2) {
        let piece = border[0]..border[1];
        let wanted = source.at(piece.start);
        let found = destination.at(piece.start);
        if let Some(change) = change(piece, wanted, found)? {
            add(&mut changes, change);
        }
    }
    Ok(changes)
}

fn change(
    piece: Range<u64>,
    wanted: Option<&Mapping>,
    found: Option<&Mapping>,
) -> Result<Option<Change>, Cause> {
    let behind = |mapping: &Mapping| mapping.backing.at(piece.start - mapping.range.start);
    let is_kernels =
        |mapping: Option<&Mapping>| matches!(mapping, Some(Mapping { backing: Backing::Kernel(_), .. }));
    if let Some(mapping) = wanted
        && mapping.shared
        && mapping.protection & WRITE != 0
    {
        let name = match &mapping.backing {
            Backing::File { path, .. } => path.as_ref(),
            _ => "without a name",
        };
        return Err(Cause::refused(format!("the source has shared memory: {name}")));
    }
    match (wanted, found) {
        (None, None) => Ok(None),
        (Some(wanted), Some(found)) if wanted.shared == found.shared && behind(wanted).is(&behind(found)) => {
            Ok((wanted.protection != found.protection).then_some(Change::Protect(piece, wanted.protection)))
        }
        _ if is_kernels(wanted) || is_kernels(found) => {
            Err(Cause::Unlike(format!("the kernel's own mappings differ at {:x}", piece.start)))
        }
        // A stack that has grown stays that large; there is nothing below it that the source could miss.
        (None, Some(Mapping { backing: Backing::Stack, .. })) => Ok(None),
        (None, Some(_)) => Ok(Some(Change::Unmap(piece))),
        (Some(Mapping { backing: Backing::Stack, .. }), _) => Ok(Some(Change::GrowStack(piece.start))),
        (Some(wanted), _) => {
            if let Backing::File { path, .. } = &wanted.backing
                && path.ends_with(" (deleted)")
            {
                return Err(Cause::refused(format!("the source has mapped a file that was deleted: {path}")));
            }
            let backing = behind(wanted);
            let Mapping { protection, shared, .. } = *wanted;
            Ok(Some(Change::Map(Mapping { range: piece, protection, shared, backing })))
        }
    }
}

/// Joins a change with the one before when they are one.
fn add(changes: &mut Vec<Change>, next: Change) {
    match (changes.last_mut(), &next) {
        (Some(Change::Unmap(last)), Change::Unmap(range)) if last.end == range.start => last.end = range.end,
        (Some(Change::Protect(last, protection)), Change::Protect(range, next))
            if last.end == range.start && protection == next =>
        {
            last.end = range.end;
        }
        (Some(Change::Map(last)), Change::Map(next))
            if last.range.end == next.range.start
                && (last.protection, last.shared) == (next.protection, next.shared)
                && last.backing.at(next.range.start - last.range.start).is(&next.backing) =>
        {
            last.range.end = next.range.end;
        }
        // The lowest comes first.
        (Some(Change::GrowStack(_)), Change::GrowStack(_)) => {}
        _ => changes.push(next),
    }
}

/// Whether all that a change would map is there already, as the same part of the same file seen through another view of the
/// same tree: by its inode, but on another device. Where programs can write, files of two jails have nothing in common.
pub(super) fn is_seen_in_another_view(change: &Change, found: &Layout) -> bool {
    let Change::Map(Mapping { range, protection, shared, backing }) = change else { return false };
    let Backing::File { path, .. } = backing else { return false };
    if path.is_empty() || WRITABLE.iter().any(|(place, ..)| Path::new(path.as_ref()).starts_with(place)) {
        return false;
    }
    let mut at = range.start;
    while at < range.end {
        let Some(there) = found.at(at) else { return false };
        let (wanted, behind) = (backing.at(at - range.start), there.backing.at(at - there.range.start));
        let same = match (&wanted, &behind) {
            (
                Backing::File { inode, offset, .. },
                Backing::File { inode: other_inode, offset: other_offset, .. },
            ) => (inode, offset) == (other_inode, other_offset),
            _ => false,
        };
        if !same || (there.protection, there.shared) != (*protection, *shared) {
            return false;
        }
        at = there.range.end;
    }
    true
}

/// A place where neither has anything, with as much room again on both sides.
pub(super) fn free_place(layouts: [&Layout; 2], size: u64) -> Option<u64> {
    let mut taken: Vec<&Range<u64>> =
        layouts.into_iter().flat_map(|layout| &layout.mappings).map(|mapping| &mapping.range).collect();
    taken.sort_unstable_by_key(|range| range.start);
    let mut end = taken.first()?.end;
    for range in taken {
        // Not right below the stack, which grows into it.
        if range.start >= end + 3 * size {
            return Some(end + size);
        }
        end = end.max(range.end);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(range: Range<u64>, protection: u8, backing: Backing) -> Mapping {
        Mapping { range, protection, shared: false, backing }
    }

    fn file(offset: u64) -> Backing {
        Backing::File { device: (0xfe, 0), inode: 7, offset, path: "/usr/lib/x.so".into() }
    }

    fn layout(mappings: Vec<Mapping>) -> Layout {
        Layout { mappings, heap_end: None }
    }

    #[test]
    fn nothing_to_do_for_twins() {
        let one =
            layout(vec![mapping(0x1000..0x3000, 3, Backing::Anonymous), mapping(0x3000..0x4000, 5, file(0))]);
        assert_eq!(changes(&one, &one).unwrap(), []);
    }

    #[test]
    fn a_mapping_that_was_cut_differently_is_the_same() {
        let whole = layout(vec![mapping(0x1000..0x5000, 1, file(0))]);
        let cut = layout(vec![mapping(0x1000..0x2000, 1, file(0)), mapping(0x2000..0x5000, 3, file(0x1000))]);
        assert_eq!(changes(&cut, &whole).unwrap(), [Change::Protect(0x2000..0x5000, 3)]);
        assert_eq!(changes(&whole, &cut).unwrap(), [Change::Protect(0x2000..0x5000, 1)]);
    }

    #[test]
    fn what_grew_moved_or_went() {
        let source = layout(vec![
            mapping(0x1000..0x8000, 3, Backing::Anonymous),
            mapping(0x8000..0x9000, 1, file(0)),
            mapping(0x9000..0xa000, 1, file(0x1000)),
        ]);
        let destination = layout(vec![
            mapping(0x3000..0x4000, 3, Backing::Anonymous),
            mapping(0xb000..0xd000, 3, Backing::Anonymous),
        ]);
        let expected = [
            Change::Map(mapping(0x1000..0x3000, 3, Backing::Anonymous)),
            Change::Map(mapping(0x4000..0x8000, 3, Backing::Anonymous)),
            Change::Map(mapping(0x8000..0xa000, 1, file(0))),
            Change::Unmap(0xb000..0xd000),
        ];
        assert_eq!(changes(&source, &destination).unwrap(), expected);
    }

    #[test]
    fn a_stack_only_grows() {
        let small = layout(vec![mapping(0x8000..0x9000, 3, Backing::Stack)]);
        let large = layout(vec![mapping(0x5000..0x9000, 3, Backing::Stack)]);
        assert_eq!(changes(&large, &small).unwrap(), [Change::GrowStack(0x5000)]);
        assert_eq!(changes(&small, &large).unwrap(), []);
    }

    #[test]
    fn shared_memory_and_deleted_files_are_named() {
        let mut shared = mapping(0x1000..0x2000, 3, file(0));
        shared.shared = true;
        let refused = changes(&layout(vec![shared.clone()]), &layout(vec![shared])).unwrap_err();
        assert_eq!(refused.to_string(), "the source has shared memory: /usr/lib/x.so");
        let path = "/workspace/gone (deleted)".into();
        let deleted = Backing::File { device: (0, 1), inode: 1, offset: 0, path };
        let refused =
            changes(&layout(vec![mapping(0x1000..0x2000, 1, deleted)]), &layout(vec![])).unwrap_err();
        assert!(refused.to_string().contains("/workspace/gone"), "{refused}");
    }

    #[test]
    fn a_file_of_another_view_is_the_same_where_nobody_writes() {
        let seen = |device, inode, offset, path: &str| Backing::File {
            device: (0, device),
            inode,
            offset,
            path: path.into(),
        };
        let library = "/usr/lib/x.so";
        let change = |path| Change::Map(mapping(0x1000..0x3000, 5, seen(1, 7, 0x1000, path)));
        let there = |protection, inode| {
            layout(vec![
                mapping(0x0000..0x2000, protection, seen(2, inode, 0, "")),
                mapping(0x2000..0x5000, protection, seen(2, inode, 0x2000, "")),
            ])
        };
        assert!(is_seen_in_another_view(&change(library), &there(5, 7)));
        for (other, found) in [
            (change(library), there(5, 8)),
            (change(library), there(1, 7)),
            (change(library), layout(vec![mapping(0x1000..0x3000, 5, seen(2, 7, 0x2000, ""))])),
            (change(library), layout(vec![mapping(0x1000..0x2000, 5, seen(2, 7, 0x1000, ""))])),
            (change("/workspace/x.so"), there(5, 7)),
            (change(""), there(5, 7)),
        ] {
            assert!(!is_seen_in_another_view(&other, &found), "{other:?} {found:?}");
        }
    }

    #[test]
    fn the_kernels_own_have_to_be_equal() {
        let here = layout(vec![mapping(0x1000..0x2000, 5, Backing::Kernel("[vdso]".into()))]);
        let there = layout(vec![mapping(0x3000..0x4000, 5, Backing::Kernel("[vdso]".into()))]);
        assert!(matches!(changes(&here, &there), Err(Cause::Unlike(_))));
    }

    #[test]
    fn a_free_place_is_free_in_both() {
        let one = layout(vec![mapping(0x1000..0x2000, 3, Backing::Anonymous)]);
        let other = layout(vec![
            mapping(0x3000..0x4000, 3, Backing::Anonymous),
            mapping(0x9000..0xa000, 3, Backing::Anonymous),
        ]);
        assert_eq!(free_place([&one, &other], 0x1000), Some(0x5000));
        assert_eq!(free_place([&one, &one], 0x1000), None);
    }
}
