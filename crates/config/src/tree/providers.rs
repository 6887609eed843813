//! Places beside this machine where sandboxes can be.

use std::collections::BTreeMap;
use std::time::Duration;

use sandstorm_types::Usd;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::packages::Index;
use crate::form;
use crate::secret::SecretRef;
use serde_json::{Value, json};

/// One place where sandboxes can be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderSettings {
    /// What it is.
    pub kind: ProviderKind,
    /// Whether it is used. What is set here stays for later.
    pub enabled: bool,
    /// Where it is reached, for `sandstorm` and for others that are not where they usually are.
    #[schemars(example = &"https://sandboxes.example.org")]
    pub url: Option<Index>,
    /// Where the key for it is kept: `env:NAME` or `file:/path`.
    #[schemars(example = &"env:SANDBOXES_KEY")]
    pub key: Option<SecretRef>,
    /// The region that sandboxes there are in, by the name that requests use.
    pub region: Option<String>,
    /// The area that the region lies in, such as `eu`; for rules on where data may go.
    pub area: Option<String>,
    /// Most sandboxes there at a time. Not set: what the catalogue says, and what is learned.
    pub concurrency: Option<u32>,
    /// What is left of free credits there, in US dollars.
    #[schemars(with = "Option<form::Dollars>")]
    pub free_credit: Option<Usd>,
    /// The provider of the catalogue whose prices it has. Not set: that of its kind.
    #[schemars(example = &"kubernetes")]
    pub like: Option<String>,
    /// Its price, where yours is another than the catalogue's.
    pub price: Price,
    /// Settings of this kind of provider alone.
    pub options: BTreeMap<String, String>,
}

impl ProviderSettings {
    pub(super) fn examples() -> BTreeMap<&'static str, Value> {
        let other = json!({ "kind": "sandstorm", "url": "https://sandboxes.example.org", "key": "env:SANDBOXES_KEY" });
        BTreeMap::from([("office", other)])
    }
}

impl Default for ProviderSettings {
    fn default() -> Self {
        Self {
            kind: ProviderKind::default(),
            enabled: true,
            url: None,
            key: None,
            region: None,
            area: None,
            concurrency: None,
            free_credit: None,
            like: None,
            price: Price::default(),
            options: BTreeMap::new(),
        }
    }
}

/// Kinds of providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    /// This machine; its name is `local`.
    #[default]
    Local,
    /// Another Sandstorm.
    Sandstorm,
    /// E2B, or what speaks its API.
    E2b,
    /// A cluster.
    Kubernetes,
}

impl ProviderKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Sandstorm => "sandstorm",
            Self::E2b => "e2b",
            Self::Kubernetes => "kubernetes",
        }
    }
}

/// A price in US dollars.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Price {
    /// How it is charged. Not set: as the catalogue says.
    pub model: Option<PriceModel>,
    /// A second of one processor, for all models but `owned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<form::Dollars>")]
    pub vcpu_second: Option<Usd>,
    /// A second of one gibibyte of memory, for all models but `owned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<form::Dollars>")]
    pub gib_second: Option<Usd>,
    /// An hour of one processor, for `owned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<form::Dollars>")]
    pub vcpu_hour: Option<Usd>,
    /// An hour of one gibibyte of memory, for `owned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<form::Dollars>")]
    pub gib_hour: Option<Usd>,
}

/// How a provider charges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PriceModel {
    /// What was asked for, for as long as it is there.
    Allocated,
    /// Processor time that was used, and memory for as long as it is there.
    ActiveCpu,
    /// For each of processor and memory the larger of what was asked for and what was used.
    MaxOfRequestAndActual,
    /// Hardware that is there anyway, at a rate that you work out.
    Owned,
}

/// How a place is chosen for a run or a sandbox. Counts only where `providers` are set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RoutingSettings {
    /// What is better, where a request does not say. `weighted` goes by `weights`.
    pub objective: RoutingObjective,
    /// How much each thing counts for `weighted`: what a doubling is worth.
    pub weights: RoutingWeights,
    /// How long one provider may take to make a sandbox before the next one is asked.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub patience: Duration,
    /// What a second creation beside a slow one may cost at most, in US dollars, where time counts more than money; its
    /// loser is destroyed. `0`: there is none.
    #[schemars(with = "form::Dollars")]
    pub hedge_max_cost: Usd,
    /// Small creations of our own for each hour that find out whether another provider has become better. `0` with
    /// `probes_per_request` at `0`: there are none.
    pub probes_per_hour: f64,
    /// And for each request of users.
    pub probes_per_request: f64,
    /// What these may cost in a day, in US dollars, beside a hundredth of what requests cost.
    #[schemars(with = "form::Dollars")]
    pub probes_max_cost: Usd,
    /// How often sandboxes at providers are compared with what is known of them. What nobody knows is ended there.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub reconcile_every: Duration,
    /// The age from which a price of the catalogue is warned about.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub price_age: Duration,
}

impl Default for RoutingSettings {
    fn default() -> Self {
        Self {
            objective: RoutingObjective::Balanced,
            weights: RoutingWeights::default(),
            patience: Duration::from_secs(60),
            hedge_max_cost: Usd::micros(1000),
            probes_per_hour: 1.0,
            probes_per_request: 0.05,
            probes_max_cost: Usd::micros(200),
            reconcile_every: Duration::from_secs(300),
            price_age: Duration::from_secs(90 * 86_400),
        }
    }
}

/// What is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RoutingObjective {
    /// What costs least.
    Cheapest,
    /// What is ready first.
    Fastest,
    /// Twice as fast is worth twice the price.
    #[default]
    Balanced,
    /// By `weights`.
    Weighted,
}

/// How much each thing counts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RoutingWeights {
    /// Time until a sandbox can be used.
    pub latency: f64,
    /// What it costs.
    pub cost: f64,
    /// That it works at all.
    pub reliability: f64,
}

impl Default for RoutingWeights {
    fn default() -> Self {
        Self { latency: 1.0, cost: 1.0, reliability: 1.0 }
    }
}
