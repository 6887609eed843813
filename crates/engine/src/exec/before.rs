//! What the kernel had counted before a program began, without making the program wait for it.
//!
//! Where this process cannot read it, the launcher is asked, and the program is started meanwhile. An answer that is there
//! when the program begins was read before the program could do anything, and counts. One that is not might tell of what
//! the program did itself; then the highest reading from before counts. That one is exact unless something else in the
//! sandbox met a limit in between, and errs by blaming the program that ran, not by blaming nobody.

use sandstorm_jail::cgroup::{Counters, Extent};
use tokio::sync::oneshot;

use super::Tally;
use crate::living::Living;

/// A reading that was asked for.
#[derive(Debug)]
pub(super) struct Before {
    known: Tally,
    asked: Option<oneshot::Receiver<Option<Counters>>>,
}

impl Before {
    /// Reads or asks, where programs have been before and what they left in the counters matters.
    pub(super) fn ask(living: &Living) -> Self {
        if !living.blame.needs_tally() || living.agent.is_untouched() {
            return Self { known: living.blame.known(), asked: None };
        }
        match living.read_counters(Extent::Verdict) {
            Some(read) => Self { known: living.blame.note(Tally::of(&read)), asked: None },
            None => Self { known: living.blame.known(), asked: living.launcher.count_soon(&living.jail) },
        }
    }

    /// What is known already.
    pub(super) fn known(&self) -> Tally {
        self.known
    }

    /// What counts, now that the program begins.
    pub(super) fn settle(self, living: &Living) -> Tally {
        match self.asked.map(|mut asked| asked.try_recv()) {
            Some(Ok(Some(counters))) => {
                let read = Tally::of(&counters);
                living.blame.note(read);
                read
            }
            _ => self.known,
        }
    }
}
