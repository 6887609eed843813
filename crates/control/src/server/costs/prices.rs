//! What a use costs at a provider, before and after.

use std::collections::BTreeMap;
use std::sync::Arc;

use sandstorm_catalog::{
    Bill, Catalog, CostEstimate, Credit, Demand, FeeRules, PriceModel, ProviderEntry, Span, Usage,
};
use sandstorm_fleet::Fleet;
use sandstorm_types::Usd;

use super::Costs;

/// Prices of the places that sandboxes are made at.
#[derive(Debug)]
pub(super) struct Prices {
    places: BTreeMap<String, Arc<ProviderEntry>>,
    /// For places that are named otherwise.
    catalog: Arc<Catalog>,
    fees: FeeRules,
    /// Nothing costs anything anywhere.
    free: bool,
}

/// What something will cost, where that is least and where it is most: nobody knows yet where it goes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Estimates {
    pub(super) cheapest: CostEstimate,
    pub(super) dearest: CostEstimate,
}

impl Prices {
    /// The places of a fleet with its prices, or the one place that there is.
    pub(super) fn new(costs: &Costs, alone: &str, fleet: Option<&Fleet>) -> Self {
        let catalog = Arc::clone(&costs.catalog);
        let places: BTreeMap<_, _> = match fleet {
            Some(fleet) => {
                let entry = |name: &str| Some((name.to_owned(), Arc::clone(fleet.entry_of(name)?)));
                fleet.names().filter_map(entry).collect()
            }
            None => catalog
                .get(alone)
                .map(|entry| (alone.to_owned(), Arc::new(entry.clone())))
                .into_iter()
                .collect(),
        };
        let free = !places.is_empty() && places.values().all(|entry| is_free(entry));
        Self { places, catalog, fees: costs.fees, free }
    }

    pub(super) fn fees(&self) -> &FeeRules {
        &self.fees
    }

    pub(super) fn are_nothing(&self) -> bool {
        self.free
    }

    pub(super) fn places(&self) -> impl Iterator<Item = (&str, &ProviderEntry)> {
        self.places.iter().map(|(name, entry)| (name.as_str(), &**entry))
    }

    /// `None`: no place has a price.
    pub(super) fn estimate(&self, demand: &Demand, span: Span) -> Option<Estimates> {
        if self.free {
            return Some(Estimates::default());
        }
        let estimates = self.places.values().filter_map(|entry| {
            let estimate = entry.estimate(demand, span, 1000, false).ok()?;
            let margin = if owned(entry) { 0 } else { self.fees.margin_permille };
            let with_margin = |cost: Usd| cost + cost.permille(margin);
            Some(CostEstimate {
                low: with_margin(estimate.low),
                expected: with_margin(estimate.expected),
                high: with_margin(estimate.high),
            })
        });
        let by_cost = |estimate: &CostEstimate| (estimate.expected, estimate.high);
        let all: Vec<CostEstimate> = estimates.collect();
        let cheapest = all.iter().copied().min_by_key(by_cost)?;
        Some(Estimates { cheapest, dearest: all.iter().copied().max_by_key(by_cost)? })
    }

    /// What a use costs at one provider. `None`: it has no price.
    pub(super) fn bill(&self, provider: &str, usage: &Usage, credit: &mut Credit) -> Option<Bill> {
        let entry = self.entry(provider)?;
        if is_free(entry) {
            return Some(Bill::default());
        }
        let charge = entry.charge(usage).ok()?;
        Some(Bill::of(&charge, owned(entry), &self.fees, credit))
    }

    fn entry(&self, provider: &str) -> Option<&ProviderEntry> {
        self.places.get(provider).map(|entry| &**entry).or_else(|| self.catalog.get(provider))
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
