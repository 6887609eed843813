//! Packages for a sandbox that lives: resolved and made into a layer as for `requirements`, and then placed into it.
//!
//! That needs no network of the sandbox, and no package manager in it. Making the layer counts as a run does: its rate, the
//! tenant's quota beside what its sandboxes hold, and a place in the line for memory.

use std::sync::Arc;

use sandstorm_language::{Catalogue, Places, Recipe};
use sandstorm_provider::{Error, OpContext, Result};
use sandstorm_store::SandboxRow;
use sandstorm_types::{
    ByteSize, Enforcement, ErrorKind, Limits, MilliCpus, Requirement, SandboxId, Template, TenantId, Unmet,
};
use tokio_util::sync::CancellationToken;

use super::failure::{invalid, stored};
use super::living::Living;
use super::{Caller, Control, Inner, Verb};
use crate::layers::{Layer, Layers, Site, Wanted};
use crate::prepare::{Prepared, Reach};
use crate::reserve::{BUILD_CPUS, Room};

/// The most packages of one request.
const MOST: usize = 100;
/// Without this much there is no use in beginning to make a layer.
const LEAST_MEMORY: ByteSize = ByteSize::mib(512);
const LEAST_CPUS: MilliCpus = MilliCpus::new(100);

/// Packages to install into a sandbox that lives.
#[derive(Debug, Clone)]
pub struct NewInstall {
    /// The package manager, by its name.
    pub manager: String,
    pub packages: Vec<Requirement>,
}

/// What was installed, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    pub manager: String,
    pub packages: Vec<Requirement>,
    /// The folder of the sandbox that the packages are in.
    pub place: String,
    /// The folder that their programs are in, where that is another one.
    pub programs: Option<String>,
}

/// What an installation has decided before anything is made.
struct Order {
    recipe: &'static Recipe,
    prepared: Prepared,
    places: Places,
    packages: Vec<Requirement>,
    enforcement: Enforcement,
}

impl Order {
    fn wanted(&self) -> Wanted<'_> {
        Wanted {
            recipe: self.recipe,
            toolchain: &self.prepared.toolchain,
            requirements: &self.packages,
            enforcement: self.enforcement,
        }
    }
}

impl Control {
    /// Installs packages, and what they need, into a ready sandbox of this machine. What it had under the same names is
    /// replaced. Dropping the future, or a failure while files are placed, leaves what was placed until then.
    #[tracing::instrument(skip_all, fields(sandbox = %id, manager = %new.manager))]
    pub async fn install(&self, caller: &Caller, id: SandboxId, new: NewInstall) -> Result<Installed> {
        caller.require_inside(id, Verb::Run)?;
        self.0.accepts_work()?;
        let living = self.0.ready(caller.tenant, id).await?;
        let order = self.0.order_install(&living.row(), new)?;
        let gone = CancellationToken::new();
        let _on_drop = gone.clone().drop_guard();
        let cx = caller.operation().with_cancellation(gone);
        let mut audit = caller.audit("sandbox.install", id);
        let packages: Vec<&str> = order.packages.iter().map(Requirement::as_str).collect();
        audit.detail = Some(serde_json::json!({ "manager": order.recipe.name, "packages": packages }));
        let inner = Arc::clone(&self.0);
        // Its sandboxes are ended also when nobody waits for it any more.
        let done = self.0.tasks.complete(async move {
            stored(inner.store.record_audit(&audit).await)?;
            inner.carry_out_install(&cx, &living, order).await
        });
        let done = done.await;
        let outcome = done.as_ref().map_or_else(|error| error.kind().code(), |_| "ok");
        metrics::counter!("sandstorm_installs_total", "outcome" => outcome).increment(1);
        done
    }
}

