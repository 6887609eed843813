//! When the output of a task is left alone for a moment.
//!
//! Every piece that is taken at once wakes this process, the host's, and whoever follows the program there. What a program
//! writes in quick succession is worth waiting for: it goes to the host in one go. A short program comes to its end
//! meanwhile, and then its beginning, its output and its end are one message.

use std::time::{Duration, Instant};

/// How long output is left alone at most.
const LONGEST: Duration = Duration::from_millis(1);

/// Whoever writes this much at once fills its pipe before long: nothing is gained by waiting.
const LARGE: usize = 4 * 1024;

#[derive(Debug, Default)]
pub(super) struct Rest {
    until: Option<Instant>,
    /// Whether what was said before is kept back, too.
    holds: bool,
}

impl Rest {
    /// The program begins: the host hears of that together with what follows.
    pub(super) fn begin_held(&mut self, now: Instant) {
        *self = Self { until: Some(now + LONGEST), holds: true };
    }

    /// The program was given something to do and will say when it is done.
    pub(super) fn begin(&mut self, now: Instant) {
        *self = Self { until: Some(now + LONGEST), holds: false };
    }

    /// A piece of this length was taken; more of that size may follow soon.
    pub(super) fn taken(&mut self, length: usize, now: Instant) {
        if length >= LARGE {
            self.end();
        } else if !self.holds(now) {
            self.begin(now);
        }
    }

    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// When output is looked at again; `None`: now.
    pub(super) fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| *until > now)
    }

    /// Whether the host is told nothing yet.
    pub(super) fn holds(&self, now: Instant) -> bool {
        self.holds && self.until(now).is_some()
    }
}
