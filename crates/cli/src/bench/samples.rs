//! Times that were measured, and what is said of them.

use std::time::Duration;

use serde::Serialize;

/// Milliseconds, in the order in which they were measured.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples(Vec<f64>);

/// What is said of a series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Summary {
    pub(super) n: usize,
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Samples {
    pub(super) fn add(&mut self, time: Duration) {
        self.0.push(milliseconds(time));
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Rounded to a microsecond.
    pub(super) fn values(&self) -> Vec<f64> {
        self.0.iter().map(|value| (value * 1000.0).round() / 1000.0).collect()
    }

    /// `None`: there are none.
    pub(super) fn summary(&self) -> Option<Summary> {
        let mut ordered = self.0.clone();
        ordered.sort_by(f64::total_cmp);
        let (min, max) = (*ordered.first()?, *ordered.last()?);
        // The nearest rank: a value that was measured, and with few samples the largest of them for the high ones.
        let rank = |share: f64| {
            let place = (share * ordered.len() as f64).ceil() as usize;
            ordered[place.clamp(1, ordered.len()) - 1]
        };
        Some(Summary { n: ordered.len(), p50: rank(0.5), p90: rank(0.9), p99: rank(0.99), min, max })
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

pub(super) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_values_that_were_measured() {
        let samples: Samples = (1..=100).rev().map(f64::from).collect();
        let summary = samples.summary().unwrap();
        assert_eq!((summary.n, summary.p50, summary.p90, summary.p99), (100, 50.0, 90.0, 99.0));
        assert_eq!((summary.min, summary.max), (1.0, 100.0));
    }

    #[test]
    fn few_samples_show_their_worst_as_the_high_ranks() {
        let samples: Samples = [3.0, 1.0, 2.0].into_iter().collect();
        let summary = samples.summary().unwrap();
        assert_eq!((summary.p50, summary.p90, summary.p99), (2.0, 3.0, 3.0));
        assert_eq!(Samples::default().summary(), None);
    }
}
