//! Looking at what the programs of a jail have of its memory, where the kernel's limit is not theirs alone.

use std::os::fd::BorrowedFd;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::cgroup::Leaf;

/// Nobody takes memory faster than so many bytes a second.
const FASTEST: u64 = 4 << 30;
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);

/// How soon is seen that programs have no more than they may again: what is written meanwhile has less room, too.
const SOON: Duration = Duration::from_millis(2);

/// Looks that are far between are made at the same time for all jails.
const STEP: Duration = Duration::from_millis(100);
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// When to look, and what was found.
#[derive(Debug)]
pub(super) struct Appetite {
    next: Instant,
    pace: Duration,
    seen: u64,
    narrowed: bool,
}

impl Appetite {
    /// `None`: the kernel sees to it alone, or cannot.
    pub(super) fn of(leaf: &Leaf) -> Option<Self> {
        let first = Self { next: Instant::now(), pace: SHORTEST, seen: 0, narrowed: false };
        leaf.shares_memory()
            .then(|| Self { next: Instant::now() + time_to_take(leaf.memory_limit()), ..first })
    }

    pub(super) fn next_look(&self) -> Instant {
        self.next
    }

    /// Looks if it is time to. `true`: programs have more than they may. Then they get nothing more, until they have less or
    /// the kernel has ended one of them for it.
    pub(super) fn is_too_much(&mut self, leaf: &Leaf, scratch: BorrowedFd<'_>) -> bool {
        if self.next > Instant::now() {
            return false;
        }
        let (limit, used) = (leaf.memory_limit(), leaf.program_memory(scratch).unwrap_or(0));
        let too_much = used > limit;
        if too_much {
            leaf.narrow();
        } else if self.narrowed {
            leaf.widen();
        }
        self.narrowed = too_much;
        self.plan(limit.saturating_sub(used), used);
        too_much
    }

    /// Looks at the next occasion: the kernel has ended a process, and what is left may have all again.
    pub(super) fn hurry(&mut self) {
        if self.narrowed {
            (self.next, self.pace) = (Instant::now(), SOON);
        }
    }

    /// What does nothing is looked at less and less often.
    fn plan(&mut self, left: u64, used: u64) {
        let soonest = if self.narrowed { SOON } else { time_to_take(left) };
        let calm = if used == self.seen { self.pace.saturating_mul(2) } else { soonest };
        self.seen = used;
        self.pace = calm.clamp(soonest, LONGEST);
        let next = Instant::now() + self.pace;
        let late = next.saturating_duration_since(*EPOCH).as_millis() % STEP.as_millis();
        let aligned = next - Duration::from_millis(u64::try_from(late).unwrap_or(0));
        self.next = if self.pace > 2 * STEP { aligned } else { next };
    }
}

/// How long it takes at least to take so much.
fn time_to_take(bytes: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / FASTEST as f64).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_little_left_is_looked_at_often_and_who_does_nothing_seldom() {
        let mut appetite = Appetite { next: Instant::now(), pace: SHORTEST, seen: 0, narrowed: false };
        let mut wait = |left: u64, used: u64| {
            appetite.plan(left, used);
            appetite.next.saturating_duration_since(Instant::now())
        };
        assert!(wait(0, 64 << 20) <= SHORTEST);
        let long = wait(1 << 30, 1);
        assert!(Duration::from_millis(100) < long && long <= Duration::from_millis(250), "{long:?}");
        for _ in 0..4 {
            wait(1 << 20, 7);
        }
        for _ in 0..8 {
            wait(1 << 20, 8);
        }
        let idle = wait(1 << 20, 8);
        assert!(Duration::from_millis(500) < idle && idle <= LONGEST, "{idle:?}");
        assert!(wait(1 << 20, 9) <= SHORTEST, "it does something");
    }

    #[test]
    fn who_has_too_much_and_does_nothing_is_looked_at_seldom_until_something_was_ended() {
        let mut appetite = Appetite { next: Instant::now(), pace: SHORTEST, seen: 7, narrowed: true };
        let mut last = Duration::ZERO;
        for _ in 0..12 {
            appetite.plan(0, 7);
            last = appetite.next.saturating_duration_since(Instant::now());
        }
        assert!(Duration::from_millis(500) < last && last <= LONGEST, "{last:?}");
        appetite.hurry();
        assert!(appetite.next_look() <= Instant::now());
        appetite.plan(0, 7);
        assert!(appetite.next.saturating_duration_since(Instant::now()) <= SOON * 2);
        for _ in 0..12 {
            appetite.plan(0, 7);
        }
        appetite.plan(0, 6);
        assert!(appetite.next.saturating_duration_since(Instant::now()) <= SOON, "it does something");
        appetite.narrowed = false;
        let next = appetite.next_look();
        appetite.hurry();
        assert_eq!(appetite.next_look(), next, "nothing is held from it");
    }
}
