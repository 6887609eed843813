//! Outcomes of one provider, region and class, fading.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::histogram::Histogram;
use super::memory::Memory;
use crate::Moment;

/// Hits and misses that fade.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Tally {
    pub(super) successes: f64,
    pub(super) failures: f64,
}

impl Tally {
    fn fade(&mut self, share: f64) {
        self.successes *= share;
        self.failures *= share;
    }

    pub(super) fn faded(mut self, share: f64) -> Self {
        self.fade(share);
        self
    }

    pub(super) fn weight(&self) -> f64 {
        self.successes + self.failures
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Arm {
    pub(super) latency: Histogram,
    /// All outcomes.
    pub(super) long: Tally,
    /// Those of late.
    pub(super) recent: Tally,
    /// Time that failed attempts took, and how many of them that is.
    failure_ms: f64,
    failure_weight: f64,
    last: Moment,
}

impl Arm {
    fn age(&mut self, now: Moment, memory: &Memory) {
        let elapsed = now.since(self.last);
        self.last = self.last.max(now);
        let long = memory.fade(elapsed);
        self.latency.fade(long);
        self.long.fade(long * memory.crowd());
        self.recent.fade(memory.fade_recent(elapsed) * memory.crowd_recent());
    }

    pub(super) fn succeeded(&mut self, now: Moment, latency: Duration, memory: &Memory) {
        self.age(now, memory);
        self.latency.fade(memory.crowd());
        self.latency.add(latency);
        self.long.successes += 1.0;
        self.recent.successes += 1.0;
    }

    pub(super) fn failed(&mut self, now: Moment, took: Option<Duration>, memory: &Memory) {
        self.age(now, memory);
        let took = took.unwrap_or(memory.unknown_failure_time).as_secs_f64() * 1000.0;
        self.failure_ms = self.failure_ms * memory.crowd_recent() + took;
        self.failure_weight = self.failure_weight * memory.crowd_recent() + 1.0;
        self.long.failures += 1.0;
        self.recent.failures += 1.0;
    }

    /// How much of the long and of the recent memory is left at `now`.
    pub(super) fn left(&self, now: Moment, memory: &Memory) -> (f64, f64) {
        let elapsed = now.since(self.last);
        (memory.fade(elapsed), memory.fade_recent(elapsed))
    }

    /// Since the last outcome.
    pub(super) fn unseen(&self, now: Moment) -> Duration {
        now.since(self.last)
    }

    /// What a failed attempt takes here; `None` where none has failed.
    /// Whether it can have come about; what is read from a file need not.
    pub(super) fn is_sound(&self, now: Moment) -> bool {
        let good = |number: f64| number.is_finite() && number >= 0.0;
        let tallies = [self.long.successes, self.long.failures, self.recent.successes, self.recent.failures];
        let numbers = tallies.into_iter().chain([self.failure_ms, self.failure_weight]);
        self.latency.is_sound() && numbers.into_iter().all(good) && self.last <= now
    }

    pub(super) fn failure_ms(&self) -> Option<f64> {
        (self.failure_weight > 0.0).then(|| self.failure_ms / self.failure_weight)
    }
}
