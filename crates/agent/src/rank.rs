//! Scores for when memory runs out: the kernel ends the process with the highest one first.
//!
//! Programs may not write to `/proc`, so that none of them lowers its score, and the agent is under the same rule. It
//! therefore opens its own score before the rule holds. A child inherits the score that the agent has when it forks.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, dumpable_behavior, set_dumpable_behavior};
use sandstorm_sys::fork::{Forked, fork};

/// The score of a PID 1. The highest of all processes is 1000, the ordinary one 0.
pub const AGENT_RANK: i32 = 400;

/// The score of the programs that a PID 1 starts.
pub const PAYLOAD_RANK: i32 = 800;

/// Opens the score of this process, for [`serve`](crate::serve()).
///
/// The files in `/proc` of a process that is not dumpable belong to root of the host, so it becomes dumpable for this. No
/// program runs beside it at that time.
pub fn open_score() -> io::Result<OwnedFd> {
    let closed = !matches!(dumpable_behavior()?, DumpableBehavior::Dumpable);
    if closed {
        set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    }
    let opened = rustix::fs::open("/proc/self/oom_score_adj", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    if closed {
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    }
    Ok(opened?)
}

/// The agent's own score. The null device stands for one that could not be opened: programs have the agent's score then.
#[derive(Debug)]
pub(crate) struct Score(OwnedFd);

impl Score {
    pub(crate) fn new(file: OwnedFd) -> Self {
        Self(file)
    }

    /// Forks a child that has the score of a program from its first moment.
    ///
    /// The agent has that score itself during the fork. A program that made memory run out then has more memory than the
    /// agent, so it still goes first.
    pub(crate) fn fork_payload(&self) -> io::Result<Forked> {
        let own = self.raise();
        let forked = fork();
        // The file is the parent's score on both sides.
        if let (Some(own), false) = (own, matches!(forked, Ok(Forked::Child))) {
            self.write(own);
        }
        forked
    }

    /// Raises the score to that of a program and returns the one before. `None`: it stays as it is.
    fn raise(&self) -> Option<i32> {
        let own = self.read().filter(|own| *own < PAYLOAD_RANK)?;
        self.write(PAYLOAD_RANK).then_some(own)
    }

    fn read(&self) -> Option<i32> {
        let mut text = [0; 16];
        let length = rustix::io::pread(&self.0, &mut text[..], 0).ok()?;
        std::str::from_utf8(&text[..length]).ok()?.trim().parse().ok()
    }

    /// Whether the kernel took it. A host that forbids it loses a preference and nothing else.
    fn write(&self, score: i32) -> bool {
        rustix::io::pwrite(&self.0, score.to_string().as_bytes(), 0).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_is_raised_for_a_fork_and_goes_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("score");
        std::fs::write(&path, "400\n").unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let score = Score::new(file.into());
        assert_eq!(score.raise(), Some(400));
        assert_eq!(score.read(), Some(PAYLOAD_RANK));
        assert_eq!(score.raise(), None, "a score that is high enough is left alone");
        assert!(score.write(400));
        assert_eq!(score.read(), Some(400));
        // A process with a second thread cannot fork.
        let refused =
            std::thread::scope(|scope| scope.spawn(|| score.fork_payload().is_err()).join().unwrap());
        assert!(refused);
        assert_eq!(score.read(), Some(400), "it stays raised after a fork that failed");
    }

    #[test]
    fn without_a_score_nothing_is_raised() {
        let null = std::fs::File::options().read(true).write(true).open("/dev/null").unwrap();
        assert_eq!(Score::new(null.into()).raise(), None);
    }
}
