//! Groups whose jail is gone and that wait for the next.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cgroup::{Hierarchies, Leaf};
use crate::spec::JailLimits;

/// Those that wait. Each holds about fifteen descriptors.
const MOST: usize = 64;

/// What a jail used is gone some milliseconds after its end. What is not after this long is there for good.
const COOLING: Duration = Duration::from_millis(500);

/// One that nobody wanted for so long is of no use: its descriptors make every fork of the launcher dearer.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// The oldest first; the latest that can be had is the first to go, so that what is too many is left to grow old.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    resting: VecDeque<Resting>,
    made: u64,
}

#[derive(Debug)]
struct Resting {
    leaf: Leaf,
    since: Instant,
}

impl Spares {
    /// Groups for a jail of this name: those of another that is gone, or new ones. `space`: see [`Leaf::create`].
    pub(crate) fn take(
        &mut self,
        hierarchies: &Hierarchies,
        parent: &Path,
        name: &str,
        limits: &JailLimits,
        space: u64,
    ) -> Leaf {
        if !Leaf::may_last(hierarchies) {
            return Leaf::create(hierarchies, parent, name, limits, space);
        }
        self.rested(hierarchies, parent, name, limits, space).unwrap_or_else(|| {
            self.made += 1;
            // No jail has an underscore in its name.
            let own = format!("groups_{}", self.made);
            Leaf::create_lasting(hierarchies, parent, (&own, name), limits, space)
        })
    }

    fn rested(
        &mut self,
        hierarchies: &Hierarchies,
        parent: &Path,
        name: &str,
        limits: &JailLimits,
        space: u64,
    ) -> Option<Leaf> {
        for at in (0..self.resting.len()).rev() {
            let Resting { leaf, since } = &self.resting[at];
            let fits = leaf.fits(limits, space);
            let has_cooled = fits && leaf.has_cooled();
            if !has_cooled && (!fits || since.elapsed() < COOLING) {
                continue;
            }
            let Resting { mut leaf, .. } = self.resting.remove(at)?;
            if has_cooled && leaf.wake(hierarchies, parent, name) {
                return Some(leaf);
            }
            leaf.remove();
        }
        None
    }

    /// Takes groups back from a jail that is gone. What is of no use is removed; the paths that could not be removed come
    /// back.
    pub(crate) fn give_back(&mut self, mut leaf: Leaf) -> Vec<PathBuf> {
        if !leaf.rest() {
            return leaf.remove();
        }
        self.resting.push_back(Resting { leaf, since: Instant::now() });
        let (count, oldest) = (self.resting.len(), self.resting.front());
        if count > MOST || oldest.is_some_and(|oldest| oldest.since.elapsed() > LONGEST_REST) {
            return self.resting.pop_front().map(|oldest| oldest.leaf.remove()).unwrap_or_default();
        }
        Vec::new()
    }
}
