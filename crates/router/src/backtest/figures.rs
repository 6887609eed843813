//! What is said of an arm.

use sandstorm_catalog::Usd;
use serde::Serialize;

/// One arm with one seed.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Figures {
    pub requests: u32,
    /// Requests that failed for good.
    pub failures: u32,
    /// Attempts beyond the first of each request.
    pub extra_attempts: u32,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub mean_ms: f64,
    /// For 1,000 requests that were served, with everything: failed attempts, losers of hedges, probes.
    pub usd_per_1000: f64,
    /// The part of it that probes cost.
    pub probes_usd_per_1000: f64,
    pub probes: u32,
}

/// Collects what an arm pays.
#[derive(Debug, Default)]
pub(super) struct Collected {
    latencies: Vec<f64>,
    failures: u32,
    extra_attempts: u32,
    cost: Usd,
    probes_cost: Usd,
    probes: u32,
}

impl Collected {
    /// A request is over; `ms` is the time of all its attempts.
    pub(super) fn request(&mut self, ms: f64, served: bool, attempts: u32, cost: Usd) {
        self.latencies.push(ms);
        self.failures += u32::from(!served);
        self.extra_attempts += attempts.saturating_sub(1);
        self.cost += cost;
    }

    pub(super) fn probe(&mut self, cost: Usd) {
        self.probes += 1;
        self.probes_cost += cost;
    }

    fn add(&mut self, other: &Self) {
        self.latencies.extend(&other.latencies);
        self.failures += other.failures;
        self.extra_attempts += other.extra_attempts;
        self.cost += other.cost;
        self.probes_cost += other.probes_cost;
        self.probes += other.probes;
    }

    /// Of several days together.
    pub(super) fn figures<'a>(days: impl IntoIterator<Item = &'a Self>) -> Figures {
        let mut all = Self::default();
        days.into_iter().for_each(|day| all.add(day));
        all.latencies.sort_by(f64::total_cmp);
        all.summary()
    }

    /// With sorted latencies.
    fn summary(&self) -> Figures {
        let count = self.latencies.len();
        // The nearest rank: a time that was really paid.
        let rank = |share: f64| {
            let place = (share * count as f64).ceil() as usize;
            self.latencies.get(place.clamp(1, count.max(1)) - 1).copied().unwrap_or(f64::NAN)
        };
        let requests = u32::try_from(count).unwrap_or(u32::MAX);
        let served = f64::from(requests.saturating_sub(self.failures).max(1));
        Figures {
            requests,
            failures: self.failures,
            extra_attempts: self.extra_attempts,
            p50_ms: rank(0.5),
            p95_ms: rank(0.95),
            p99_ms: rank(0.99),
            mean_ms: self.latencies.iter().sum::<f64>() / count.max(1) as f64,
            usd_per_1000: (self.cost + self.probes_cost).as_f64() * 1000.0 / served,
            probes_usd_per_1000: self.probes_cost.as_f64() * 1000.0 / served,
            probes: self.probes,
        }
    }
}

/// One figure over all seeds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Spread {
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (Some(&low), Some(&high)) = (values.first(), values.last()) else { return Self::default() };
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            (values[middle - 1] + values[middle]) / 2.0
        } else {
            values[middle]
        };
        Self { median, low, high }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_costs_and_failures() {
        let (mut first, mut second) = (Collected::default(), Collected::default());
        (1..=99).rev().for_each(|ms| first.request(f64::from(ms), true, 1, Usd::micros(100)));
        second.request(3000.0, false, 3, Usd::micros(100));
        second.probe(Usd::micros(990));
        let figures = Collected::figures([&second, &first]);
        assert_eq!((figures.p50_ms, figures.p95_ms, figures.p99_ms), (50.0, 95.0, 99.0));
        assert_eq!((figures.requests, figures.failures, figures.extra_attempts), (100, 1, 2));
        assert!((figures.usd_per_1000 - 10.99 / 99.0).abs() < 1e-9, "{figures:?}");
        assert!((figures.probes_usd_per_1000 - 0.01).abs() < 1e-9);
    }

    #[test]
    fn the_spread_of_an_even_number_has_its_median_between_two() {
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]), Spread { median: 2.5, low: 1.0, high: 4.0 });
        assert_eq!(Spread::of([]), Spread::default());
    }
}
