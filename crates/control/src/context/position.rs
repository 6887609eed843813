//! A place between two messages of a kernel.

/// Bits for the bytes of an event that belong to messages before the place. An event has at most 64 KiB.
const SKIP_BITS: u32 = 20;

/// An event, and how many of its bytes belong to messages before the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) event: u64,
    pub(crate) skip: usize,
}

impl Position {
    /// As one number that grows with the place and fits into a signed one.
    pub(crate) fn pack(self) -> u64 {
        let skip = (self.skip as u64).min((1 << SKIP_BITS) - 1);
        ((self.event << SKIP_BITS) & (i64::MAX as u64)) | skip
    }

    pub(crate) fn unpack(packed: u64) -> Self {
        Self { event: packed >> SKIP_BITS, skip: (packed & ((1 << SKIP_BITS) - 1)) as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_survive_being_a_number() {
        for (event, skip) in [(0, 0), (1, 65_536), (1 << 40, 17)] {
            let place = Position { event, skip };
            assert_eq!(Position::unpack(place.pack()), place);
        }
        assert!(Position { event: 2, skip: 0 }.pack() > Position { event: 1, skip: 65_536 }.pack());
    }
}
