//! Figures that the operator knows better.

use std::collections::BTreeMap;

use sandstorm_types::Isolation;
use serde::{Deserialize, Serialize};

use crate::{Billing, Credits, Date, Dated, Extras, PriceModel, ProviderEntry, Quotas, Region, Sizes};

/// What the operator has set, by provider. A key that means nothing is refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, transparent)]
pub struct Overrides {
    pub providers: BTreeMap<String, ProviderOverride>,
}

/// What the operator has set for one provider. A price replaces the old one as a whole, since half of one model and half of
/// another is none; of the other groups only the figures that are given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProviderOverride {
    /// For a provider that has no file: whose figures it begins with.
    pub like: Option<String>,
    /// When these figures were true; without it they do not age.
    pub as_of: Option<Date>,
    pub title: Option<String>,
    pub isolation: Option<Isolation>,
    pub price: Option<PriceModel>,
    pub billing: Option<Billing>,
    pub credits: Option<Credits>,
    pub quotas: Option<Quotas>,
    pub sizes: Option<Sizes>,
    pub extras: Option<Extras>,
    pub regions: Option<Vec<Region>>,
}

impl ProviderOverride {
    pub(crate) fn apply(&self, entry: &mut ProviderEntry) {
        let as_of = self.as_of;
        if let Some(title) = &self.title {
            entry.title.clone_from(title);
        }
        if let Some(isolation) = self.isolation {
            entry.isolation = Dated::by_operator(isolation, as_of);
        }
        if let Some(price) = &self.price {
            entry.price = Dated::by_operator(price.clone(), as_of);
            entry.disputed_price = None;
        }
        if let Some(billing) = &self.billing {
            let figure = entry.billing().overlaid(billing.clone());
            entry.billing = Some(Dated::by_operator(figure, as_of));
        }
        if let Some(credits) = &self.credits {
            let figure = entry.credits().overlaid(credits.clone());
            entry.credits = Some(Dated::by_operator(figure, as_of));
        }
        if let Some(quotas) = &self.quotas {
            let figure = entry.quotas().overlaid(quotas.clone());
            entry.quotas = Some(Dated::by_operator(figure, as_of));
        }
        if let Some(extras) = &self.extras {
            let old = entry.extras.take().map(|dated| dated.figure).unwrap_or_default();
            entry.extras = Some(Dated::by_operator(old.overlaid(extras.clone()), as_of));
        }
        if let Some(sizes) = &self.sizes {
            entry.sizes = Some(Dated::by_operator(sizes.clone(), as_of));
        }
        if let Some(regions) = &self.regions {
            entry.regions = Some(Dated::by_operator(regions.clone(), as_of));
        }
    }
}
