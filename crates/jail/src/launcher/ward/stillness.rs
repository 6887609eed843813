//! Stopping a jail and letting it go on.

use std::time::{Duration, Instant};

use super::Ward;
use crate::cgroup::Reclaim;
use crate::error::{JailError, doing};

/// How long everything in a jail may take to stand still, and how often that is looked at.
const STOP_WITHIN: Duration = Duration::from_secs(10);
const STOP_LOOK: Duration = Duration::from_millis(1);

/// Whether a jail moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Still {
    Moving,
    /// Given up at this time.
    Stopping(Instant),
    /// With what is left of its lifetime.
    Stopped(Option<Duration>),
}

impl Ward {
    pub(in crate::launcher) fn is_paused(&self) -> bool {
        matches!(self.still, Still::Stopped(_))
    }

    /// Starts to stop everything in it; [`Ward::settled`] tells how that went.
    pub(in crate::launcher) fn pause(&mut self) -> Result<(), JailError> {
        if self.still == Still::Moving {
            let leaf = self.leaf.as_ref().ok_or(JailError::NoFreezer)?;
            leaf.freeze(true).map_err(|_| JailError::NoFreezer)?;
            self.still = Still::Stopping(Instant::now() + STOP_WITHIN);
        }
        Ok(())
    }

    /// Whether a pause that was asked for came about; `None` while that is open.
    pub(in crate::launcher) fn settled(&mut self) -> Option<Result<(), JailError>> {
        let Still::Stopping(give_up) = self.still else { return Some(Ok(())) };
        let leaf = self.leaf.as_ref()?;
        let now = Instant::now();
        if leaf.is_frozen() {
            // Time does not pass for what stands still.
            self.still = Still::Stopped(self.dies_at.take().map(|at| at.saturating_duration_since(now)));
            return Some(Ok(()));
        }
        (give_up <= now).then(|| {
            let _ = leaf.freeze(false);
            self.still = Still::Moving;
            Err(JailError::Frozen)
        })
    }

    pub(in crate::launcher) fn resume(&mut self) -> Result<(), JailError> {
        if let Some(leaf) = self.leaf.as_ref().filter(|_| self.still != Still::Moving) {
            leaf.freeze(false).map_err(doing("let the jail go on"))?;
        }
        if let Still::Stopped(left) = self.still {
            self.dies_at = left.and_then(|left| Instant::now().checked_add(left));
        }
        self.still = Still::Moving;
        Ok(())
    }

    /// How the kernel is asked for its memory, while it stands still.
    pub(in crate::launcher) fn reclaim(&self) -> Option<Reclaim> {
        self.leaf.as_ref().filter(|_| self.is_paused())?.reclaim()
    }

    /// When to look whether it stands still.
    pub(super) fn next_still_look(&self) -> Option<Instant> {
        matches!(self.still, Still::Stopping(_)).then(|| Instant::now() + STOP_LOOK)
    }

    /// Sets what is left of its life, from now on or from when it goes on.
    pub(super) fn live_for(&mut self, lifetime: Option<Duration>) {
        match &mut self.still {
            Still::Stopped(left) => *left = lifetime,
            _ => self.dies_at = lifetime.and_then(|lifetime| Instant::now().checked_add(lifetime)),
        }
    }
}
