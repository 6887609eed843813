//! Whether callers may write where they are, by how long that took of late.

use std::time::{Duration, Instant};

/// What a caller may lose to the disk, as it usually is: it holds up everything else on its thread meanwhile.
const SLOW: Duration = Duration::from_millis(3);
/// How long callers then leave it to the thread that may wait.
const REST: Duration = Duration::from_secs(1);

/// One write that was interrupted says little, so what counts is the mean of the last few.
#[derive(Debug, Default)]
pub(super) struct Pace {
    mean: Duration,
    resting_until: Option<Instant>,
}

impl Pace {
    pub(super) fn allows(&self, now: Instant) -> bool {
        self.resting_until.is_none_or(|until| now >= until)
    }

    pub(super) fn took(&mut self, time: Duration, now: Instant) {
        self.mean = (self.mean * 7 + time) / 8;
        if self.mean > SLOW {
            *self = Self { mean: Duration::ZERO, resting_until: Some(now + REST) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_writes_send_callers_away_for_a_while() {
        let now = Instant::now();
        let mut pace = Pace::default();
        pace.took(Duration::from_millis(50), now);
        assert!(!pace.allows(now) && !pace.allows(now + REST / 2));
        assert!(pace.allows(now + REST));
        for _ in 0..20 {
            pace.took(Duration::from_millis(5), now);
        }
        assert!(!pace.allows(now), "also when each is only a little slow");
    }

    #[test]
    fn one_that_was_interrupted_is_no_reason() {
        let now = Instant::now();
        let mut pace = Pace::default();
        for _ in 0..20 {
            pace.took(Duration::from_millis(10), now);
            assert!(pace.allows(now));
            (0..30).for_each(|_| pace.took(Duration::from_micros(80), now));
        }
    }
}
