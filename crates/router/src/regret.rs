//! How much was lost by not knowing better.

use serde::Serialize;

use sandstorm_catalog::Usd;

/// Running regret: what requests really took and cost, failed attempts included, less what the best place was believed to
/// take and cost when each was decided. A metric to be watched: it grows when beliefs are wrong or places fail.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Regret {
    pub requests: u64,
    pub latency_ms: f64,
    pub cost: Usd,
}

impl Regret {
    pub fn add(&mut self, took_ms: f64, best_ms: f64, paid: Usd, best_cost: Usd) {
        self.requests += 1;
        if took_ms.is_finite() && best_ms.is_finite() {
            self.latency_ms += took_ms - best_ms;
        }
        self.cost += paid - best_cost;
    }

    /// For each request.
    pub fn mean_latency_ms(&self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.latency_ms / self.requests as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_mean_of_what_was_lost() {
        let mut regret = Regret::default();
        regret.add(300.0, 100.0, Usd::micros(3), Usd::micros(2));
        regret.add(50.0, 100.0, Usd::micros(1), Usd::micros(2));
        assert_eq!((regret.mean_latency_ms(), regret.cost), (75.0, Usd::ZERO));
        regret.add(f64::NAN, 1.0, Usd::ZERO, Usd::ZERO);
        assert!(regret.mean_latency_ms().is_finite());
    }
}
