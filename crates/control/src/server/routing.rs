//! Where things go: what a caller wishes is checked, decisions are explained, and what is left elsewhere is found.

use std::sync::Arc;
use std::time::Duration;

use sandstorm_catalog::{Catalog, Date, Demand, Usage};
use sandstorm_fleet::{Fleet, FleetSettings, Member, Standing};
use sandstorm_language::Catalogue;
use sandstorm_provider::{OpContext, ProviderInfo, Result, Tasks};
use sandstorm_router::Decision;
use sandstorm_store::SandboxRow;
use sandstorm_types::{Capabilities, Isolation, Limits, Routing, RunSpec, SandboxSpec, Timestamp, Usd};

use super::failure::invalid;
use super::{Caller, Control, Inner, NewSandbox, Scope};

/// A place where sandboxes can be, as people are shown it.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderView {
    pub name: String,
    pub kind: String,
    pub region: Option<String>,
    pub title: String,
    /// Whether it answers and is asked.
    pub up: bool,
    /// What the router makes of how it did so far.
    pub health: String,
    pub trouble: Option<String>,
    pub sandboxes: u32,
    pub isolation: Isolation,
    /// What it can do, by name.
    pub capabilities: Vec<String>,
    pub price_model: String,
    /// What a minute of one processor and 512 MiB costs, half of it used; `None`: nobody knows.
    pub minute_usd: Option<f64>,
    pub price_as_of: Option<String>,
    pub price_source: String,
    /// Figures that are too old to be believed without a look.
    pub warnings: Vec<String>,
}

