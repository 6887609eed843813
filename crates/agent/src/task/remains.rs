//! What the last program of a sandbox leaves behind: its own process once it said its last word, and everything that it
//! started.
//!
//! The host destroys the whole sandbox when it hears of the end. To end everything here before that would make the host
//! wait, and would take a processor from it just when it has the most to do. So the end is told first; what is left is
//! ended here only if the host takes its time, or if it would keep the end from being told.

use std::time::{Duration, Instant};

/// How long the host has to destroy the sandbox.
const LONGEST: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
pub(super) enum Remains {
    /// Nothing that has to be ended.
    #[default]
    Nothing,
    /// Whatever is there is ended at this moment. `wrote`: output came after the program had ended.
    Until { moment: Instant, wrote: bool },
}

impl Remains {
    /// The program ended at this moment.
    pub(super) fn leave(&mut self, now: Instant) {
        *self = Self::Until { moment: now + LONGEST, wrote: false };
    }

    /// Output was found. What the program wrote itself is found at the first look; what comes after that is somebody
    /// else's, who may never stop.
    pub(super) fn found_output(&mut self) {
        match self {
            Self::Until { wrote: true, .. } => self.end(),
            Self::Until { wrote, .. } => *wrote = true,
            Self::Nothing => {}
        }
    }

    pub(super) fn end(&mut self) {
        if let Self::Until { .. } = std::mem::take(self) {
            sandstorm_sys::process::end_everything_else();
        }
    }

    pub(super) fn end_if_due(&mut self, now: Instant) {
        if self.until().is_some_and(|moment| moment <= now) {
            self.end();
        }
    }

    /// When they are ended.
    pub(super) fn until(&self) -> Option<Instant> {
        match self {
            Self::Until { moment, .. } => Some(*moment),
            Self::Nothing => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_given_a_moment_and_no_more() {
        let now = Instant::now();
        let mut remains = Remains::default();
        assert_eq!(remains.until(), None);
        remains.leave(now);
        remains.end_if_due(now);
        let moment = remains.until().unwrap();
        assert_eq!(moment - now, Duration::from_millis(10));
        remains.end_if_due(moment);
        assert_eq!(remains.until(), None);
    }

    #[test]
    fn whoever_goes_on_writing_ends_at_once() {
        let mut remains = Remains::default();
        remains.leave(Instant::now());
        remains.found_output();
        assert!(remains.until().is_some(), "it was the program's");
        remains.found_output();
        assert_eq!(remains.until(), None);
    }
}
