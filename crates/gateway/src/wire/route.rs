//! Where things go, and why there.

use std::collections::BTreeMap;

use sandstorm_control::server::{NewSandbox, ProviderView, RouteDecision};
use sandstorm_types::{
    Enforcement, Isolation, LanguageName, LimitsPatch, NetworkPolicy, Requirement, Routing, Space, Template,
    User,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::shapes::{
    EnforcementName, LimitsRequest, NetworkShape, RoutingShape, SpaceName, TemplateShape, UserName,
};
use super::walls::Tier;
use crate::json::Wire;

/// A sandbox to explain the place of. What is absent is the operator's default.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ExplainRoute {
    #[schema(value_type = TemplateShape)]
    template: Template,
    #[schema(value_type = LimitsRequest)]
    limits: LimitsPatch,
    #[schema(value_type = NetworkShape)]
    network: NetworkPolicy,
    #[schema(value_type = UserName)]
    user: User,
    #[schema(value_type = SpaceName)]
    space: Space,
    #[schema(value_type = Option<EnforcementName>)]
    enforcement: Option<Enforcement>,
    /// Packages by language.
    #[schema(value_type = BTreeMap<String, Vec<String>>)]
    requirements: BTreeMap<LanguageName, Vec<Requirement>>,
    #[schema(value_type = Option<RoutingShape>)]
    #[serde(default, deserialize_with = "super::object::optional")]
    routing: Option<Box<Routing>>,
}

impl Wire for ExplainRoute {}

impl From<ExplainRoute> for NewSandbox {
    fn from(wanted: ExplainRoute) -> Self {
        Self {
            template: wanted.template,
            limits: wanted.limits,
            network: wanted.network,
            user: wanted.user,
            space: wanted.space,
            enforcement: wanted.enforcement,
            requirements: wanted.requirements,
            routing: wanted.routing,
            ..Self::default()
        }
    }
}

/// Where it would go, where next if that fails, and why.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RouteExplanation)]
pub(crate) struct ExplanationBody {
    /// The first of `ranked`; `null` if nobody will do.
    provider: Option<String>,
    /// Sentences on why the first one is first, or why there is none.
    why: Vec<String>,
    /// Providers in the order in which they would be tried.
    ranked: Vec<RankedBody>,
    excluded: Vec<ExcludedBody>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RankedProvider)]
struct RankedBody {
    provider: String,
    region: Option<String>,
    /// Less is better.
    score: f64,
    /// Whether the caller prefers it or has named its turn.
    preferred: bool,
    /// Milliseconds until the sandbox can be used: the mean, and between what it lies with nine in ten.
    ready_ms: RangeBody,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    /// How probably the attempt fails, from 0 to 1.
    failure: f64,
    /// About how many outcomes this rests on.
    samples: f64,
    /// US dollars, by the list of prices.
    cost_usd: RangeBody,
    /// What is left of the expected cost after free credits.
    out_of_pocket_usd: f64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Range)]
struct RangeBody {
    low: f64,
    expected: f64,
    high: f64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ExcludedProvider)]
struct ExcludedBody {
    provider: String,
    region: Option<String>,
    /// Every reason.
    why: Vec<String>,
}

impl From<RouteDecision> for ExplanationBody {
    fn from(decision: RouteDecision) -> Self {
        let ranked = decision.ranked.into_iter().map(|ranked| {
            let told = ranked.prediction;
            let (ready, cost) = (told.ready_ms, told.cost);
            RankedBody {
                provider: ranked.provider,
                region: ranked.region,
                score: ranked.score,
                preferred: ranked.preferred,
                ready_ms: RangeBody { low: ready.low, expected: ready.expected, high: ready.high },
                p50_ms: told.p50_ms,
                p95_ms: told.p95_ms,
                p99_ms: told.p99_ms,
                failure: told.failure,
                samples: told.samples,
                cost_usd: RangeBody {
                    low: cost.low.as_f64(),
                    expected: cost.expected.as_f64(),
                    high: cost.high.as_f64(),
                },
                out_of_pocket_usd: told.out_of_pocket.as_f64(),
            }
        });
        let ranked: Vec<RankedBody> = ranked.collect();
        let excluded = decision.excluded.into_iter().map(|place| ExcludedBody {
            provider: place.provider,
            region: place.region,
            why: place.why,
        });
        Self {
            provider: ranked.first().map(|first| first.provider.clone()),
            why: decision.why,
            ranked,
            excluded: excluded.collect(),
        }
    }
}

/// A place where sandboxes can be.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Provider)]
pub(crate) struct ProviderBody {
    name: String,
    kind: String,
    region: Option<String>,
    /// What people call it.
    title: String,
    /// Whether it answers and is asked.
    up: bool,
    /// What the router makes of how it did so far.
    health: String,
    /// Why it cannot be reached at present.
    trouble: Option<String>,
    /// Sandboxes of this server that are there.
    sandboxes: u32,
    #[schema(value_type = Tier)]
    isolation: Isolation,
    /// What it can do, by name.
    capabilities: Vec<String>,
    /// How it charges.
    price_model: String,
    /// US dollars for a minute of one processor and 512 MiB, half of it used; `null` where nobody knows.
    minute_usd: Option<f64>,
    /// When the price was true, where its source says so.
    price_as_of: Option<String>,
    price_source: String,
    /// Figures that are too old to be believed without a look.
    warnings: Vec<String>,
}

/// Providers, in the order in which they were configured.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProviderList {
    pub(crate) providers: Vec<ProviderBody>,
}

impl From<ProviderView> for ProviderBody {
    fn from(view: ProviderView) -> Self {
        Self {
            name: view.name,
            kind: view.kind,
            region: view.region,
            title: view.title,
            up: view.up,
            health: view.health,
            trouble: view.trouble,
            sandboxes: view.sandboxes,
            isolation: view.isolation,
            capabilities: view.capabilities,
            price_model: view.price_model,
            minute_usd: view.minute_usd,
            price_as_of: view.price_as_of,
            price_source: view.price_source,
            warnings: view.warnings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::read;

    #[test]
    fn wishes_are_read_and_nonsense_is_refused() {
        let json = br#"{"routing": {"objective": {"weighted": {"latency": 2, "cost": 1}}, "max_cost": 0.01,
            "max_latency": "2s", "require": {"isolation": "container"}}}"#;
        let new = NewSandbox::from(read::<ExplainRoute>(json).unwrap());
        assert!(new.routing.unwrap().objective.is_some());
        for bad in [
            r#"{"routing": {"objective": "best"}}"#,
            r#"{"routing": {"max_latency": -1}}"#,
            r#"{"routing": {"provider": "a"}}"#,
            r#"{"code": "1"}"#,
        ] {
            assert!(read::<ExplainRoute>(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
