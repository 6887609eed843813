//! How large an image is for what is to fit into it.
//!
//! A file system of the ext family is made of groups, each with a table of its share of the inodes. All groups are of one
//! size here, so that its maker cuts nothing off at the end.

/// Numbers that are handed to `mke2fs`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// Blocks of each group.
    pub(super) group: u64,
    groups: u64,
    pub(super) inodes: u64,
}

impl Size {
    pub(super) const BLOCK: u64 = 4096;
    pub(super) const INODE: u64 = 256;

    /// What one block of a bitmap can tell of.
    const LARGEST_GROUP: u64 = 8 * Self::BLOCK;
    const SMALLEST_GROUP: u64 = 256;
    /// Far from as many as a group can have, since its maker rounds.
    const MOST_INODES: u64 = 16_384;
    /// Inodes that the file system has for itself, and those of the directories that are shown.
    const OWN_INODES: u64 = 11 + 5;
    /// Blocks of the same.
    const OWN_BLOCKS: u64 = 16;
    /// The kernel keeps a fiftieth of all blocks back, and never more than this.
    const MOST_RESERVED: u64 = 4096;

    /// Room for so many bytes of files, and so many files.
    pub(super) fn of(bytes: u64, inodes: u64) -> Self {
        let inodes = inodes.saturating_add(Self::OWN_INODES);
        let data = bytes.div_ceil(Self::BLOCK).saturating_add(Self::OWN_BLOCKS);
        let tables = inodes.div_ceil(Self::BLOCK / Self::INODE);
        let reserved = (data.saturating_add(tables) / 45).min(Self::MOST_RESERVED);
        let data = data.saturating_add(reserved);
        let mut groups = data.div_ceil(Self::LARGEST_GROUP).max(inodes.div_ceil(Self::MOST_INODES)).max(1);
        loop {
            let group = data.div_ceil(groups).saturating_add(overhead(groups, inodes));
            let group = group.next_multiple_of(8).max(Self::SMALLEST_GROUP);
            if group <= Self::LARGEST_GROUP {
                return Self { group, groups, inodes };
            }
            groups += groups / 64 + 1;
        }
    }

    /// Of the whole image.
    pub(super) fn bytes(&self) -> u64 {
        self.group.saturating_mul(self.groups).saturating_mul(Self::BLOCK)
    }
}

/// Blocks of a group that hold no files: its table, two bitmaps, and copies of what describes all groups.
fn overhead(groups: u64, inodes: u64) -> u64 {
    const DESCRIPTION: u64 = 64;
    let table = inodes.div_ceil(groups).div_ceil(Size::BLOCK / Size::INODE);
    table + 2 + 1 + (groups * DESCRIPTION).div_ceil(Size::BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_never_larger_than_they_may_be() {
        for bytes in [1 << 20, 5 << 20, 128 << 20, 129 << 20, 1 << 30, 1 << 40, 16 << 40] {
            for inodes in [1, 1000, 1 << 20, 1 << 30] {
                let size = Size::of(bytes, inodes);
                assert!((256..=32_768).contains(&size.group) && size.group.is_multiple_of(8), "{size:?}");
                assert!(size.bytes() >= bytes + inodes * Size::INODE, "{size:?}");
                assert!(size.inodes / size.groups <= 16_384, "{size:?}");
            }
        }
    }
}
