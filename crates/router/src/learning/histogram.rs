//! Latencies of late, in steps of a tenth: quantiles that no single outlier can move, at a fixed size.

use std::sync::LazyLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The first step begins here.
const FIRST_MS: f64 = 0.1;
/// Each step is wider than the last by this.
const RATIO: f64 = 1.1;
/// From a tenth of a millisecond to a quarter of an hour; what lies outside counts as the first or the last.
const STEPS: usize = 170;
/// Below this the common factor is worked into the weights, before it becomes too small to divide by.
const SMALL: f64 = 1e-12;

/// A histogram whose weights fade together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Histogram {
    /// Weights before the common factor.
    weights: Vec<f64>,
    factor: f64,
    sum: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { weights: vec![0.0; STEPS], factor: 1.0, sum: 0.0 }
    }
}

fn step_of(ms: f64) -> usize {
    let step = (ms.max(FIRST_MS) / FIRST_MS).ln() / RATIO.ln();
    (step as usize).min(STEPS - 1)
}

fn start_of(step: f64) -> f64 {
    FIRST_MS * RATIO.powf(step)
}

/// The middle of each step, which every mean needs.
static MIDDLES: LazyLock<Vec<f64>> =
    LazyLock::new(|| (0..STEPS).map(|step| start_of(step as f64 + 0.5)).collect());

impl Histogram {
    /// Lets everything fade by `share`.
    pub(super) fn fade(&mut self, share: f64) {
        self.factor *= share.clamp(0.0, 1.0);
        if self.factor < SMALL {
            for weight in &mut self.weights {
                *weight *= self.factor;
            }
            self.sum *= self.factor;
            self.factor = 1.0;
        }
    }

    pub(super) fn add(&mut self, latency: Duration) {
        let weight = 1.0 / self.factor;
        if let Some(place) = self.weights.get_mut(step_of(latency.as_secs_f64() * 1000.0)) {
            *place += weight;
            self.sum += weight;
        }
    }

    /// About how many samples there are.
    /// Whether it can have come about.
    pub(super) fn is_sound(&self) -> bool {
        let good = |number: &f64| number.is_finite() && *number >= 0.0;
        self.weights.len() == STEPS
            && self.weights.iter().all(good)
            && good(&self.sum)
            && self.factor > 0.0
            && self.factor <= 1.0
    }

    pub(super) fn weight(&self) -> f64 {
        self.sum * self.factor
    }

    /// The values in milliseconds below which these shares lie; the shares ascend. `None`: there is nothing.
    pub(super) fn quantiles<const N: usize>(&self, shares: [f64; N]) -> Option<[f64; N]> {
        if self.sum <= 0.0 {
            return None;
        }
        let mut found = [f64::NAN; N];
        let (mut next, mut below) = (0, 0.0);
        for (step, &weight) in self.weights.iter().enumerate() {
            while next < N && weight > 0.0 && below + weight >= shares[next] * self.sum {
                let part = ((shares[next] * self.sum - below) / weight).clamp(0.0, 1.0);
                found[next] = start_of(step as f64 + part);
                next += 1;
            }
            below += weight;
        }
        // Sums of many small weights may fall short of the whole by a rounding error.
        let last = self.weights.iter().rposition(|&weight| weight > 0.0).unwrap_or(0);
        found[next..].fill(start_of(last as f64 + 1.0));
        Some(found)
    }

    /// The mean, with everything above `cap_ms` counted as that.
    pub(super) fn mean_up_to(&self, cap_ms: f64) -> Option<f64> {
        let total: f64 =
            self.weights.iter().zip(MIDDLES.iter()).map(|(weight, ms)| weight * ms.min(cap_ms)).sum();
        (self.sum > 0.0).then(|| total / self.sum)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(latencies: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        latencies.into_iter().for_each(|ms| histogram.add(Duration::from_millis(ms)));
        histogram
    }

    #[test]
    fn quantiles_are_near_the_true_ones() {
        let histogram = of(1..=1000);
        let [p50, p95, p99] = histogram.quantiles([0.5, 0.95, 0.99]).unwrap();
        for (found, truth) in [(p50, 500.0), (p95, 950.0), (p99, 990.0)] {
            assert!((found / truth - 1.0).abs() < 0.05, "{found} for {truth}");
        }
        let mean = histogram.mean_up_to(1e9).unwrap();
        assert!((mean / 500.0 - 1.0).abs() < 0.03, "{mean}");
        assert_eq!(Histogram::default().quantiles([0.5]), None);
    }

    #[test]
    fn one_outlier_moves_nothing() {
        let mut histogram = of(std::iter::repeat_n(100, 50));
        let before = histogram.quantiles([0.5]).unwrap();
        histogram.add(Duration::from_secs(600));
        let after = histogram.quantiles([0.5]).unwrap();
        assert!((after[0] / before[0] - 1.0).abs() < 0.01);
    }

    #[test]
    fn what_fades_gives_way_to_what_is_new() {
        let mut histogram = of(std::iter::repeat_n(100, 100));
        histogram.fade(0.01);
        assert!((histogram.weight() - 1.0).abs() < 1e-9);
        (0..5).for_each(|_| histogram.add(Duration::from_secs(2)));
        let [p50] = histogram.quantiles([0.5]).unwrap();
        assert!(p50 > 1800.0, "{p50}");
        (0..100).for_each(|_| histogram.fade(0.1));
        assert!(histogram.weight() < 1e-50);
        histogram.add(Duration::from_millis(10));
        assert!((histogram.weight() - 1.0).abs() < 1e-6);
    }

    proptest! {
        #[test]
        fn quantiles_ascend_and_lie_within(ms in prop::collection::vec(0_u64..10_000_000, 1..200), fade in 0.0..1.0) {
            let mut histogram = of(ms.iter().copied());
            histogram.fade(fade);
            if let Some(found) = histogram.quantiles([0.0, 0.5, 0.95, 1.0]) {
                prop_assert!(found.is_sorted(), "{found:?}");
                prop_assert!(found[0] >= FIRST_MS && found[3] <= start_of(STEPS as f64) * 1.001);
            }
        }
    }
}
