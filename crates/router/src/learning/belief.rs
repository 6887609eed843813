//! What the latency and the failures of a place probably are.
//!
//! Latencies are judged by their logarithm: the median, with a normal distribution around it that is as wide as the samples
//! are few. Failures are judged by a beta distribution over all outcomes, and by those of late on top of it.

use serde::Serialize;

use super::arm::Arm;
use super::memory::Memory;
use crate::{Moment, Random};

/// Before anything is seen: a second and a half, which may as well be half a second or four.
const PRIOR: Belief = Belief {
    samples: 0.0,
    p50_ms: 1500.0,
    p80_ms: 2000.0,
    p95_ms: 3750.0,
    p99_ms: 7500.0,
    mean_ms: 1800.0,
    deviation: 1.0,
    spread: 0.5,
    failures: 0.02,
    successes: 0.98,
    recent_failure: 0.02,
    failure_ms: 3000.0,
};

/// How many samples the prior, or what is known of all classes together, is worth. The prior is worth next to nothing: that few
/// samples are few is in the deviation, and to count it here again would keep users from whom probes have found to be better.
const PRIOR_SAMPLES: f64 = 0.05;
const POOLED_SAMPLES: f64 = 2.0;
/// How many outcomes the long memory is worth to that of late.
const LONG_IN_RECENT: f64 = 2.0;

/// A belief about one place. Times are milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Belief {
    /// About how many outcomes it rests on.
    pub samples: f64,
    pub p50_ms: f64,
    pub p80_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    /// The mean, with the slowest twentieth counted as its beginning: who has luck once in twenty is not the slower for it.
    pub mean_ms: f64,
    /// How uncertain the median is: the deviation of its logarithm.
    pub deviation: f64,
    /// How far single runs lie apart: the deviation of their logarithm.
    spread: f64,
    /// Outcomes of each kind, with what is assumed before any is seen.
    failures: f64,
    successes: f64,
    /// Share of failures of late.
    recent_failure: f64,
    /// What a failed attempt takes.
    pub failure_ms: f64,
}

impl Belief {
    /// Before anything is seen.
    pub const fn prior() -> Self {
        PRIOR
    }

    /// From what `arm` has seen, beginning with what `before` believes.
    pub(super) fn of(arm: &Arm, before: &Self, now: Moment, memory: &Memory) -> Self {
        let (left, left_recent) = arm.left(now, memory);
        // What was seen stays where it was, and becomes uncertain with time.
        let seen = arm.latency.weight();
        let prior = if before.samples > 0.0 { POOLED_SAMPLES.min(before.samples) } else { PRIOR_SAMPLES };
        let all = seen + prior;
        // Geometric means, since a median of 100 ms is to one of 1 s as that is to 10 s.
        let mix = |found: f64, assumed: f64| ((seen * found.ln() + prior * assumed.ln()) / all).exp();
        let tally = arm.long.faded(left);
        let recent = arm.recent.faded(left_recent);
        let (failures, successes) = before.outcomes(prior);
        let (failures, successes) = (failures + tally.failures, successes + tally.successes);
        let long = failures / (failures + successes);
        let recent_failure = (LONG_IN_RECENT * long + recent.failures) / (LONG_IN_RECENT + recent.weight());
        let failure_ms = arm.failure_ms().unwrap_or(before.failure_ms);
        let others = Self { failures, successes, recent_failure, failure_ms, ..*before };
        let quantiles = arm.latency.quantiles([0.16, 0.5, 0.8, 0.84, 0.95, 0.99]);
        let Some([low, p50, p80, high, p95, p99]) = quantiles.filter(|_| seen > 1e-6) else { return others };
        let mean = arm.latency.mean_up_to(p95).unwrap_or(p50);
        let p50_ms = mix(p50, before.p50_ms);
        // The shape of the tail is mixed apart from its place: a fast provider has a fast tail.
        let tail = |found: f64, assumed: f64| {
            p50_ms * mix((found / p50).max(1.0), (assumed / before.p50_ms).max(1.0))
        };
        let seen_spread = ((high / low).max(1.0).ln() / 2.0).max(0.05);
        let variance = (seen * seen_spread.powi(2) + 2.0 * before.spread.powi(2)) / (seen + 2.0);
        Self {
            samples: seen * left,
            p50_ms,
            p80_ms: tail(p80, before.p80_ms),
            p95_ms: tail(p95, before.p95_ms),
            p99_ms: tail(p99, before.p99_ms),
            mean_ms: p50_ms * mix((mean / p50).max(0.5), before.mean_ms / before.p50_ms),
            // A median is about a quarter less certain than a mean.
            deviation: (1.25_f64.powi(2) * variance / all + memory.drift_variance(arm.unseen(now))).sqrt(),
            spread: variance.sqrt(),
            ..others
        }
    }

    /// Its failures and successes, as if there were no more than `most` of them and what is assumed.
    fn outcomes(&self, most: f64) -> (f64, f64) {
        let all = self.failures + self.successes;
        let share = ((PRIOR.failures + PRIOR.successes + most) / all).min(1.0);
        (self.failures * share, self.successes * share)
    }

    /// How probably the next attempt fails: by the long run or by the last few, whichever is worse.
    pub fn failure(&self) -> f64 {
        (self.failures / (self.failures + self.successes)).max(self.recent_failure).clamp(0.0, 1.0)
    }

    /// The mean if it is worse than believed by so many deviations, or better with a negative number.
    pub fn mean_at(&self, deviations: f64) -> f64 {
        self.mean_ms * (deviations * self.deviation).exp()
    }

    /// What places are compared by: between the median, which most requests see, and the mean, which a few slow ones drive up.
    fn typical_at(&self, deviations: f64) -> f64 {
        (self.p50_ms * self.mean_ms).sqrt() * (deviations * self.deviation).exp()
    }

    /// What an attempt typically takes if a failed one is followed by one of `fallback_ms`.
    pub fn effective_ms(&self, deviations: f64, fallback_ms: f64) -> f64 {
        let failure = self.failure();
        (1.0 - failure) * self.typical_at(deviations) + failure * (self.failure_ms + fallback_ms)
    }

    /// A possible truth, by chance: where little is known it may be far better or worse than believed. What an attempt
    /// typically takes if it does not fail, and how probably it fails.
    pub fn sample(&self, random: &mut Random) -> (f64, f64) {
        (self.typical_at(random.normal()), random.beta(self.failures, self.successes))
    }
}
