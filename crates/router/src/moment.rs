//! Time as the caller tells it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment, in microseconds since a beginning of the caller's choice. Nothing in this crate reads a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(u64);

impl Moment {
    pub const START: Self = Self(0);

    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    pub const fn micros(self) -> u64 {
        self.0
    }

    /// Later by `span`; stops at the end of time.
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }

    /// Time from `earlier` to here; none when it is not earlier.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Makes a clock that may jump one that only goes on. The state machines of this crate are given its moments: after a jump
/// backwards time stands still for one step and then goes on from there, so that a hold never becomes longer than it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SteadyClock {
    seen: Option<Moment>,
    steady: Moment,
}

impl SteadyClock {
    pub fn at(&mut self, now: Moment) -> Moment {
        let step = self.seen.map_or(Duration::ZERO, |seen| now.since(seen));
        self.seen = Some(now);
        self.steady = self.steady.after(step);
        self.steady
    }

    /// One that goes on from a moment.
    pub const fn from(moment: Moment) -> Self {
        Self { seen: None, steady: moment }
    }

    /// The last moment that was given.
    pub const fn last(&self) -> Moment {
        self.steady
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_jump_backwards_stops_time_for_one_step_only() {
        let mut clock = SteadyClock::default();
        let at = |clock: &mut SteadyClock, seconds| clock.at(Moment::from_secs(seconds)).micros() / 1_000_000;
        assert_eq!(at(&mut clock, 1000), 0);
        assert_eq!(at(&mut clock, 1010), 10);
        assert_eq!(at(&mut clock, 5), 10);
        assert_eq!(at(&mut clock, 8), 13);
    }

    proptest! {
        #[test]
        fn it_never_goes_back(moments in prop::collection::vec(any::<u64>(), 1..50)) {
            let mut clock = SteadyClock::default();
            let steady: Vec<_> = moments.into_iter().map(|now| clock.at(Moment::from_micros(now))).collect();
            prop_assert!(steady.is_sorted());
        }
    }
}