impl Inner {
    /// Decides everything, or says what is wrong with the request.
    fn order_install(&self, row: &SandboxRow, new: NewInstall) -> Result<Order> {
        let NewInstall { manager, packages } = new;
        if packages.is_empty() || packages.len() > MOST {
            return Err(invalid("an installation names 1 to 100 packages"));
        }
        let known = || Recipe::live_names().collect::<Vec<_>>().join(", ");
        let recipe = Recipe::named(&manager).filter(|recipe| recipe.live.is_some()).ok_or_else(|| {
            invalid(format!(
                "`{manager}` does not install into a sandbox that lives: use one of {}, or name packages as \
                 requirements when a sandbox is made",
                known()
            ))
        })?;
        self.layers_or_refuse()?;
        let elsewhere = !self.can(row).host_trees;
        if elsewhere || matches!(row.spec.template, Template::Image(_)) {
            let why = match elsewhere {
                true => "the sandbox is not on this machine: install with a program inside it",
                false => "the sandbox has the languages of its image: install with a program inside it",
            };
            return Err(Error::unmet(vec![Unmet::new("install", "yes", "no", why)]));
        }
        let language = Catalogue::embedded()
            .get(&recipe.language)
            .map_err(|e| Error::new(ErrorKind::Internal, "a recipe has no language").with_source(e))?;
        let name = language.name.parse().map_err(|e: sandstorm_types::LanguageNameError| {
            Error::new(ErrorKind::Internal, "a language has no name").with_source(e)
        })?;
        let prepared = self.requiring(&row.spec, &name, &packages, Reach::Here)?;
        let places = recipe.places(&prepared.toolchain).ok_or_else(|| {
            invalid(format!(
                "{} here does not say its version, so its packages have no place",
                language.title
            ))
        })?;
        Ok(Order { recipe, prepared, places, packages, enforcement: row.spec.enforcement })
    }

    fn layers_or_refuse(&self) -> Result<&Layers> {
        self.runner.layers.as_ref().ok_or_else(|| invalid("this server installs no packages"))
    }

    async fn carry_out_install(
        &self,
        cx: &OpContext,
        living: &Arc<Living>,
        order: Order,
    ) -> Result<Installed> {
        let layers = self.layers_or_refuse()?;
        // Whoever is installed into is in use.
        let _busy = living.busy();
        let layer = self.layer_to_install(cx, &order).await?;
        {
            let _working = living.work().await?;
            let place = layers.place(&*self.provider, cx, &living.id, &layer, &order.places);
            cx.run("install", place).await?;
        }
        living.touch();
        let Order { recipe, places, packages, .. } = order;
        tracing::info!(manager = %recipe.name, packages = packages.len(), "installed packages into a sandbox");
        Ok(Installed {
            manager: recipe.name.clone(),
            packages,
            place: places.place,
            programs: places.programs.map(|programs| programs.to),
        })
    }

    /// The layer, made within quota and admission if it is not there.
    async fn layer_to_install(&self, cx: &OpContext, order: &Order) -> Result<Layer> {
        let layers = self.layers_or_refuse()?;
        let wanted = order.wanted();
        let tenant = self.quotas.of(cx.tenant());
        let mut room = self.room(cx.tenant());
        let mut held = None;
        if let Some(memory) = layers.memory_to_make(&wanted) {
            room = self.room_beside(cx.tenant());
            if room.memory < LEAST_MEMORY || room.cpus < LEAST_CPUS {
                let message = "the quota leaves no room to install packages beside the sandboxes that live";
                return Err(Error::new(ErrorKind::Quota, message)
                    .with("memory_left", room.memory)
                    .with_retry_after(std::time::Duration::from_secs(5)));
            }
            tenant.count_run()?;
            let (memory, cpus) = (memory.min(room.memory), BUILD_CPUS.min(room.cpus));
            let height = Limits { memory, cpus, ..Limits::default() };
            let hold = tenant.hold_run(&height, || self.promised(cx.tenant()))?;
            let promise = cx.run("install", self.admission.admit(memory)).await?;
            held = Some((hold, promise));
        }
        let site = Site {
            provider: &*self.runner.workshop,
            roots: &self.runner.toolchains.roots,
            cx,
            events: None,
            room: Some(room),
        };
        let layer = layers.provide(site, wanted).await;
        drop(held);
        layer
    }

    /// What a tenant has left for installing beside its sandboxes and runs. It waits for others, but never for itself.
    fn room_beside(&self, tenant: TenantId) -> Room {
        let Room { memory, cpus } = self.room(tenant);
        let ((cpu, bytes), (run_cpu, run_bytes)) =
            (self.promised(tenant), self.quotas.of(tenant).held_by_runs());
        let cpu = u32::try_from(cpu.saturating_add(run_cpu)).unwrap_or(u32::MAX);
        let bytes = bytes.saturating_add(run_bytes);
        Room {
            memory: ByteSize::bytes(memory.as_u64().saturating_sub(bytes)),
            cpus: MilliCpus::new(cpus.milli().saturating_sub(cpu)),
        }
    }
}
