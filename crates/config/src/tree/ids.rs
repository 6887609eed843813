//! The host ids that sandboxes are mapped to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Host user and group ids that sandboxes run under when Sandstorm runs as root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ids {
    /// The first id; at least 65,536, so that no user of this machine is in the range.
    pub start: u32,
    /// How many blocks there are, which is how many sandboxes can exist at once.
    pub blocks: u32,
}

impl Default for Ids {
    fn default() -> Self {
        Ids { start: 2_013_265_920, blocks: 2_000 }
    }
}

impl Ids {
    /// Ids in one block.
    pub const BLOCK: u32 = 65_536;

    /// The first id of a block, if there is such a block.
    pub fn block(&self, index: u32) -> Option<u32> {
        if index >= self.blocks {
            return None;
        }
        self.start.checked_add(index.checked_mul(Self::BLOCK)?)
    }

    /// What is wrong, with the key.
    pub(crate) fn check(&self) -> Option<(&'static str, String, &'static str)> {
        if self.start < Self::BLOCK {
            return Some(("ids.start", self.start.to_string(), "at least 65536"));
        }
        if self.blocks == 0 {
            return Some(("ids.blocks", "0".to_owned(), "at least 1"));
        }
        // The last id of all, 2^32 - 1, means "no user" to the kernel.
        let end = u64::from(self.start) + u64::from(self.blocks) * u64::from(Self::BLOCK);
        if end > u64::from(u32::MAX) {
            let given = format!("the range would end at {}", end - 1);
            return Some(("ids.blocks", given, "a range that ends below 4294967295"));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_range_keeps_out_of_others() {
        let ids = Ids::default();
        assert_eq!(ids.check(), None);
        let first = ids.block(0).unwrap();
        let last = ids.block(ids.blocks - 1).unwrap() + (Ids::BLOCK - 1);
        assert_eq!((first, last), (2_013_265_920, 2_144_337_919));
        assert!(first > 2_000_200_000 && last < 2_147_352_576);
        assert_eq!(ids.block(ids.blocks), None);
    }

    #[test]
    fn impossible_ranges_are_named() {
        let key = |start, blocks| Ids { start, blocks }.check().map(|(key, ..)| key);
        assert_eq!(key(0, 1), Some("ids.start"));
        assert_eq!(key(65_535, 1), Some("ids.start"));
        assert_eq!(key(65_536, 1), None);
        assert_eq!(key(65_536, 0), Some("ids.blocks"));
        assert_eq!(key(65_536, 65_534), None);
        assert_eq!(key(65_536, 65_535), Some("ids.blocks"));
        assert_eq!(key(u32::MAX, 1), Some("ids.blocks"));
        assert_eq!(key(65_536, u32::MAX), Some("ids.blocks"));
    }
}