impl ProviderView {
    fn new(standing: Standing, today: Date, price_age: Duration) -> Self {
        let Standing { info, health, trouble, sandboxes, can, entry } = standing;
        let (minute, half) = (Duration::from_secs(60), Duration::from_secs(30));
        let usage = Usage::of(&Demand::default(), minute, half);
        let stale = entry.stale(today, price_age.as_secs() / 86_400);
        Self {
            name: info.name,
            kind: info.kind,
            region: info.region,
            title: entry.title.clone(),
            up: trouble.is_none() && health.may_be_asked(),
            health: health.to_string(),
            trouble,
            sandboxes,
            isolation: can.isolation,
            capabilities: can.names(),
            price_model: entry.price.figure.name().to_owned(),
            minute_usd: entry.charge(&usage).ok().map(|charge| charge.total().as_f64()),
            price_as_of: entry.price.as_of.map(|day| day.to_string()),
            price_source: entry.price.source.clone(),
            warnings: stale.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The language of contexts whose callers do not say another.
const USUAL_CONTEXT: &str = "python";

/// What a new sandbox wants of its place.
#[derive(Debug)]
pub(super) struct Wishes {
    pub(super) routing: Option<Box<Routing>>,
    /// Why this machine will not do.
    pub(super) not_here: Option<String>,
}

impl Control {
    /// Where such a sandbox would go, with every provider's verdict. Nothing is made.
    pub fn explain(&self, caller: &Caller, new: NewSandbox) -> Result<Decision> {
        caller.require(Scope::Run)?;
        let routing = new.routing.clone();
        let (spec, _) = self.0.wanted(new)?;
        if let Some(routing) = &routing {
            self.0.check_names(routing)?;
        }
        Ok(self.0.fleet().explain(&spec, routing.as_deref()))
    }

    /// Every provider with its health at this moment.
    pub async fn providers(&self, caller: &Caller) -> Result<Vec<ProviderView>> {
        caller.require(Scope::Run)?;
        let all = self.0.fleet().survey(&caller.operation()).await;
        let today = Date::of(Timestamp::now());
        let view = |standing| ProviderView::new(standing, today, self.0.settings.price_age);
        Ok(all.into_iter().map(view).collect())
    }
}

impl Inner {
    /// All providers; where there is one alone it is looked at in the same way, without being on anybody's way.
    fn fleet(&self) -> &Arc<Fleet> {
        self.runner.fleet.as_ref().unwrap_or_else(|| {
            self.alone.get_or_init(|| {
                let entry = Catalog::embedded().get("local").cloned();
                let members = entry.map(|entry| Member::new(Arc::clone(&self.provider), Arc::new(entry)));
                Fleet::new(members.into_iter().collect(), FleetSettings::default(), 0, Tasks::default())
            })
        })
    }

    /// What a new sandbox wants of its place. Where there is no choice nothing is added to what its caller says.
    pub(super) fn wishes(&self, new: &mut NewSandbox) -> Wishes {
        let (mut routing, mut not_here) = (new.routing.take(), None);
        if new.contexts && self.runner.fleet.is_some() {
            let required = &mut routing.get_or_insert_default().require.capabilities;
            // What a kernel needs that is spoken to in lines; where there is a channel, there is all of this too.
            required.extend(["files", "exec_stdin", "exec_background"].map(str::to_owned));
            // In which language nobody has said yet, and it is this one unless they do.
            let usual = Catalogue::embedded().get(USUAL_CONTEXT).ok();
            let missing = usual.and_then(|language| self.runner.toolchains.of(language).err());
            not_here = missing.map(|missing| missing.message().to_owned());
        }
        Wishes { routing, not_here }
    }

    /// The most that something may cost: the lesser of what its caller says of it and of its place. Whoever chooses a place
    /// keeps to it too.
    pub(super) fn most(&self, max_cost: Option<Usd>, routing: &mut Option<Box<Routing>>) -> Option<Usd> {
        let wished = routing.as_ref().and_then(|routing| routing.max_cost);
        let most = [max_cost, wished].into_iter().flatten().min();
        if most.is_some() && self.runner.fleet.is_some() {
            routing.get_or_insert_default().max_cost = most;
        }
        most
    }

    /// Refuses wishes that mean nothing here or that nobody can fulfil.
    pub(super) fn check_routing(&self, routing: Option<&Routing>, spec: &SandboxSpec) -> Result<()> {
        let Some(routing) = routing else { return Ok(()) };
        self.check_names(routing)?;
        // Whoever chooses between several looks at this when it chooses.
        if self.runner.fleet.is_some() { Ok(()) } else { self.fleet().fits(spec, routing) }
    }

    /// The same for a run.
    pub(super) fn check_run_routing(&self, spec: &RunSpec, limits: &Limits) -> Result<()> {
        let sandbox =
            SandboxSpec { limits: *limits, network: spec.network.clone(), ..SandboxSpec::default() };
        let sandbox =
            SandboxSpec { enforcement: spec.enforcement.unwrap_or(self.settings.enforcement), ..sandbox };
        self.check_routing(spec.routing.as_deref(), &sandbox)
    }

    fn check_names(&self, routing: &Routing) -> Result<()> {
        routing.validate().map_err(|error| invalid(format!("routing: {error}")))?;
        let known: Vec<&str> = self.fleet().names().collect();
        match routing.providers().find(|(_, name)| !known.contains(&name.as_str())) {
            Some((field, name)) => Err(invalid(format!("routing.{field}: there is no provider `{name}`"))
                .with("providers", known.join(", "))),
            None => Ok(()),
        }
    }

    /// Who holds a sandbox.
    pub(super) fn holder(&self, row: &SandboxRow) -> &ProviderInfo {
        let fleet = self.runner.fleet.as_ref();
        fleet.and_then(|fleet| fleet.info_of(&row.provider)).unwrap_or_else(|| self.provider.info())
    }

    /// What whoever holds a sandbox can do.
    pub(super) fn can(&self, row: &SandboxRow) -> Capabilities {
        let fleet = self.runner.fleet.as_ref();
        fleet
            .and_then(|fleet| fleet.capabilities_of(&row.provider))
            .unwrap_or_else(|| self.provider.capabilities())
    }

    /// Whether a sandbox has none of this machine's trees.
    pub(super) fn is_elsewhere(&self, row: &SandboxRow) -> bool {
        self.runner.fleet.is_some() && !self.can(row).host_trees
    }

    /// Names under which this server's sandboxes are on record.
    pub(super) fn own_names(&self) -> Vec<&str> {
        let members = self.runner.fleet.iter().flat_map(|fleet| fleet.names());
        members.chain([self.provider.info().name.as_str()]).collect()
    }

    /// Compares what is elsewhere with what is known, again and again, and ends what nobody knows.
    pub(super) async fn look_for_orphans(self: Arc<Self>, fleet: Arc<Fleet>, every: Duration) {
        loop {
            tokio::time::sleep(every).await;
            for orphan in fleet.orphans().await {
                let id = orphan.sandbox;
                if self.sandboxes.of_any_tenant(id).is_none() && !self.making.contains(id) {
                    fleet.end_orphan(&orphan);
                }
            }
        }
    }

    /// Tells the fleet where the sandboxes of an earlier server are.
    pub(super) fn meet(&self, rows: &[SandboxRow]) {
        let Some(fleet) = &self.runner.fleet else { return };
        for row in rows {
            fleet.meet(row.id, &row.provider);
        }
    }

    /// Providers that do not answer at present, and the sandboxes of the others.
    pub(super) async fn present_or_silent(&self) -> Result<(Vec<sandstorm_provider::Sandbox>, Vec<String>)> {
        if self.runner.fleet.is_none() {
            return Ok((self.present().await?, Vec::new()));
        }
        use futures_util::StreamExt;
        let cx = OpContext::new(sandstorm_types::TenantId::LOCAL).with_timeout(Duration::from_secs(30));
        let mut list = self.provider.list(&cx, sandstorm_provider::ListFilter::default());
        let (mut present, mut silent) = (Vec::new(), Vec::new());
        while let Some(item) = list.next().await {
            match item {
                Ok(sandbox) => present.push(sandbox),
                Err(error) => match error.provider() {
                    Some(name) => {
                        tracing::warn!(provider = name, %error, "the sandboxes of a provider are not known yet");
                        silent.push(name.to_owned());
                    }
                    None => return Err(error),
                },
            }
        }
        Ok((present, silent))
    }
}
