//! What is known of one provider.

use sandstorm_types::Isolation;
use serde::{Deserialize, Serialize};

use crate::{Billing, Credits, Dated, Extras, PriceModel, Quotas, Region, Size, Sizes};

/// One provider's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderEntry {
    /// The name of the file; what routes and configuration call it.
    #[serde(default)]
    pub id: String,
    /// What people call it.
    pub title: String,
    /// The boundary that it says it has. What an adapter states counts more.
    pub isolation: Dated<Isolation>,
    pub price: Dated<PriceModel>,
    /// Another price that was found; estimates reach from the one to the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disputed_price: Option<Dated<PriceModel>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub billing: Option<Dated<Billing>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credits: Option<Dated<Credits>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quotas: Option<Dated<Quotas>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Dated<Sizes>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extras: Option<Dated<Extras>>,
    /// Places that can be asked for; `None` where nobody has told us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regions: Option<Dated<Vec<Region>>>,
}

impl ProviderEntry {
    pub fn billing(&self) -> Billing {
        self.billing.as_ref().map(|dated| dated.figure.clone()).unwrap_or_default()
    }

    pub fn credits(&self) -> Credits {
        self.credits.as_ref().map(|dated| dated.figure.clone()).unwrap_or_default()
    }

    pub fn quotas(&self) -> Quotas {
        self.quotas.as_ref().map(|dated| dated.figure.clone()).unwrap_or_default()
    }

    pub fn regions(&self) -> &[Region] {
        self.regions.as_ref().map_or(&[], |dated| &dated.figure)
    }

    /// Kinds of accelerators that have a price.
    pub fn gpus(&self) -> impl Iterator<Item = &str> {
        let extras = self.extras.as_ref().and_then(|dated| dated.figure.gpu_second.as_ref());
        extras.into_iter().flatten().map(|(name, _)| name.as_str())
    }

    /// The size that one gets for what one wants; `None`: it does not make any that large.
    pub fn fit(&self, wanted: Size) -> Option<Size> {
        let wanted = match &self.sizes {
            Some(sizes) => sizes.figure.fit(wanted)?,
            None => wanted,
        };
        match &self.price.figure {
            model @ PriceModel::Tiers { .. } => model.tier(wanted).map(|tier| tier.size),
            _ => Some(wanted),
        }
    }
}
