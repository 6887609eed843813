//! What a use costs at a provider, before and after.

use sandstorm_catalog::{
    Bill, Catalog, Charge, CostEstimate, Credit, Demand, FeeRules, PriceModel, ProviderEntry, Span, Usage,
};
use sandstorm_types::Usd;
use std::sync::Arc;

/// Prices of the places that sandboxes are made at.
#[derive(Debug)]
pub(super) struct Prices {
    catalog: Arc<Catalog>,
    places: Vec<String>,
    fees: FeeRules,
    /// Nothing costs anything anywhere.
    free: bool,
}

impl Prices {
    pub(super) fn new(catalog: Arc<Catalog>, places: Vec<String>, fees: FeeRules) -> Self {
        let free = places.iter().all(|place| catalog.get(place).is_some_and(is_free));
        Self { catalog, places, fees, free }
    }

    pub(super) fn are_nothing(&self) -> bool {
        self.free
    }

    pub(super) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub(super) fn places(&self) -> &[String] {
        &self.places
    }

    /// What it will cost where it is dearest, since nobody knows yet where it goes. `None`: no place has a price.
    pub(super) fn estimate(&self, demand: &Demand, span: Span) -> Option<CostEstimate> {
        if self.free {
            return Some(CostEstimate::default());
        }
        let entries = self.places.iter().filter_map(|place| self.catalog.get(place));
        let estimates = entries.filter_map(|entry| {
            let estimate = entry.estimate(demand, span, 1000, false).ok()?;
            let with_margin =
                |cost: Usd| if owned(entry) { cost } else { cost + cost.permille(self.fees.margin_permille) };
            Some(CostEstimate {
                low: with_margin(estimate.low),
                expected: with_margin(estimate.expected),
                high: with_margin(estimate.high),
            })
        });
        estimates.max_by_key(|estimate| (estimate.expected, estimate.high))
    }

    /// What a use costs at one provider. `None`: it has no price.
    pub(super) fn bill(&self, provider: &str, usage: &Usage, credit: &mut Credit) -> Option<Bill> {
        let entry = self.catalog.get(provider)?;
        if is_free(entry) {
            return Some(Bill::default());
        }
        let charge = entry.charge(usage).ok()?;
        Some(Bill::of(&charge, owned(entry), &self.fees, credit))
    }

    /// The charge alone, for an attempt that came to nothing.
    pub(super) fn charge(&self, provider: &str, usage: &Usage) -> Option<Charge> {
        self.catalog.get(provider)?.charge(usage).ok()
    }
}

fn owned(entry: &ProviderEntry) -> bool {
    entry.price.figure.is_owned()
}

/// Hardware that is there anyway, without a rate: nothing has to be worked out.
fn is_free(entry: &ProviderEntry) -> bool {
    let nothing = PriceModel::Owned { vcpu_hour: Usd::ZERO, gib_hour: Usd::ZERO };
    entry.price.figure == nothing && entry.billing.is_none() && entry.extras.is_none()
}
