//! The providers of a server: one line for each kind, and from the configuration to a fleet.

mod e2b;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod sandstorm;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use sandstorm_catalog::{Catalog, Overrides, ProviderEntry, ProviderOverride};
use sandstorm_config::{Environment, Loaded, ProviderKind, ProviderSettings, RoutingObjective};
use sandstorm_fleet::{Connect, Fleet, FleetSettings, Late, Member};
use sandstorm_provider::{Provider, ProviderInfo, Tasks};
use sandstorm_router::failover::HedgeRules;
use sandstorm_router::{CanaryRules, Objective, RouteRequest, Weights};
use sandstorm_types::{Enforcement, IpNetwork, SandboxSpec};

use super::Home;
use crate::local;

/// Makes the way to a provider of one kind. It is asked when a server starts, and again until the provider answers.
type Connector = fn(&Wanted) -> anyhow::Result<Connect>;

/// Every kind that is configured by name. This machine is not among them: it is there anyway.
const KINDS: &[(ProviderKind, Connector)] = &[
    (ProviderKind::Sandstorm, sandstorm::connector),
    (ProviderKind::E2b, e2b::connector),
    #[cfg(feature = "kubernetes")]
    (ProviderKind::Kubernetes, kubernetes::connector),
];

/// How long a server waits for its providers before it begins without them.
const PATIENCE: Duration = Duration::from_secs(5);

/// What stands for the mark of an installation while only the settings are checked.
const NO_OWNER: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaa";

/// A provider as the operator wants it.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) settings: ProviderSettings,
    /// The key itself, where one is named.
    pub(super) key: Option<String>,
    /// The mark of this installation on what it has elsewhere: 26 of the characters a-z and 2-7.
    pub(super) owner: String,
    /// What no sandbox reaches, whatever its policy says, as far as the provider can be told.
    pub(super) denied: Vec<IpNetwork>,
    /// Whether programs get the strict filter of system calls, where the provider can be told.
    pub(super) strict_filter: bool,
}

/// The providers that the configuration switches on beside this machine, each with its key and checked: a way to it could
/// be made.
pub(super) fn wanted(loaded: &Loaded) -> anyhow::Result<Vec<Wanted>> {
    let config = &loaded.config;
    catalogue(loaded)?;
    // A policy that knows only networks cannot look at the addresses inside translated ones.
    let translated = config.network.nat64.iter().map(|prefix| prefix.network());
    let denied: Vec<_> = config.network.denied.iter().copied().chain(translated).collect();
    let mut all = Vec::new();
    for (name, settings) in config.providers.iter().filter(|(name, one)| one.enabled && *name != "local") {
        let place = || format!("`providers.{name}`");
        let key = settings.key.as_ref().map(|reference| reference.resolve(&Environment::of_process()));
        let key = key.transpose().context("`key`").with_context(place)?;
        let one = Wanted {
            name: name.clone(),
            settings: settings.clone(),
            key: key.map(|secret| secret.expose_secret().to_owned()),
            owner: NO_OWNER.to_owned(),
            denied: denied.clone(),
            strict_filter: local::strict_filter(config),
        };
        drop(one.connect().with_context(place)?);
        all.push(one);
    }
    Ok(all)
}

impl Wanted {
    /// The way to the provider.
    fn connect(&self) -> anyhow::Result<Connect> {
        let Some((_, connector)) = KINDS.iter().find(|(kind, _)| *kind == self.settings.kind) else {
            let kinds: Vec<_> = KINDS.iter().map(|(kind, _)| kind.name()).collect();
            let kind = self.settings.kind.name();
            bail!("this build has no providers of kind `{kind}`, only {}", kinds.join(", "));
        };
        connector(self)
    }
}

/// All providers as one, where the configuration names any; `None`: this machine alone, directly.
pub(super) async fn fleet(
    loaded: &Loaded,
    wanted: Vec<Wanted>,
    home: &Home,
    here: &Arc<dyn Provider>,
    enforcement: Enforcement,
    tasks: &Tasks,
) -> anyhow::Result<Option<Arc<Fleet>>> {
    let config = &loaded.config;
    if config.providers.is_empty() {
        return Ok(None);
    }
    let catalogue = catalogue(loaded)?;
    let own = ProviderSettings::default();
    let local = config.providers.get("local").unwrap_or(&own);
    let mut members = Vec::new();
    if local.enabled {
        members.push(member(Arc::clone(here), "local", local, &catalogue)?);
    }
    let mut coming = Vec::new();
    for one in wanted {
        let one = Wanted { owner: home.owner()?, ..one };
        let late = reach(&one, tasks).with_context(|| format!("`providers.{}`", one.name))?;
        members.push(member(Arc::new(late.clone()), &one.name, &one.settings, &catalogue)?);
        coming.push(late);
    }
    for late in coming {
        // One after the other, but all of them are on their way already.
        late.wait(PATIENCE).await;
    }
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).context("this machine has no random numbers")?;
    let fleet = Fleet::new(members, settings(loaded, enforcement), u64::from_le_bytes(seed), tasks.clone());
    fleet.keep_in(home.learned());
    fleet.start_probing();
    Ok(Some(fleet))
}

