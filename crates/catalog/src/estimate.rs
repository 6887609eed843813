//! What a run will probably cost, and how sure that is.

use std::time::Duration;

use sandstorm_types::duration;
use serde::{Deserialize, Serialize};

use crate::{ChargeError, Demand, PriceModel, ProviderEntry, Usage, Usd};

/// A time that is not known yet: what is expected, and between what it will probably lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    #[serde(with = "duration::seconds")]
    pub low: Duration,
    #[serde(with = "duration::seconds")]
    pub expected: Duration,
    #[serde(with = "duration::seconds")]
    pub high: Duration,
}

impl Span {
    pub const fn exactly(span: Duration) -> Self {
        Self { low: span, expected: span, high: span }
    }

    /// One after the other.
    pub fn then(self, next: Self) -> Self {
        Self {
            low: self.low.saturating_add(next.low),
            expected: self.expected.saturating_add(next.expected),
            high: self.high.saturating_add(next.high),
        }
    }
}

/// A cost that is not known yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostEstimate {
    pub low: Usd,
    pub expected: Usd,
    pub high: Usd,
}

impl ProviderEntry {
    /// What a sandbox for `demand` costs that is there for `span` and uses `cpu_permille` thousandths of its processors. What
    /// is not certain about the time, the price and a region's surcharge is in the distance from `low` to `high`.
    pub fn estimate(
        &self,
        demand: &Demand,
        span: Span,
        cpu_permille: u32,
        pinned_region: bool,
    ) -> Result<CostEstimate, ChargeError> {
        let region = self.billing().pinned_region_permille.filter(|_| pinned_region);
        let cost = |model: &PriceModel, wall: Duration, region: Option<u32>| {
            let used =
                wall.as_micros() * u128::from(demand.cpus.milli()) * u128::from(cpu_permille) / 1_000_000;
            let cpu = Duration::from_micros(u64::try_from(used).unwrap_or(u64::MAX));
            let usage = Usage { pinned_region, ..Usage::of(demand, wall, cpu) };
            self.charge_by(model, &usage, region).map(|charge| charge.total())
        };
        let list = &self.price.figure;
        let (least, most) = (region.map(|(least, _)| least), region.map(|(_, most)| most));
        let mut estimate = CostEstimate {
            low: cost(list, span.low, least)?,
            expected: cost(list, span.expected, least)?,
            high: cost(list, span.high, most)?,
        };
        // Not every size is in the list that disagrees.
        if let Some(disputed) = &self.disputed_price {
            estimate.low =
                cost(&disputed.figure, span.low, least).map_or(estimate.low, |low| low.min(estimate.low));
            estimate.high =
                cost(&disputed.figure, span.high, most).map_or(estimate.high, |high| high.max(estimate.high));
        }
        Ok(estimate)
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_types::{ByteSize, MilliCpus};

    use super::*;
    use crate::Catalog;

    fn demand(milli: u32, mib: u64) -> Demand {
        Demand {
            cpus: MilliCpus::new(milli),
            memory: ByteSize::mib(mib),
            disk: ByteSize::default(),
            gpu: None,
        }
    }

    fn usd(text: &str) -> Usd {
        text.parse().unwrap()
    }

    #[test]
    fn an_uncertain_time_is_an_uncertain_cost() {
        let entry = Catalog::embedded().get("e2b").unwrap();
        let seconds = Duration::from_secs;
        let span = Span { low: seconds(1), expected: seconds(10), high: seconds(100) };
        let estimate = entry.estimate(&demand(2000, 512), span, 1000, false).unwrap();
        // (2 * 0.000014 + 0.5 * 0.0000045) a second.
        let expected =
            CostEstimate { low: usd("0.00003025"), expected: usd("0.0003025"), high: usd("0.003025") };
        assert_eq!(estimate, expected);
    }

    #[test]
    fn a_disputed_price_widens_the_estimate() {
        let entry = Catalog::embedded().get("vercel").unwrap();
        let span = Span::exactly(Duration::from_secs(100));
        let estimate = entry.estimate(&demand(1000, 1024), span, 500, false).unwrap();
        // 50 s * 0.00003556 + 100 s * 0.000002944 + 0.0000006; the other memory rate is 0.000005889.
        assert_eq!((estimate.low, estimate.expected), (usd("0.002073"), usd("0.002073")));
        assert_eq!(estimate.high, usd("0.0023675"));
    }

    #[test]
    fn a_region_that_is_insisted_on_costs_more() {
        let entry = Catalog::embedded().get("modal").unwrap();
        let span = Span::exactly(Duration::from_secs(10));
        let anywhere = entry.estimate(&demand(1000, 1024), span, 1000, false).unwrap();
        let pinned = entry.estimate(&demand(1000, 1024), span, 1000, true).unwrap();
        assert_eq!(anywhere.expected, usd("0.0002643"));
        assert_eq!((pinned.expected, pinned.high), (usd("0.000330375"), usd("0.00066075")));
    }

    #[test]
    fn without_a_price_there_is_no_estimate() {
        let entry = Catalog::embedded().get("morph").unwrap();
        let error = entry
            .estimate(&demand(1000, 512), Span::exactly(Duration::from_secs(1)), 1000, false)
            .unwrap_err();
        assert_eq!(error.to_string(), "the price of morph is not known: the operator has to set it");
    }
}
