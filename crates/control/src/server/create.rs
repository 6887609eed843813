//! Making a sandbox: what is asked for is checked, written down, built, and ended again if anything goes wrong.

use std::sync::Arc;

use async_trait::async_trait;
use sandstorm_fleet::Trees;
use sandstorm_provider::{CreateOptions, Error, HostMount, OpContext, Result, Sandbox};
use sandstorm_store::{Audit, EntryKind, Reservation, SandboxChanges, SandboxRow, UsageDelta};
use sandstorm_types::{
    ByteSize, EnvMap, ErrorKind, LanguageName, Lifetime, Limits, LimitsPatch, MilliCpus, OnEnd, Requirement,
    RunSpec, SandboxId, SandboxSpec, State, Step, TenantId, Timestamp, Usd,
};
use tokio_util::sync::CancellationToken;

use super::admission::Promise;
use super::costs::{Opening, Part};
use super::failure::{invalid, stored};
use super::living::{Given, Living};
use super::routing::Wishes;
use super::steps::Stepped;
use super::{Caller, Control, Inner, NewSandbox, SandboxView, Scope, Settings};
use crate::layers::{Layer, Site, Wanted};
use crate::prepare::{Prepared, Reach};
use crate::reserve::{BUILD_CPUS, Room};

/// Where a new sandbox should go, and where it has to.
struct Bound {
    wishes: Wishes,
    wants: Wants,
    /// Who has the snapshot that it starts from.
    snapshot_at: Option<String>,
}

/// When the layers of what a sandbox requires are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wants {
    Now,
    /// When it turns out that it comes here.
    Later,
    /// It is elsewhere.
    Never,
}

/// The layers of a sandbox that may go elsewhere, where they would be made for nothing.
struct LateLayers<'a> {
    inner: &'a Inner,
    spec: &'a SandboxSpec,
    made: tokio::sync::Mutex<Option<Vec<Layer>>>,
}

#[async_trait]
impl Trees for LateLayers<'_> {
    async fn make(&self, cx: &OpContext) -> Result<Vec<HostMount>> {
        let mut made = self.made.lock().await;
        if made.is_none() {
            *made = Some(self.inner.layers(cx, self.spec).await?);
        }
        Ok(made.iter().flatten().map(|layer| layer.mount.clone()).collect())
    }
}