fn reach(wanted: &Wanted, tasks: &Tasks) -> anyhow::Result<Late> {
    let connect = wanted.connect()?;
    let (name, settings) = (wanted.name.clone(), &wanted.settings);
    let (kind, region) = (settings.kind.name().to_owned(), settings.region.clone());
    Ok(Late::reach(ProviderInfo { name, kind, region }, connect, tasks))
}

fn member(
    provider: Arc<dyn Provider>,
    name: &str,
    settings: &ProviderSettings,
    catalogue: &Catalog,
) -> anyhow::Result<Member> {
    let entry = catalogue.get(name).with_context(|| format!("`providers.{name}` has no prices"))?;
    let most = settings.concurrency.or(entry.quotas().concurrent);
    let area = settings.area.clone().or_else(|| area(entry, settings.region.as_deref()));
    Ok(Member::new(provider, Arc::new(entry.clone()))
        .in_area(area)
        .with_most(most)
        .with_free_credit(settings.free_credit.unwrap_or_default()))
}

fn area(entry: &ProviderEntry, region: Option<&str>) -> Option<String> {
    let region = entry.regions().iter().find(|known| Some(known.name.as_str()) == region)?;
    region.area.clone()
}

/// The catalogue with a page for each provider of the configuration, by its name there.
pub(super) fn catalogue(loaded: &Loaded) -> anyhow::Result<Catalog> {
    let mut overrides = Overrides::default();
    for (name, settings) in &loaded.config.providers {
        let like = settings.like.clone().unwrap_or_else(|| settings.kind.name().to_owned());
        let mut figures = ProviderOverride { like: Some(like), ..ProviderOverride::default() };
        if settings.price.model.is_some() {
            let price = serde_json::to_value(&settings.price).context("a price")?;
            let price = serde_json::from_value(price);
            figures.price = Some(price.with_context(|| format!("`providers.{name}.price`"))?);
        }
        overrides.providers.insert(name.clone(), figures);
    }
    if let Some(price) = super::settings::own_price(&loaded.config) {
        // What is said of this machine as one place among others counts more.
        overrides.providers.entry("local".to_owned()).or_default().price.get_or_insert(price);
    }
    Catalog::embedded().with(&overrides).context("`providers`")
}

fn settings(loaded: &Loaded, enforcement: Enforcement) -> FleetSettings {
    let (config, routing) = (&loaded.config, &loaded.config.routing);
    let weights = routing.weights;
    let objective = match routing.objective {
        RoutingObjective::Cheapest => Objective::Cheapest,
        RoutingObjective::Fastest => Objective::Fastest,
        RoutingObjective::Balanced => Objective::Balanced,
        // The configuration was checked: they are weights.
        RoutingObjective::Weighted => Weights::new(weights.latency, weights.cost, weights.reliability)
            .map_or(Objective::Balanced, Objective::Weighted),
    };
    let canaries = CanaryRules {
        per_request: routing.probes_per_request,
        per_hour: routing.probes_per_hour,
        usd_per_day: routing.probes_max_cost,
        ..CanaryRules::default()
    };
    let none = routing.probes_per_request == 0.0 && routing.probes_per_hour == 0.0;
    let canaries = if none { CanaryRules { most: 0.0, ..canaries } } else { canaries };
    let hedge = HedgeRules { most_cost: routing.hedge_max_cost, ..HedgeRules::default() };
    FleetSettings {
        router: sandstorm_router::Settings { canaries, ..sandstorm_router::Settings::default() },
        usual: RouteRequest { objective, ..RouteRequest::default() },
        patience: routing.patience,
        hedge: routing.hedge_max_cost.is_positive().then_some(hedge),
        probe: SandboxSpec { limits: config.limits, enforcement, ..SandboxSpec::default() },
        ..FleetSettings::default()
    }
}
