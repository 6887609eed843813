//! Processes that a program started and did not wait for. What they used belongs to the program.
//!
//! With control groups the host counts for itself. Without, what the agent collects is all there is: of processes that
//! still run when the last program of a sandbox ends, that is known only when they have ended, too.

use std::time::{Duration, Instant};

use sandstorm_sys::process::Reaped;

use crate::protocol::TaskUsage;

/// How long the end of a program waits for the ends of what it left. They were killed, so it takes longer only where the
/// machine is busy, or one of them is stuck in the kernel.
const LONGEST: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Others {
    user: Duration,
    system: Duration,
    peak: u64,
    /// Whether nobody else counts, so that all of them have to be collected before the end is told.
    only_here: bool,
    awaited_until: Option<Instant>,
}

impl Others {
    pub(super) fn count(&mut self, only_here: bool) {
        self.only_here = only_here;
    }

    pub(super) fn add(&mut self, reaped: Reaped) {
        self.user += reaped.user_time;
        self.system += reaped.system_time;
        self.peak = self.peak.max(reaped.peak_memory_bytes);
    }

    /// The program ended. `true`: what it left has to be ended now, because its end waits for it.
    pub(super) fn begin_to_wait(&mut self, now: Instant) -> bool {
        if self.only_here {
            self.awaited_until = Some(now + LONGEST);
        }
        self.only_here
    }

    pub(super) fn are_gone(&mut self) {
        self.awaited_until = None;
    }

    pub(super) fn is_awaited(&self, now: Instant) -> bool {
        self.awaited_until.is_some_and(|until| now < until)
    }

    /// When they are not waited for any more.
    pub(super) fn until(&self) -> Option<Instant> {
        self.awaited_until
    }

    /// What they and the program used together.
    pub(super) fn and(&self, program: Reaped) -> TaskUsage {
        let microseconds = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        TaskUsage {
            user_microseconds: microseconds(program.user_time + self.user),
            system_microseconds: microseconds(program.system_time + self.system),
            peak_memory_bytes: program.peak_memory_bytes.max(self.peak),
        }
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_sys::process::Ending;

    use super::*;

    fn reaped(milliseconds: u64, peak_memory_bytes: u64) -> Reaped {
        let time = Duration::from_millis(milliseconds);
        Reaped { pid: 7, ending: Ending::Code(0), user_time: time, system_time: time / 2, peak_memory_bytes }
    }

    #[test]
    fn what_they_used_is_the_programs() {
        let mut others = Others::default();
        others.add(reaped(20, 5));
        others.add(reaped(4, 9));
        let usage = others.and(reaped(2, 7));
        assert_eq!((usage.user_microseconds, usage.system_microseconds), (26_000, 13_000));
        assert_eq!(usage.peak_memory_bytes, 9);
    }

    #[test]
    fn they_are_waited_for_only_where_nobody_else_counts() {
        let now = Instant::now();
        let mut others = Others::default();
        assert!(!others.begin_to_wait(now) && !others.is_awaited(now));
        others.count(true);
        assert!(others.begin_to_wait(now) && others.is_awaited(now));
        assert!(!others.is_awaited(now + LONGEST), "not for ever");
        others.are_gone();
        assert!(!others.is_awaited(now));
    }
}