/// A name that the new sandbox holds: its kind and itself.
pub(super) type Named = Option<(&'static str, String)>;

impl Control {
    /// Ready when this returns. Dropping the future ends what it began.
    pub async fn create_sandbox(&self, caller: &Caller, new: NewSandbox) -> Result<SandboxView> {
        let given = self.0.making.begin(SandboxId::random());
        self.create_as(caller, given, new, None).await
    }

    /// Makes a sandbox with an id that was chosen before.
    pub(super) async fn create_as(
        &self,
        caller: &Caller,
        given: Given,
        new: NewSandbox,
        named: Named,
    ) -> Result<SandboxView> {
        // The work is a task of its own, so that it ends what it began when nobody waits for it any more.
        let gone = CancellationToken::new();
        let (inner, caller, cx) =
            (Arc::clone(&self.0), caller.clone(), caller.operation().with_cancellation(gone.clone()));
        let _on_drop = gone.clone().drop_guard();
        let began = std::time::Instant::now();
        let view = self.0.tasks.complete(async move {
            let id = given.id;
            let made = Box::pin(inner.create(&caller, &cx, given, new)).await;
            let made = match made {
                // Made for somebody who is gone.
                Ok(_) if gone.is_cancelled() => {
                    inner.end_sandbox(caller.tenant, id, None).await?;
                    Err(Error::new(ErrorKind::Cancelled, "the caller gave up").with_operation("create"))
                }
                other => other,
            };
            if let (Err(_), Some((kind, name))) = (&made, named) {
                stored(inner.store.release_name(caller.tenant, kind, &name, id).await)?;
            }
            made
        });
        let view = view.await;
        let outcome = view.as_ref().map_or_else(|error| error.kind().code(), |_| "ok");
        metrics::counter!("sandstorm_sandbox_creations_total", "outcome" => outcome).increment(1);
        metrics::histogram!("sandstorm_sandbox_creation_seconds").record(began.elapsed().as_secs_f64());
        view
    }
}

impl Inner {
    #[tracing::instrument(skip_all, fields(sandbox = %given.id))]
    async fn create(
        self: &Arc<Self>,
        caller: &Caller,
        cx: &OpContext,
        given: Given,
        new: NewSandbox,
    ) -> Result<SandboxView> {
        caller.require(Scope::Sandbox)?;
        self.accepts_work()?;
        let mut new = new;
        let snapshot_at = self.start_from(caller.tenant, &mut new).await?;
        let mut wishes = self.wishes(&mut new);
        let max_cost = self.most(new.max_cost, &mut wishes.routing);
        let (spec, idle_timeout) = self.wanted(new)?;
        self.admits(&spec)?;
        self.check_routing(wishes.routing.as_deref(), &spec)?;
        let id = given.id;
        let audit = caller.audit("sandbox.create", id);
        let wants = self.wants(&spec);
        let (row, promise) =
            self.intend(caller, cx, &given, &spec, idle_timeout, max_cost, wants, &audit).await?;
        match self.build(cx, &spec, row, promise, given, Bound { wishes, wants, snapshot_at }).await {
            Ok(row) => {
                self.add_usage(caller.tenant, UsageDelta { sandboxes_created: 1, ..UsageDelta::default() });
                Ok(self.view(&row))
            }
            Err(error) => {
                self.not_made(caller.tenant, id, &error).await;
                Err(error)
            }
        }
    }

    /// Finds room for a sandbox within quotas, budgets and memory, and writes down that it will be made.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is one fact about the sandbox, and none has a default"
    )]
    pub(super) async fn intend(
        &self,
        caller: &Caller,
        cx: &OpContext,
        given: &Given,
        spec: &SandboxSpec,
        idle_timeout: Option<std::time::Duration>,
        max_cost: Option<Usd>,
        wants: Wants,
        audit: &Audit,
    ) -> Result<(SandboxRow, Promise)> {
        let id = given.id;
        let tenant = self.quotas.of(caller.tenant);
        let (living, ..) = self.sandboxes.promised(caller.tenant);
        if living >= tenant.quota.sandboxes {
            // The store counts exactly; this spares a tenant that is far over from waiting in line.
            let message = "the quota of sandboxes is used up";
            return Err(Error::new(ErrorKind::Quota, message)
                .with("allowed", tenant.quota.sandboxes)
                .with_retry_after(std::time::Duration::from_secs(5)));
        }
        let highest = match wants {
            Wants::Now | Wants::Later => self.height_to_make(caller.tenant, spec),
            Wants::Never => spec.limits,
        };
        // What is installed for it is there before anything of its own is.
        let memory = highest.memory.max(self.admission.of(&spec.limits, spec.space));
        let promise = cx.run("create", self.admission.admit(memory)).await?;
        given.promise(caller.tenant, &spec.limits, &highest);
        let ceiling = self.left_for_sandboxes(caller.tenant);
        let now = Timestamp::now();
        let row = SandboxRow {
            id,
            tenant: caller.tenant,
            spec: spec.clone(),
            state: State::Creating,
            idle_timeout_ms: idle_timeout.map(|span| i64::try_from(span.as_millis()).unwrap_or(i64::MAX)),
            walls: None,
            provider: self.provider.info().name.clone(),
            created_at: now,
            expires_at: Some(now.after(spec.lifetime.after)),
            ended_at: None,
            last_used_at: now,
            revision: 0,
        };
        let opening = Opening {
            kind: EntryKind::Sandbox,
            object: id.to_string(),
            labels: spec.labels.clone(),
            limits: &spec.limits,
            longest: spec.lifetime.after,
            max_cost,
            at: now,
        };
        let account = self.spending.open(&self.store, caller, opening).await?;
        let entry = Some(account.entry().clone());
        stored(self.store.insert_sandbox_with(&row, Some(ceiling), audit, entry).await)?;
        self.spending.keep(id, account);
        self.events.wake(caller.tenant);
        Ok((row, promise))
    }

    /// Takes away what is there of a sandbox that could not be made, and says so in its record.
    pub(super) async fn not_made(self: &Arc<Self>, tenant: TenantId, id: SandboxId, error: &Error) {
        self.sandboxes.remove(id);
        if let Some(account) = self.spending.of_sandbox(id) {
            account.gave_up(error.attempts());
        }
        self.fail_surely(tenant, id, told(error)).await;
    }

    /// Builds what the row says and takes the step to `ready`.
    async fn build(
        self: &Arc<Self>,
        cx: &OpContext,
        spec: &SandboxSpec,
        row: SandboxRow,
        promise: Promise,
        given: Given,
        bound: Bound,
    ) -> Result<SandboxRow> {
        let Bound { wishes, wants, snapshot_at } = bound;
        let late = self.runner.fleet.as_ref().filter(|_| wants == Wants::Later);
        // What is still to be installed counts until that is done.
        let (wanted, mut options, _given) =
            self.ingredients(cx, spec, row.clone(), promise, given, wants).await?;
        (options.routing, options.snapshot_at) = (wishes.routing, snapshot_at);
        options.not_here = wishes.not_here.or(options.not_here);
        let made = match late {
            Some(fleet) => {
                let late = LateLayers { inner: self, spec, made: tokio::sync::Mutex::default() };
                let made = fleet.create_with(cx, &wanted, &options, &late).await?;
                if let Some(living) = self.sandboxes.get(row.tenant, row.id) {
                    living.share.settle();
                    living.keep_layers(late.made.into_inner().unwrap_or_default());
                }
                made
            }
            None => self.provider.create(cx, &wanted, options).await?,
        };
        self.made(row, made).await
    }

    /// What the provider gets to make the sandbox from. It is known from here on, so that a request to end it, and its
    /// own end, find it. What it is given stays until its layers are there.
    pub(super) async fn ingredients(
        &self,
        cx: &OpContext,
        spec: &SandboxSpec,
        row: SandboxRow,
        promise: Promise,
        given: Given,
        wants: Wants,
    ) -> Result<(SandboxSpec, CreateOptions, Option<Given>)> {
        let id = row.id;
        let mut wanted = spec.clone();
        let reach = if wants == Wants::Now { Reach::Here } else { Reach::Anywhere };
        let not_here = self.add_requirements_env(spec, reach, &mut wanted.env)?;
        let layers = match wants {
            Wants::Now => self.layers(cx, spec).await?,
            Wants::Later | Wants::Never => Vec::new(),
        };
        let memory = self.admission.of(&spec.limits, spec.space);
        if wants != Wants::Later {
            promise.shrink(memory);
        }
        wanted.requirements.clear();
        let mut mounts = self.toolchain_mounts();
        mounts.extend(layers.iter().map(|layer| layer.mount.clone()));
        // A layer may be gone by the time that somebody takes a sandbox made ahead.
        let pooled = layers.is_empty() && wants != Wants::Later;
        // Lifetimes are this server's matter: they can be extended, and end in a pause. A provider's own clock would
        // not know.
        wanted.lifetime.then = OnEnd::Pause;
        self.sandboxes.add(Arc::new(Living::new(row, promise, memory, layers)));
        let given = (wants == Wants::Later).then_some(given);
        given.iter().for_each(Given::is_registered);
        let elsewhere = self.runner.fleet.is_some().then(|| {
            // There, what it requires is that place's own matter.
            let lifetime = wanted.lifetime;
            Box::new(SandboxSpec { lifetime, ..spec.clone() })
        });
        let options = CreateOptions { id, pooled, mounts, elsewhere, not_here, ..CreateOptions::default() };
        Ok((wanted, options, given))
    }

    /// Takes the step to `ready` of a sandbox that the provider made.
    pub(super) async fn made(self: &Arc<Self>, row: SandboxRow, made: Sandbox) -> Result<SandboxRow> {
        let id = row.id;
        let tried = self.spending.placed(&made);
        let unsettled: Vec<Part> = Part::attempts(&tried).collect();
        let attempts = tried.into_iter().map(|tried| tried.entry).collect();
        let walls = serde_json::to_value(made.stated_walls()).ok();
        if made.placement.as_ref().is_some_and(|placement| placement.elsewhere)
            && let Some(living) = self.sandboxes.get(row.tenant, id)
        {
            living.share.is_elsewhere();
        }
        let provider = made.placement.map(|placement| placement.info.name);
        let changes = SandboxChanges { walls, provider, attempts, ..SandboxChanges::default() };
        match self.step_from(&row, Step::Created, changes).await? {
            Stepped::To(row) => {
                if let Some(account) = self.spending.of_sandbox(id) {
                    self.settle_costs(&account, unsettled);
                }
                Ok(row)
            }
            Stepped::Refused(row) => {
                // Ended while it was made: whoever ended it may have come before there was anything to destroy.
                self.provider.destroy(&OpContext::new(row.tenant), &id).await?;
                Err(super::steps::in_the_way(id, &row.state))
            }
        }
    }

    /// Processor and memory that the sandboxes of a tenant are promised, with those that are being made. Those first: one
    /// that moves on meanwhile is counted twice rather than not at all.
    pub(super) fn promised(&self, tenant: TenantId) -> (u64, u64) {
        let (making_cpu, making_memory) = self.making.promised(tenant);
        let (_, cpu, memory) = self.sandboxes.promised(tenant);
        (cpu.saturating_add(making_cpu), memory.saturating_add(making_memory))
    }

    /// The most that installing and compiling for a tenant may take.
    pub(super) fn room(&self, tenant: TenantId) -> Room {
        let quota = self.quotas.of(tenant).quota;
        Room {
            memory: self.admission.total().min(ByteSize::bytes(quota.memory_bytes)),
            cpus: MilliCpus::new(u32::try_from(quota.cpu_milli).unwrap_or(u32::MAX)),
        }
    }

    /// What a tenant's sandboxes may be promised in their records, beside its runs and beside what is installed for sandboxes
    /// that are being made.
    fn left_for_sandboxes(&self, tenant: TenantId) -> Reservation {
        let known = self.quotas.of(tenant);
        let (cpu, memory) = known.left_by_runs();
        let (beyond_cpu, beyond_memory) = self.making.beyond(tenant);
        Reservation {
            sandboxes: known.quota.sandboxes,
            cpu_milli: cpu.saturating_sub(beyond_cpu),
            memory_bytes: memory.saturating_sub(beyond_memory),
        }
    }

    /// When the layers of a new sandbox are made.
    fn wants(&self, spec: &SandboxSpec) -> Wants {
        match self.runner.fleet.is_some() && !spec.requirements.is_empty() {
            true => Wants::Later,
            false => Wants::Now,
        }
    }

    /// Whether the provider could hold it. Packages are this server's matter: the provider sees layers.
    pub(super) fn admits(&self, spec: &SandboxSpec) -> Result<()> {
        let bare = SandboxSpec { requirements: std::collections::BTreeMap::new(), ..spec.clone() };
        self.provider.admits(&bare).map_err(Error::unmet)
    }

    /// What was asked for with the operator's defaults, within the operator's limits.
    pub(super) fn wanted(&self, new: NewSandbox) -> Result<(SandboxSpec, Option<std::time::Duration>)> {
        let limits = within_ceiling(&self.settings, &self.settings.limits, &new.limits)?;
        let lifetime = new.lifetime.unwrap_or(Lifetime::default().after.min(self.settings.longest_lifetime));
        self.check_lifetime(lifetime)?;
        let pauses = self.provider.capabilities().pause;
        let then = match new.on_end {
            Some(OnEnd::PauseFiles) if !self.provider.capabilities().pause_files => {
                return Err(invalid(
                    "this server cannot pause sandboxes with their files only: they can be paused whole, or deleted at their end",
                ));
            }
            Some(OnEnd::Pause) if !pauses => {
                return Err(invalid(
                    "this server cannot pause sandboxes: they can only be deleted at their end",
                ));
            }
            Some(then) => then,
            None if pauses => OnEnd::Pause,
            None => OnEnd::Delete,
        };
        if new.idle_timeout.is_some_and(|idle| idle.is_zero()) {
            return Err(invalid("an idle timeout is longer than nothing"));
        }
        let spec = SandboxSpec {
            template: new.template,
            limits,
            enforcement: new.enforcement.unwrap_or(self.settings.enforcement),
            env: new.env,
            network: new.network,
            labels: new.labels,
            lifetime: Lifetime { after: lifetime, then },
            user: new.user,
            space: new.space,
            requirements: new.requirements,
            ..SandboxSpec::default()
        };
        Ok((spec, new.idle_timeout.or(self.settings.idle_timeout)))
    }

    /// The layers of what the sandbox requires.
    async fn layers(&self, cx: &OpContext, spec: &SandboxSpec) -> Result<Vec<Layer>> {
        let mut provided = Vec::new();
        for (language, requirements) in spec.requirements.iter().filter(|(_, wanted)| !wanted.is_empty()) {
            let layers =
                self.runner.layers.as_ref().ok_or_else(|| invalid("this server installs no packages"))?;
            let prepared = self.requiring(spec, language, requirements, Reach::Here)?;
            let recipe = prepared.recipe.ok_or_else(|| invalid("the language has no package manager"))?;
            let wanted = Wanted {
                recipe,
                toolchain: &prepared.toolchain,
                requirements,
                enforcement: spec.enforcement,
            };
            let site = Site {
                provider: &*self.runner.workshop,
                roots: &self.runner.toolchains.roots,
                cx,
                events: None,
                room: Some(self.room(cx.tenant())),
            };
            provided.push(layers.provide(site, wanted).await?);
        }
        Ok(provided)
    }

    /// Adds the variables by which programs find what the sandbox requires, and says why it cannot be here if it cannot.
    fn add_requirements_env(
        &self,
        spec: &SandboxSpec,
        reach: Reach,
        env: &mut EnvMap,
    ) -> Result<Option<String>> {
        for (language, requirements) in spec.requirements.iter().filter(|(_, wanted)| !wanted.is_empty()) {
            let plain = self.requiring(spec, language, &[], reach)?;
            let prepared = self.requiring(spec, language, requirements, reach)?;
            if prepared.not_here.is_some() {
                return Ok(prepared.not_here);
            }
            let own: std::collections::BTreeMap<String, String> = prepared
                .run
                .env
                .into_iter()
                .filter(|(name, value)| plain.run.env.get(name) != Some(value) && env.get(name).is_none())
                .collect();
            env.extend(&crate::compile::environment(&own)?)
                .map_err(|e| invalid("the environment is too large").with_source(e))?;
        }
        Ok(None)
    }

    /// An empty program that requires this.
    pub(super) fn requiring(
        &self,
        spec: &SandboxSpec,
        language: &LanguageName,
        requirements: &[Requirement],
        reach: Reach,
    ) -> Result<Prepared> {
        let mut run = RunSpec::new(language.clone(), "");
        requirements.clone_into(&mut run.requirements);
        Prepared::new(&run, None, &spec.limits, &self.runner.toolchains, reach)
    }

    /// What a new sandbox needs at its height: its own, or what those have who install what it requires.
    fn height_to_make(&self, tenant: TenantId, spec: &SandboxSpec) -> Limits {
        let own = spec.limits;
        let Some(layers) = &self.runner.layers else { return own };
        let room = self.room(tenant);
        let install = self.required(spec).filter_map(|(prepared, requirements)| {
            let recipe = prepared.recipe?;
            let (toolchain, enforcement) = (&prepared.toolchain, spec.enforcement);
            layers.memory_to_make(&Wanted { recipe, toolchain, requirements, enforcement })
        });
        install.fold(own, |height, memory| Limits {
            memory: height.memory.max(memory.min(room.memory)),
            cpus: height.cpus.max(BUILD_CPUS.min(room.cpus)),
            ..height
        })
    }

    /// What a sandbox requires of each language that is here.
    fn required<'a>(
        &'a self,
        spec: &'a SandboxSpec,
    ) -> impl Iterator<Item = (Prepared, &'a Vec<Requirement>)> {
        let wanted = spec.requirements.iter().filter(|(_, wanted)| !wanted.is_empty());
        wanted.filter_map(|(language, requirements)| {
            let prepared = self.requiring(spec, language, requirements, Reach::Here);
            Some((prepared.ok()?, requirements))
        })
    }

    /// Layers of a sandbox that an earlier server made, to keep them in place. Nothing is built for it.
    pub(super) fn kept_layers(&self, spec: &SandboxSpec) -> Vec<Layer> {
        let Some(layers) = &self.runner.layers else { return Vec::new() };
        let mut kept = Vec::new();
        for (prepared, requirements) in self.required(spec) {
            let Some(recipe) = prepared.recipe else { continue };
            let (toolchain, enforcement) = (&prepared.toolchain, spec.enforcement);
            kept.extend(layers.kept(&Wanted { recipe, toolchain, requirements, enforcement }));
        }
        kept
    }

    /// What toolchains outside the host's own trees need, whichever will be used.
    fn toolchain_mounts(&self) -> Vec<HostMount> {
        let paths = self.runner.toolchains.mounts();
        paths.into_iter().map(|path| HostMount { source: path.clone(), target: path }).collect()
    }
}

/// Limits with what was asked for laid over, refused where more is asked for than anybody may.
pub(super) fn within_ceiling(settings: &Settings, base: &Limits, asked: &LimitsPatch) -> Result<Limits> {
    let (base, _) = base.clamped(&settings.ceiling);
    let limits = asked
        .apply(&base)
        .map_err(|errors| invalid(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")))?;
    let (limits, lowered) = limits.clamped(&settings.ceiling);
    // A processor time that nobody asked for is the operator's to set.
    let asked_too_much: Vec<_> = lowered
        .iter()
        .filter(|name| **name != sandstorm_types::LimitName::CpuTime || asked.cpu_time.is_some())
        .map(ToString::to_string)
        .collect();
    match asked_too_much.is_empty() {
        true => Ok(limits),
        false => {
            Err(invalid("more is asked for than this server allows")
                .with("limits", asked_too_much.join(", ")))
        }
    }
}

/// An error as the reason of a failed sandbox.
fn told(error: &Error) -> String {
    format!("it could not be made: {}", error.message())
}
