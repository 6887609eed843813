//! Which program a limit is put down to, where one runs after the other and several at a time.
//!
//! The kernel counts for the sandbox, not for a program. So what counts is what grew while a program ran; and what was
//! put down to one program is not put down to another that merely ran at the same time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sandstorm_agent::protocol::Ending;
use sandstorm_jail::OnMemory;
use sandstorm_jail::cgroup::Counters;
use serde::{Deserialize, Serialize};

/// The kernel may end processes of several programs in one go; the ends of those come this close to each other.
const TOGETHER: Duration = Duration::from_secs(2);

const KILL: i32 = 9;

/// What the kernel had counted at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) memory_kills: u64,
    pub(crate) process_refusals: u64,
}

impl Tally {
    pub(crate) fn of(counters: &Counters) -> Self {
        Self {
            memory_kills: counters.memory_kills.unwrap_or(0),
            process_refusals: counters.process_refusals.unwrap_or(0),
        }
    }
}

/// What was put down to programs of one sandbox so far.
#[derive(Debug)]
pub(crate) struct Blame {
    on_memory: OnMemory,
    claimed: Mutex<Claimed>,
    /// The highest that was read so far.
    known: Mutex<Tally>,
}

#[derive(Debug, Default)]
struct Claimed {
    memory_kills: u64,
    at: Option<Instant>,
}

/// What memory has to do with the end of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    Nothing,
    /// It ran out while the program ran, which came to a good end nevertheless.
    Touched,
    EndedIt,
}

impl Blame {
    pub(crate) fn new(on_memory: OnMemory) -> Self {
        Self { on_memory, claimed: Mutex::default(), known: Mutex::default() }
    }

    /// Takes a reading into account, and gives the highest so far.
    pub(crate) fn note(&self, read: Tally) -> Tally {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.memory_kills = known.memory_kills.max(read.memory_kills);
        known.process_refusals = known.process_refusals.max(read.process_refusals);
        *known
    }

    /// The highest reading so far.
    pub(crate) fn known(&self) -> Tally {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a program begins where others have been before, so that what they left in the counters matters.
    pub(crate) fn needs_tally(&self) -> bool {
        self.on_memory == OnMemory::EndProcess
    }

    /// Decides for a program that ended as `ending` tells, with these counts at its begin and at its end.
    pub(crate) fn memory(&self, began: Tally, now: Tally, ending: Option<Ending>) -> Memory {
        if now.memory_kills <= began.memory_kills {
            return Memory::Nothing;
        }
        if self.on_memory == OnMemory::EndAll {
            // Whatever the program made of it: a shell turns the end of its child into an exit code, and the launcher,
            // which ends the whole sandbox for it, may not have got there yet.
            return Memory::EndedIt;
        }
        let mut claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        let together = claimed.at.is_some_and(|at| at.elapsed() < TOGETHER);
        if now.memory_kills <= claimed.memory_kills && !(together && ending == Some(Ending::Signal(KILL))) {
            return Memory::Nothing;
        }
        if ending == Some(Ending::Code(0)) {
            return Memory::Touched;
        }
        *claimed =
            Claimed { memory_kills: now.memory_kills.max(claimed.memory_kills), at: Some(Instant::now()) };
        Memory::EndedIt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED: Option<Ending> = Some(Ending::Signal(KILL));
    const FAILED: Option<Ending> = Some(Ending::Code(1));
    const FINE: Option<Ending> = Some(Ending::Code(0));

    fn kills(memory_kills: u64) -> Tally {
        Tally { memory_kills, ..Tally::default() }
    }

    #[test]
    fn only_what_grew_while_it_ran_counts() {
        let blame = Blame::new(OnMemory::EndProcess);
        assert_eq!(blame.memory(kills(3), kills(3), KILLED), Memory::Nothing, "killed by somebody else");
        assert_eq!(blame.memory(kills(3), kills(4), KILLED), Memory::EndedIt);
        assert_eq!(blame.memory(kills(4), kills(4), FAILED), Memory::Nothing, "the next is clean");
        assert_eq!(blame.memory(kills(4), kills(5), FAILED), Memory::EndedIt, "a shell tells it as a code");
    }

    #[test]
    fn a_bystander_is_not_blamed_for_what_another_did() {
        let blame = Blame::new(OnMemory::EndProcess);
        assert_eq!(blame.memory(kills(0), kills(1), KILLED), Memory::EndedIt);
        for ending in [FINE, FAILED] {
            assert_eq!(blame.memory(kills(0), kills(1), ending), Memory::Nothing);
        }
        assert_eq!(blame.memory(kills(0), kills(1), KILLED), Memory::EndedIt, "both were ended in one go");
        blame.claimed.lock().unwrap().at = Instant::now().checked_sub(TOGETHER);
        assert_eq!(blame.memory(kills(0), kills(1), KILLED), Memory::Nothing, "much later");
    }

    #[test]
    fn a_good_end_takes_no_blame_and_leaves_it_to_others() {
        let blame = Blame::new(OnMemory::EndProcess);
        assert_eq!(blame.memory(kills(0), kills(1), FINE), Memory::Touched);
        assert_eq!(blame.memory(kills(0), kills(1), FAILED), Memory::EndedIt);
    }

    #[test]
    fn a_run_of_its_own_ends_whatever_its_program_says() {
        let blame = Blame::new(OnMemory::EndAll);
        assert_eq!(blame.memory(kills(0), kills(1), FINE), Memory::EndedIt);
        assert_eq!(blame.memory(kills(0), kills(0), KILLED), Memory::Nothing);
    }
}
